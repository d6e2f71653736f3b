"""Finished audits of folders, one JSON line each, so that a run that was killed goes on where it stood.

A line is keyed by the folder's digest, the auditor's version and whether only text was read: a folder that changed, or
an auditor that learned something, is audited anew. A line that a kill cut short is skipped.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from flightschool.audit.terminal.records import FolderAudit
from flightschool.records import Record

__all__ = ["AUDITOR", "Journal"]

AUDITOR: Final = 2
"""Raised when probes change, so that older audits are made again."""


SYNC_S: Final = 1.0
"""Seconds between two waits for the disk: one wait an audit would take longer than reading a folder."""


class _Line(Record, frozen=True, kw_only=True):
    auditor: int
    mode: str
    audit: FolderAudit


class Journal:
    """Keeps audits in one file. Only places in the file are held in memory, not the audits.

    Args:
        path: the file; made at the first audit.
        mode: how thorough the audits are; audits of another mode are not found.
        fresh: forget what is there.
    """

    def __init__(self, path: Path, mode: str, *, fresh: bool = False) -> None:
        self._path = path
        self._mode = mode
        self._places: dict[tuple[str, str], int] = {}
        self._is_whole = False
        """Whether the file is known to end with a line's end."""
        self._synced = 0.0
        if fresh:
            path.unlink(missing_ok=True)
        elif path.is_file():
            self._places = dict(self._read())

    def _read(self) -> Iterator[tuple[tuple[str, str], int]]:
        place = 0
        with self._path.open("rb") as file:
            for line in file:
                try:
                    kept = msgspec.json.decode(line, type=_Line)
                except msgspec.DecodeError:  # cut short, or of an older shape
                    kept = None
                if kept is not None and kept.auditor == AUDITOR and kept.mode == self._mode:
                    yield (kept.audit.digest, kept.audit.id), place
                place += len(line)

    def find(self, digest: str, id_: str) -> FolderAudit | None:
        """The audit of a folder as it is now; None: there is none yet."""
        place = self._places.get((digest, id_))
        if place is None:
            return None
        with self._path.open("rb") as file:
            file.seek(place)
            return msgspec.json.decode(file.readline(), type=_Line).audit

    def add(self, audit: FolderAudit) -> None:
        """Keep an audit. A killed process loses none; a machine that loses its power, those of the last second."""
        line = msgspec.json.encode(_Line(auditor=AUDITOR, mode=self._mode, audit=audit)) + b"\n"
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
        self._places[audit.digest, audit.id] = place


def _ends_well(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def journal_name(named: str) -> str:
    """A file's name for what a user named."""
    return hashlib.sha256(named.encode()).hexdigest()[:16] + ".jsonl"
