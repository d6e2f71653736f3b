"""Files of an end state, by path: of a terminal task's kept state, or of a JSON state with a table ``files``.

Nothing is laid on a disk and no link is followed: a file is found by its own path or not at all.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import zstandard

from flightschool.records import Json, Record
from flightschool.sandbox.written import Written, WrittenKind
from flightschool.verification.images import broken_state, is_sqlite, json_state

__all__ = ["TERMINAL_MAGIC", "Files", "files_of"]

TERMINAL_MAGIC = b"fs-end-state-1\n"
"""First bytes of a terminal task's kept end state (``environments.terminal.end_state`` writes it)."""
_MOST_BYTES = 4 << 30


class _Kept(Record, frozen=True, kw_only=True):
    entries: tuple[Written, ...]


@dataclass(frozen=True)
class Files:
    """What lies where."""

    entries: Mapping[str, Written]
    complete: bool
    """Whether a path that is not among them does not exist; a kept end state holds only what was written."""

    def find(self, path: str) -> bytes | str | None:
        """Content of a regular file; a text that says what is there instead; None if nothing is said of the path."""
        entry = self.entries.get(path)
        if entry is None:
            parent = path
            while parent := parent.rpartition("/")[0]:
                above = self.entries.get(parent)
                if above is not None and (above.kind is not WrittenKind.FOLDER or above.opaque):
                    return f"{parent} is {_named(above.kind) if not above.opaque else 'a folder without it'}"
            return None
        return entry.data if entry.kind is WrittenKind.FILE else f"{path} is {_named(entry.kind)}"


def _named(kind: WrittenKind) -> str:
    return {
        WrittenKind.FILE: "a file",
        WrittenKind.FOLDER: "a folder",
        WrittenKind.LINK: "a link, which is not followed",
        WrittenKind.GONE: "removed",
        WrittenKind.ODD: "no regular file",
    }[kind]


def files_of(state: bytes) -> Files:
    """The files of a state.

    Raises:
        InfrastructureError: the state holds no files, or cannot be read.
    """
    if state.startswith(TERMINAL_MAGIC):
        try:
            data = zstandard.ZstdDecompressor().decompress(state[len(TERMINAL_MAGIC) :], max_output_size=_MOST_BYTES)
            kept = msgspec.msgpack.decode(data, type=_Kept)
        except (zstandard.ZstdError, msgspec.DecodeError) as error:
            raise broken_state(f"a kept end state cannot be read: {error}") from error
        return Files({entry.path: entry for entry in kept.entries}, complete=False)
    table = {} if not state or is_sqlite(state) else json_state(state).get("files")
    if not isinstance(table, dict) or is_sqlite(state):
        raise broken_state("the state holds no files: neither a kept end state nor JSON with an object 'files'")
    return Files({path: _entry(path, content) for path, content in table.items()}, complete=True)


def _entry(path: str, content: Json) -> Written:
    """``{"/a": "text", "/b": {"base64": "…"}}``; anything else is no regular file."""
    if isinstance(content, str):
        data = content.encode("utf-8", "surrogatepass")
        return Written(path=path, kind=WrittenKind.FILE, mode=0o644, data=data)
    if isinstance(content, dict) and isinstance(content.get("base64"), str):
        try:
            data = base64.b64decode(content["base64"], validate=True)
        except (binascii.Error, ValueError):
            return Written(path=path, kind=WrittenKind.ODD)
        return Written(path=path, kind=WrittenKind.FILE, mode=0o644, data=data)
    return Written(path=path, kind=WrittenKind.ODD)
