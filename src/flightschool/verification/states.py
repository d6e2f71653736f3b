"""The two states of one evidence, each opened and compared once for all checks of a verdict."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType

from flightschool.records import Evidence
from flightschool.verification.differences import Change, json_changes, sqlite_changes
from flightschool.verification.images import is_sqlite, sealed

__all__ = ["States"]


class States:
    """What the checks of one verdict look at; a context manager.

    Queries of checks see the end state alone: with the initial one attached, a table missing from the first would be
    found in the second.
    """

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self._opened = ExitStack()
        self._end: sqlite3.Connection | None = None
        self._changes: Mapping[str, Change] | None = None

    def __enter__(self) -> States:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    @property
    def are_sqlite(self) -> bool:
        """Whether either state is an SQLite image (both must be, then)."""
        return is_sqlite(self.evidence.end_state) or is_sqlite(self.evidence.initial_state)

    def end(self) -> sqlite3.Connection:
        """The end state as an SQLite connection (see ``images.sealed``)."""
        if self._end is None:
            self._end = self._opened.enter_context(sealed(self.evidence.end_state))
        return self._end

    def changes(self) -> Mapping[str, Change]:
        """What differs from the initial state, by table (see ``differences``)."""
        if self._changes is None:
            states = (self.evidence.initial_state, self.evidence.end_state)
            self._changes = sqlite_changes(self.end(), *states) if self.are_sqlite else json_changes(*states)
        return self._changes
