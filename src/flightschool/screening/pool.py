"""The training pool: the only thing that screening accepts, and nothing of a suite can be in it.

Filters by pass rate and re-weighting belong to pools. A suite has no such operations and is no pool: handing one over
is a type error, and a pool is checked against every suite when it is made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from flightschool.errors import GateError, InputError
from flightschool.governance import AuditLog, override
from flightschool.lineage import overlap
from flightschool.protocols import Environment, Store
from flightschool.records import Suite, Task

__all__ = ["TrainingPool"]

MOST_NAMED = 8


class TrainingPool:
    """Tasks that may be screened and trained on.

    Args:
        tasks: candidates.
        suites: everything that is or will be measured on, holdouts included; at least one.
        environment: resolves the suites' tasks, so that near duplicates are seen too.

    Raises:
        TypeError: ``tasks`` is a suite.
        GateError: no suite was frozen, or a task overlaps with one (same task, same family, nearly the same wording).
    """

    def __init__(self, tasks: Sequence[Task], *, suites: Sequence[Suite], environment: Environment) -> None:
        self._tasks = _checked(tasks)
        if not suites:
            raise GateError(
                "no suite is frozen",
                where="training pool",
                expected="a suite frozen before training",
                mend="freeze a suite first, or make an unmeasured pool with a name and a reason",
            )
        for suite in suites:
            _refuse_overlap(self._tasks, suite, environment)

    @classmethod
    def unmeasured(cls, tasks: Sequence[Task], *, store: Store, actor: str, reason: str) -> TrainingPool:
        """A pool without a suite to be measured on: an override, written to the audit log.

        Raises:
            InputError: no actor or no reason.
        """
        pool = cls.__new__(cls)
        pool._tasks = _checked(tasks)
        override(AuditLog(store), "freeze", f"a training pool of {len(pool._tasks)} tasks", actor, reason)
        return pool

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks, in the order given."""
        return self._tasks

    def only(self, task_ids: Collection[str]) -> TrainingPool:
        """The part with these ids; what was checked stays checked."""
        part = TrainingPool.__new__(TrainingPool)
        part._tasks = tuple(task for task in self._tasks if task.id in task_ids)
        return part

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)


def _checked(tasks: Sequence[Task]) -> tuple[Task, ...]:
    wrong = next((item for item in tasks if not isinstance(item, Task)), None) if isinstance(tasks, Sequence) else tasks
    if wrong is not None:
        raise TypeError(f"a training pool is made of tasks, not of a {type(wrong).__name__}: suites never train")
    ids = [task.id for task in tasks]
    if len(set(ids)) < len(ids):
        twice = next(task_id for task_id in ids if ids.count(task_id) > 1)
        raise InputError(
            f"task {twice!r} stands twice in the pool",
            where="training pool",
            expected="distinct tasks",
            mend="drop one",
        )
    return tuple(tasks)


def _refuse_overlap(tasks: Sequence[Task], suite: Suite, environment: Environment) -> None:
    same_environment = suite.environment == environment.name  # names of families and tasks mean nothing elsewhere
    families = {family for share in suite.strata for family in share.families} if same_environment else set()
    digests = set(suite.task_digests.values())
    shared = [task.id for task in tasks if task.family in families or task.digest in digests]
    if not shared and same_environment:
        measured = [environment.task(task_id) for task_id in suite.task_digests]
        shared = [str(found) for found in overlap(tasks, measured)]
    if shared:
        more = f" and {len(shared) - MOST_NAMED} more" if len(shared) > MOST_NAMED else ""
        raise GateError(
            f"{len(shared)} task(s) overlap with suite {suite.name!r}: {', '.join(shared[:MOST_NAMED])}{more}",
            where="training pool",
            expected="families that no suite and no holdout touches",
            mend="train on the pool that the freeze left over",
        )
