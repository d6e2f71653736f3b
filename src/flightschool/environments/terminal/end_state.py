"""The end state of an attempt: what the policy wrote over its image, as one blob that can be graded again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import msgspec
import zstandard

from flightschool.digest import digest
from flightschool.errors import InputError
from flightschool.records import Record
from flightschool.sandbox.written import Written, WrittenKind

__all__ = ["EndState", "above", "beneath"]

_MAGIC = b"fs-end-state-1\n"
MOST_BYTES = 4 << 30


class EndState(Record, frozen=True, kw_only=True):
    """Paths in order, a folder before what it holds."""

    entries: tuple[Written, ...]

    def then(self, later: Iterable[Written]) -> EndState:
        """The state with later changes over it, as if both had been written in one go."""
        changes = list(later)
        hidden = {entry.path for entry in changes if entry.kind is not WrittenKind.FOLDER or entry.opaque}
        known = {entry.path: entry for entry in self.entries if hidden.isdisjoint(above(entry.path))}
        before = {entry.path: entry for entry in self.entries}
        for entry in changes:
            old = before.get(entry.path)
            hides = old is not None and (old.kind is WrittenKind.GONE or old.opaque)
            if entry.kind is WrittenKind.FOLDER and hides:
                entry = msgspec.structs.replace(entry, opaque=True)
            known[entry.path] = entry
        # A folder sorts before what it holds only if its own end counts as the lowest of all characters.
        return EndState(entries=tuple(known[path] for path in sorted(known, key=lambda path: path.split("/"))))

    @property
    def digest(self) -> str:
        """Digest of names, kinds, modes, owners and content. Times do not enter: equal work has equal digests."""
        return digest([_identity(entry) for entry in self.entries])

    def to_bytes(self) -> bytes:
        """The blob: compressed, times included."""
        return _MAGIC + zstandard.ZstdCompressor(level=3).compress(msgspec.msgpack.encode(self))

    @classmethod
    def from_bytes(cls, blob: bytes) -> EndState:
        """A state from its blob.

        Raises:
            InputError: it is no such blob.
        """
        if not blob.startswith(_MAGIC):
            raise InputError("no end state of a terminal task", where="blob", expected="a kept end state", mend="check")
        try:
            data = zstandard.ZstdDecompressor().decompress(blob[len(_MAGIC) :], max_output_size=MOST_BYTES)
            return msgspec.msgpack.decode(data, type=cls)
        except (zstandard.ZstdError, msgspec.DecodeError) as error:
            raise InputError(
                f"an end state that cannot be read: {error}", where="blob", expected="a kept end state", mend="check"
            ) from error


def _identity(entry: Written) -> list[object]:
    content = hashlib.sha256(entry.data).hexdigest() if entry.kind is WrittenKind.FILE else entry.target
    return [entry.path, entry.kind.value, entry.mode, entry.uid, entry.gid, entry.opaque, content]


def above(path: str) -> Iterator[str]:
    """The folders above a path, the topmost last."""
    while len(path := path.rpartition("/")[0]) > 0:
        yield path


def beneath(path: str, folder: str) -> bool:
    """Whether a path is the folder or lies below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
