"""The two states of one evidence, each opened and compared once for all checks of a verdict."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType

from flightschool.models import ChatClient, ChatModel, parse_endpoint
from flightschool.records import CommandCheck, Evidence, JudgeCheck
from flightschool.verification.commands import IsolatedCommands
from flightschool.verification.differences import Change, json_changes, sqlite_changes
from flightschool.verification.images import is_sqlite, sealed
from flightschool.verification.isolated import VerifierRun

__all__ = ["Resources", "States"]


@contextmanager
def _open_model(rule: JudgeCheck) -> Iterator[ChatModel]:
    with ChatClient(parse_endpoint(rule.endpoint, key_env=rule.key_env), timeout_s=rule.timeout_s) as client:
        yield client


@dataclass(frozen=True)
class Resources:
    """What checks need beside the evidence; nothing is started before the first check that needs it is judged."""

    run_command: Callable[[CommandCheck, bytes], VerifierRun] = field(default_factory=IsolatedCommands)
    """Runs a test command on an end state. Raises ``InfrastructureError``."""
    open_model: Callable[[JudgeCheck], AbstractContextManager[ChatModel]] = _open_model
    """The model that a judge check names. Raises ``InputError`` without its key in the environment."""


class States:
    """What the checks of one verdict look at; a context manager.

    Queries of checks see the end state alone: with the initial one attached, a table missing from the first would be
    found in the second.
    """

    def __init__(self, evidence: Evidence, resources: Resources | None = None) -> None:
        self.evidence = evidence
        self.resources = resources or Resources()
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
