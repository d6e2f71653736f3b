"""Finished audits, one JSON line each, so that a run that was killed goes on where it stood.

A line is found by its key (digests of what was audited), the auditor's version and how thorough the audit was: what
changed, or an auditor that learned something, is audited anew. A line that a kill cut short is skipped.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from flightschool.records import Record

__all__ = ["Lines", "journal_name"]

SYNC_S: Final = 1.0
"""Seconds between two waits for the disk: one wait an audit would take longer than reading a folder."""
KeptT = TypeVar("KeptT", bound=Record)


class _Head(Record, frozen=True, kw_only=True):
    """What a line says of itself; what was kept is read only when it is asked for."""

    auditor: int
    mode: str
    key: str
    kept: msgspec.Raw


class Lines(Generic[KeptT]):
    """Keeps records in one file. Only places in the file are held in memory, not the records.

    Args:
        path: the file; made at the first record.
        kind: type of the records.
        auditor: version of what makes the records; those of another version are not found.
        mode: how thorough the audits are; those of another mode are not found.
        fresh: forget what is there.
    """

    def __init__(self, path: Path, kind: type[KeptT], *, auditor: int, mode: str, fresh: bool = False) -> None:
        self._path = path
        self._kind = kind
        self._auditor = auditor
        self._mode = mode
        self._places: dict[str, int] = {}
        self._is_whole = False
        """Whether the file is known to end with a line's end."""
        self._synced = 0.0
        if fresh:
            self.forget()
        elif path.is_file():
            self._places = dict(self._read())

    def _read(self) -> Iterator[tuple[str, int]]:
        place = 0
        with self._path.open("rb") as file:
            for line in file:
                try:
                    head = msgspec.json.decode(line, type=_Head)
                except msgspec.DecodeError:  # cut short, or of an older shape
                    head = None
                if head is not None and (head.auditor, head.mode) == (self._auditor, self._mode):
                    yield head.key, place
                place += len(line)

    def find(self, key: str) -> KeptT | None:
        """The record of a key; None: there is none yet, or none that can be read."""
        place = self._places.get(key)
        if place is None:
            return None
        with self._path.open("rb") as file:
            file.seek(place)
            head = msgspec.json.decode(file.readline(), type=_Head)
        try:
            return msgspec.json.decode(head.kept, type=self._kind)
        except msgspec.DecodeError:  # a record of an older shape
            return None

    def add(self, key: str, kept: KeptT) -> None:
        """Keep a record. A killed process loses none; a machine that loses its power, those of the last second."""
        raw = msgspec.Raw(msgspec.json.encode(kept))
        line = msgspec.json.encode(_Head(auditor=self._auditor, mode=self._mode, key=key, kept=raw)) + b"\n"
        if not self._is_whole:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.is_file() and self._path.stat().st_size and not _ends_well(self._path):
                line = b"\n" + line
            self._is_whole = True
        with self._path.open("ab") as file:
            place = file.tell() + (line[:1] == b"\n")
            file.write(line)
            file.flush()
            if time.monotonic() - self._synced > SYNC_S:
                os.fsync(file.fileno())
                self._synced = time.monotonic()
        self._places[key] = place

    def forget(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
        self._places.clear()
        self._is_whole = False


def _ends_well(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def journal_name(named: str) -> str:
    """A file's name for what a user named."""
    return hashlib.sha256(named.encode()).hexdigest()[:16] + ".jsonl"
