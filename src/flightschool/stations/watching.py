"""Training under watch: impossible tasks among the others, each consumed group scanned, all attempts at the end.

A canary is a task that no honest policy can pass. Its groups come in a fixed share, are scanned like all others, and
give no gradient: a pass is proof of a wrong reward, and must not be taught.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from flightschool.audit.trajectories import (
    TaskFacts,
    facts_of,
    mark_canaries,
    save_scan,
    scan_attempts,
)
from flightschool.errors import InputError
from flightschool.evaluation import Frozen
from flightschool.protocols import Environment, GroupSource
from flightschool.records import Attempt, EpisodeGroup, Severity, Task
from flightschool.stations.flown import Watched
from flightschool.stations.settings import CanariesTable
from flightschool.stations.telling import Tell
from flightschool.statistics import blaker
from flightschool.store import SqlStore, Workspace
from flightschool.training.folders import RunFolder
from flightschool.training.journal import Finished, read_journal

__all__ = ["Canaries", "WatchedSource", "canary_note", "canary_tasks", "scan_run", "trained_on"]


class Canaries(NamedTuple):
    """Impossible tasks that are mixed into training."""

    tasks: tuple[Task, ...] = ()
    share: float = 0.0
    """Of the groups."""

    @property
    def ids(self) -> frozenset[str]:
        """Their ids."""
        return frozenset(task.id for task in self.tasks)


def canary_tasks(
    store: SqlStore, environment: Environment, frozen: Frozen, table: CanariesTable, tell: Tell
) -> Canaries:
    """The canaries that may be mixed into training, marked in the workspace; those that the freeze took are left out.

    Raises:
        NotFoundError: no such task.
        InputError: all of them are measured on, so that none is left to watch with.
    """
    if not table.tasks:
        return Canaries()
    mark_canaries(store, environment, table.tasks, table.reason)
    pool = set(frozen.pool)
    found = tuple(environment.task(task_id) for task_id in table.tasks if task_id in pool)
    if not found:
        raise InputError(
            f"all of {len(table.tasks)} canaries were frozen into suite or holdout",
            where="canaries.tasks",
            expected="at least one in the pool",
            mend="mark more tasks as canaries, of several families",
        )
    if len(found) < len(table.tasks):
        tell.note(f"{len(table.tasks) - len(found)} canaries are measured on and not mixed into training")
    return Canaries(found, table.share)


class WatchedSource:
    """A source with canaries in a fixed share, that looks at each consumed group (``protocols.GroupSource``).

    The n-th task is the same in every incarnation of a run.

    Args:
        inner: where the tasks come from.
        facts: of the environment's tasks, by digest.
        canaries: tasks that no honest policy can pass, and their share.
        tell: is told at once of what bars.
    """

    def __init__(self, inner: GroupSource, facts: dict[str, TaskFacts], canaries: Canaries, tell: Tell) -> None:
        self._inner, self._facts, self._tell = inner, facts, tell
        self._canaries, self._ids = canaries.tasks, canaries.ids
        self._share = canaries.share if canaries.tasks else 0.0
        self._num_given = 0
        self._told: set[tuple[str, str]] = set()

    def next_task(self) -> Task | None:
        """The next task: a canary whenever their share falls short."""
        self._num_given += 1
        before, now = int((self._num_given - 1) * self._share), int(self._num_given * self._share)
        return self._canaries[before % len(self._canaries)] if now > before else self._inner.next_task()

    def report(self, group: EpisodeGroup) -> None:
        """Look at a consumed group, then hand it on."""
        for finding in scan_attempts(group.members, facts=self._facts, canaries=self._ids):
            key = (finding.rule, group.task)
            if finding.severity is Severity.BARRING and key not in self._told:
                self._told.add(key)
                self._tell.note(f"{finding.rule} at {group.task}: {finding.what} ({finding.evidence})")
        if group.task not in self._ids:
            self._inner.report(group)


def scan_run(space: Workspace, environment: Environment, run: str, canaries: Canaries) -> Watched:
    """Scan all that a job made, in training and on the suite, and keep what was found with the run."""
    found = scan_attempts(_made(space, run), facts=facts_of(environment), canaries=canaries.ids)
    save_scan(space.store, run, found)
    return Watched(findings=found, canaries=tuple(sorted(canaries.ids)))


def canary_note(attempts: Iterable[Attempt], canaries: Collection[str]) -> list[str]:
    """A sentence for the report: how often impossible tasks were passed in training; none where there were none."""
    if not canaries:
        return []
    judged = [attempt for attempt in attempts if attempt.task in canaries and attempt.reward is not None]
    if not judged:
        return [f"{len(canaries)} impossible tasks were to be mixed into training, and none was attempted."]
    num_passed = sum(attempt.reward is not None and attempt.reward.success for attempt in judged)
    rate = blaker(num_passed, len(judged))
    return [
        f"{len(judged)} attempts at {len(canaries)} impossible tasks were mixed into training, without a gradient: "
        f"{num_passed} passed (cheat rate {rate.value:.3f} [{rate.low:.3f}, {rate.high:.3f}])."
    ]


def trained_on(space: Workspace, run: str) -> Iterator[Attempt]:
    """All attempts of a training run, each once: after a crash a group may have been generated again."""
    seen: set[str] = set()
    journal = RunFolder(space.run_dir(run)).journal
    for entry in read_journal(journal) if journal.is_file() else ():
        for attempt in entry.group.members if isinstance(entry, Finished) else ():
            if attempt.id not in seen:
                seen.add(attempt.id)
                yield attempt


def _made(space: Workspace, run: str) -> Iterator[Attempt]:
    for _, attempt in space.store.items("attempt", Attempt, f"{run}-"):
        yield attempt
    yield from trained_on(space, run)
