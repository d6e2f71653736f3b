"""What went wrong in a run and was mended without help: told at once, kept in ``incidents.jsonl``. No torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from flightschool.records import Record
from flightschool.training.lines import LineFile, UnreadableLine, read_lines

__all__ = ["Incident", "Incidents", "NoteCallback", "read_incidents"]

NoteCallback = Callable[[str], None]
"""Is told every incident in one sentence."""


class Incident(Record, frozen=True, kw_only=True):
    """One line of ``incidents.jsonl``."""

    at: float
    """Unix time."""
    kind: str
    """``restart``, ``retry``, ``straggler``, ``hang``, ``tracker``, ``rejected``, ``checkpoint``."""
    what: str
    """Who failed, and what is done about it."""


_decode = msgspec.json.Decoder(Incident).decode


class Incidents:
    """Appends to the file and tells whoever watches."""

    def __init__(self, path: Path, note: NoteCallback | None = None) -> None:
        self._lines, self._note = LineFile(path), note

    def add(self, kind: str, what: str) -> None:
        """Keep one incident."""
        self._lines.append(msgspec.json.encode(Incident(at=time.time(), kind=kind, what=what)))
        if self._note is not None:
            self._note(what)


def read_incidents(path: Path, unreadable: UnreadableLine | None = None) -> tuple[Incident, ...]:
    """All incidents of a run, oldest first. See ``read_lines`` for lines that are damaged."""
    return tuple(read_lines(path, _decode, unreadable))
