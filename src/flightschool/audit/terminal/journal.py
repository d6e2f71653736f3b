"""Finished audits of folders, found by the folder's digest: a run that was killed goes on where it stood."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from flightschool.audit.journal import Lines, journal_name
from flightschool.audit.terminal.records import FolderAudit

__all__ = ["AUDITOR", "Journal", "journal_name"]

AUDITOR: Final = 7
"""Raised when probes change, so that older audits are made again."""


class Journal:
    """Keeps audits of folders in one file (see ``Lines``).

    Args:
        path: the file; made at the first audit.
        mode: how thorough the audits are; audits of another mode are not found.
        fresh: forget what is there.
    """

    def __init__(self, path: Path, mode: str, *, fresh: bool = False) -> None:
        self._lines = Lines(path, FolderAudit, auditor=AUDITOR, mode=mode, fresh=fresh)

    def find(self, digest: str, id_: str) -> FolderAudit | None:
        """The audit of a folder as it is now; None: there is none yet."""
        return self._lines.find(f"{digest} {id_}")

    def add(self, audit: FolderAudit) -> None:
        """Keep an audit. A killed process loses none."""
        self._lines.add(f"{audit.digest} {audit.id}", audit)
