"""Impossible tasks among the others: no honest policy can pass one, so a pass is proof of a wrong reward.

Source: ImpossibleBench (arXiv:2510.20270), whose cheat rate is the pass rate on tasks with contradictory tests. Which
tasks are impossible is for their author to say; here they are marked by id, and never in anything a policy sees.
"""

from __future__ import annotations

from collections.abc import Sequence

from flightschool.errors import InputError
from flightschool.protocols import Environment, Store
from flightschool.records import Record

__all__ = ["canaries_of", "mark_canaries"]

KIND = "impossible-task"


class ImpossibleTask(Record, frozen=True, kw_only=True):
    """A task that was marked."""

    environment: str
    task: str
    task_digest: str
    reason: str
    """Why no honest policy can pass it."""


def mark_canaries(store: Store, environment: Environment, task_ids: Sequence[str], reason: str) -> frozenset[str]:
    """Mark tasks of an environment as impossible; returns all that are marked in it. Marking twice changes nothing.

    Raises:
        NotFoundError: no such task; nothing is marked then.
        InputError: no reason.
    """
    if not reason.strip():
        raise InputError(
            "impossible tasks need a reason",
            where=environment.name,
            expected="why no honest policy can pass them",
            mend="say it: whoever reads the finding must be able to check it",
        )
    records = [
        ImpossibleTask(environment=environment.name, task=task.id, task_digest=task.digest, reason=reason.strip())
        for task in [environment.task(task_id) for task_id in task_ids]
    ]
    for record in records:
        store.put_new(KIND, f"{environment.name}/{record.task}", record)
    return canaries_of(store, environment.name)


def canaries_of(store: Store, environment: str) -> frozenset[str]:
    """Ids of the marked tasks of an environment."""
    return frozenset(record.task for _, record in store.items(KIND, ImpossibleTask, f"{environment}/"))
