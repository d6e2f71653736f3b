"""What went wrong in a run and was mended without help: told at once, kept in ``incidents.jsonl``. No torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from flightschool.records import Record

__all__ = ["Incident", "Incidents", "NoteCallback", "read_incidents"]

NoteCallback = Callable[[str], None]
"""Is told every incident in one sentence."""


class Incident(Record, frozen=True, kw_only=True):
    """One line of ``incidents.jsonl``."""

    at: float
    """Unix time."""
    kind: str
    """``restart``, ``retry``, ``straggler``, ``hang``, ``tracker``, ``rejected``."""
    what: str
    """Who failed, and what is done about it."""


class Incidents:
    """Appends to the file and tells whoever watches."""

    def __init__(self, path: Path, note: NoteCallback | None = None) -> None:
        self._path, self._note = path, note

    def add(self, kind: str, what: str) -> None:
        """Keep one incident."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(Incident(at=time.time(), kind=kind, what=what)) + b"\n")
        if self._note is not None:
            self._note(what)


def read_incidents(path: Path) -> tuple[Incident, ...]:
    """All incidents of a run, oldest first; a line that a killed writer tore is left out."""
    if not path.is_file():
        return ()
    lines = path.read_bytes().splitlines()
    return tuple(msgspec.json.decode(line, type=Incident) for line in lines if line.endswith(b"}"))
