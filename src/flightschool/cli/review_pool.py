"""Stored attempts as reviews and scans read them: of a run or of an environment, from the store and from journals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flightschool.cli.references import is_path, open_environment, reopen_environment
from flightschool.cli.runbook import ROLLOUT_KIND
from flightschool.cli.votes import votes_on
from flightschool.errors import FlightschoolError, InputError, NotFoundError

if TYPE_CHECKING:
    from flightschool.audit.trajectories import TaskFacts, TrajectoryFinding
    from flightschool.governance import ReviewCandidate
    from flightschool.records import Attempt
    from flightschool.store import Workspace
    from flightschool.verification import VoteAgreement

__all__ = ["By", "Pool", "find_attempt"]

By = Literal["stratum", "family", "none"]
UNKNOWN = "unknown"
"""Stratum of attempts at tasks that no environment of this workspace knows any more."""


class Pool:
    """Attempts of one target, read once from first to last; what is known of their tasks is gathered on the way.

    Args:
        space: the workspace.
        target: a run, or an environment by name or path.
        environment: whether the target is an environment even where a run has its name.

    Raises:
        InputError: nothing was attempted under this name.
    """

    def __init__(self, space: Workspace, target: str, *, environment: bool = False) -> None:
        self._space = space
        self.is_run = not environment and not is_path(target) and self._knows_run(target)
        self.name = open_environment(target, space).name if is_path(target) else target
        self.facts: dict[str, TaskFacts] = {}
        """By digest of the task."""
        self.strangers: dict[str, str] = {}
        """Environments that could not be opened again, and why."""
        self._opened: set[tuple[str, str]] = set()
        if next(self._stored(), None) is None:
            raise InputError(
                f"no attempts of {target!r} are kept here",
                where=target,
                expected="a run, or an environment that was attempted in this workspace",
                mend="see flightschool runs list, or roll out: flightschool rollout",
            )

    def environments(self) -> tuple[str, ...]:
        """Names of the environments seen so far."""
        return tuple(sorted({name for name, _ in self._opened}))

    def digests(self) -> tuple[str, ...]:
        """Digests of the environments seen so far."""
        return tuple(sorted({digest for _, digest in self._opened}))

    def attempts(self) -> Iterator[Attempt]:
        """All attempts, each id once."""
        for attempt in self._once():
            self._learn(attempt)
            yield attempt

    def votes(self) -> tuple[VoteAgreement, ...]:
        """How far the voices behind checks agree over all attempts: those of a sheet are no sample of it."""
        return votes_on(self._once())

    def candidates(self, by: By, seed: int) -> tuple[list[ReviewCandidate], int]:
        """Attempts that may be drawn for review, and the number of those without a verdict."""
        from flightschool.audit.trajectories import scan_attempts, suspicious_passes
        from flightschool.governance import ReviewCandidate

        rows: list[tuple[str, str, str, bool, bool]] = []
        num_unjudged = 0

        def noted() -> Iterator[Attempt]:
            nonlocal num_unjudged
            for attempt in self.attempts():
                if attempt.reward is None:
                    num_unjudged += 1
                else:
                    differs = attempt.verdict is not None and attempt.verdict.disagreement
                    rows.append((attempt.id, attempt.task, self._stratum(attempt, by), attempt.reward.success, differs))
                yield attempt

        findings = scan_attempts(noted(), facts=self.facts, canaries=self._canaries(), seed=seed)
        odd = suspicious_passes(findings, {row[0] for row in rows if row[3]})
        made = [
            ReviewCandidate(
                attempt=key,
                task=task,
                stratum=stratum,
                passed=passed,
                why="suspicious" if key in odd else "disagreement" if differs else "",
            )
            for key, task, stratum, passed, differs in rows
        ]
        return made, num_unjudged

    def scan(
        self, canaries: tuple[str, ...], seed: int
    ) -> tuple[tuple[TrajectoryFinding, ...], int, int, tuple[str, ...]]:
        """Findings, numbers of attempts and passes, and canaries at which no attempt was made."""
        from flightschool.audit.trajectories import scan_attempts

        counts = [0, 0]
        marked = self._canaries() | frozenset(canaries)
        untried = set(marked)

        def counted() -> Iterator[Attempt]:
            for attempt in self.attempts():
                counts[0] += 1
                untried.discard(attempt.task)
                counts[1] += attempt.reward is not None and attempt.reward.success
                yield attempt

        findings = scan_attempts(counted(), facts=self.facts, canaries=marked, seed=seed)
        return findings, counts[0], counts[1], tuple(sorted(untried))

    def _canaries(self) -> frozenset[str]:
        from flightschool.audit.trajectories import canaries_of

        first = next(self._stored())
        return canaries_of(self._space.store, first.environment)

    def _stratum(self, attempt: Attempt, by: By) -> str:
        if by == "none":
            return "all"
        facts = self.facts.get(attempt.task_digest)
        if facts is None:
            return UNKNOWN
        return facts.family if by == "family" else facts.stratum

    def _learn(self, attempt: Attempt) -> None:
        """Open the attempt's environment once, for what its sealed side tells."""
        from flightschool.audit.trajectories import facts_of

        key = (attempt.environment, attempt.environment_digest)
        if key in self._opened:
            return
        self._opened.add(key)
        if self._space.store.has("terminal-episode", attempt.id):
            return  # a task folder: nothing of its side is kept here
        try:
            self.facts.update(facts_of(reopen_environment(*key, self._space)))
        except FlightschoolError as error:
            self.strangers[attempt.environment] = error.what

    def _once(self) -> Iterator[Attempt]:
        seen: set[str] = set()
        for attempt in self._stored():
            if attempt.id in seen:
                continue  # a resumed training generates a group again under its old ids; the first one is shown
            seen.add(attempt.id)
            yield attempt

    def _stored(self) -> Iterator[Attempt]:
        from flightschool.records import Attempt

        prefix = f"{self.name}:" if self.is_run else ""
        for _, attempt in self._space.store.items("attempt", Attempt, prefix):
            if self.is_run or attempt.environment == self.name:
                yield attempt
        for journal in self._journals():
            for attempt in _journalled(journal):
                if self.is_run or attempt.environment == self.name:
                    yield attempt

    def _journals(self) -> list[Path]:
        if self.is_run:
            return [self._space.run_dir(self.name) / "journal.bin"]
        return sorted((self._space.data / "runs").glob("*/journal.bin"))

    def _knows_run(self, name: str) -> bool:
        store = self._space.store
        known = store.has(ROLLOUT_KIND, name) or (self._space.run_dir(name) / "journal.bin").is_file()
        return known or bool(store.keys("attempt", f"{name}:"))


def _journalled(journal: Path) -> Iterator[Attempt]:
    from flightschool.training.journal import Finished, read_journal

    if journal.is_file():
        for entry in read_journal(journal):
            if isinstance(entry, Finished):
                yield from entry.group.members


def find_attempt(space: Workspace, key: str) -> Attempt:
    """A recorded attempt: of a rollout from the store, of a training from its journal. Raises ``NotFoundError``."""
    from flightschool.records import Attempt

    run = key.partition(":")[0]
    if not space.store.has("attempt", key) and run and not is_path(run):
        for attempt in _journalled(space.run_dir(run) / "journal.bin"):
            if attempt.id == key:
                return attempt
    try:
        return space.store.get("attempt", key, Attempt)
    except NotFoundError as error:
        raise NotFoundError(
            f"no attempt {key!r}",
            where=error.where,
            expected="an id as review list and runs show print it",
            mend=error.mend or "see flightschool runs list",
        ) from error
