"""Which task an episode is about: by id, by split and position, or by seed."""

from __future__ import annotations

import difflib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flightschool.digest import derive_seed
from flightschool.errors import InputError
from flightschool.protocols import Environment
from flightschool.records import Json, Task

__all__ = ["ALL", "Choice", "TaskDesk", "shown_task"]

ALL = "all"
"""Split of every task that is served."""
_MOST_RANDOM = 1 << 31


@dataclass(frozen=True)
class Choice:
    """A task with the seed of its latencies and weather."""

    task: Task
    seed: int


class TaskDesk:
    """The tasks that a server offers, in named splits. Immutable.

    Args:
        environment: what is served.
        splits: split → task ids; ``all`` is added. The first one is what a reset without a split draws from.

    Raises:
        InputError: no task is left to serve.
    """

    def __init__(self, environment: Environment, splits: Mapping[str, Sequence[str]] | None = None) -> None:
        self.environment = environment
        every = tuple(task.id for task in environment.tasks())
        named = {name: tuple(ids) for name, ids in (splits or {}).items()}
        self.splits: dict[str, tuple[str, ...]] = {**named, ALL: named.get(ALL, every)}
        self.default = next(iter(self.splits))
        if not self.splits[self.default]:
            raise InputError(
                f"split {self.default!r} holds no task",
                where=environment.name,
                expected="at least one task to serve",
                mend="see flightschool env show, and which tasks were found sound by flightschool audit",
            )

    def tasks(self, split: str) -> tuple[Task, ...]:
        """The tasks of a split. Raises ``InputError`` when there is no such split."""
        return tuple(self.environment.task(task_id) for task_id in self._ids(split))

    def at(self, split: str, index: int) -> Task:
        """One task of a split. Raises ``IndexError`` when it has none there, ``InputError`` without such a split."""
        ids = self._ids(split)
        if index < 0:
            raise IndexError(index)
        return self.environment.task(ids[index])

    def choose(self, asked: Mapping[str, Json]) -> Choice:
        """The task that a reset asks for: ``task_id``, else ``split`` and ``index``, else ``seed``, else any.

        A seed names a task of the split (its position is the seed modulo their number) *and* its latencies and faults,
        so equal seeds give equal episodes.

        Raises:
            InputError: what is asked for does not exist, or is of another type.
        """
        seed = _whole(asked, "seed")
        split = _text(asked, "split") or self.default
        task_id, index = _text(asked, "task_id"), _whole(asked, "index")
        if task_id is not None:
            if task_id not in self.splits[ALL]:
                near = difflib.get_close_matches(task_id, self.splits[ALL], n=1)
                raise InputError(
                    f"there is no task {task_id!r}",
                    where="reset",
                    expected="the id of a task that is served",
                    mend=f"did you mean {near[0]!r}?" if near else "list them with the Task API",
                )
            chosen = self.environment.task(task_id)
        elif index is not None:
            try:
                chosen = self.at(split, index)
            except IndexError:
                raise InputError(
                    f"split {split!r} has no task {index}",
                    where="reset",
                    expected=f"an index below {len(self._ids(split))}",
                    mend="ask num_tasks first",
                ) from None
        else:
            ids = self._ids(split)
            drawn = secrets.randbelow(_MOST_RANDOM) if seed is None else seed
            return Choice(self.environment.task(ids[drawn % len(ids)]), drawn)
        # without a seed, equal tasks still meet equal weather: a group of attempts at one task is comparable
        return Choice(chosen, derive_seed("served", chosen.id) if seed is None else seed)

    def _ids(self, split: str) -> tuple[str, ...]:
        if split not in self.splits:
            raise InputError(
                f"there is no split {split!r}",
                where=self.environment.name,
                expected=f"one of {', '.join(self.splits)}",
                mend="list them with the Task API",
            )
        if not self.splits[split]:
            raise InputError(f"split {split!r} is empty", where=self.environment.name, expected="tasks", mend="audit")
        return self.splits[split]


def shown_task(task: Task, index: int, split: str) -> dict[str, Json]:
    """A task as foreign programs see it. The sealed side (checks, oracle) is no part of a ``Task``."""
    return {
        "id": task.id,
        "index": index,
        "split": split,
        "family": task.family,
        "stratum": task.stratum,
        "instruction": task.instruction,
        "max_turns": task.max_turns,
        "digest": task.digest,
    }


def _whole(asked: Mapping[str, Json], name: str) -> int | None:
    value = asked.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63):
        return value
    raise InputError(f"{name} is {value!r}", where=name, expected="a whole number from 0", mend="correct it")


def _text(asked: Mapping[str, Json], name: str) -> str | None:
    value = asked.get(name)
    if value is None or (isinstance(value, str) and value):
        return value
    raise InputError(f"{name} is {value!r}", where=name, expected="a text", mend="correct it")
