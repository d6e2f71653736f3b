"""Where groups come from: weighted, shuffled rounds over a training pool. Deterministic by seed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from flightschool.digest import derive_random
from flightschool.errors import GateError, InputError
from flightschool.protocols import GroupSource
from flightschool.records import EpisodeGroup, Split, Task

__all__ = ["PoolSource", "Rewound"]


class PoolSource:
    """A ``GroupSource`` over screened tasks.

    A round holds every task with its share of copies (a weight of 2 comes twice as often as one of 1; fractions come
    in that share of rounds, not all in the same one) in an order drawn from the seed and the number of the round alone.
    The copies of a family are spread evenly over the round, since a short run should meet what it has weight for:
    families of equal share come once each before the second of any. The n-th task is thus the same in every
    incarnation of a run.

    Args:
        tasks: the pool.
        split: split of each task by id; anything but ``pool`` is refused.
        weights: weight by task id; 1 for tasks not named.
        seed: of the order.
        num_rounds: rounds after which the source is dry; None: never.

    Raises:
        InputError: no tasks, or a weight that is not positive.
        GateError: a task is of a suite or a holdout.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        split: Mapping[str, Split] | None = None,
        weights: Mapping[str, float] | None = None,
        seed: int = 0,
        num_rounds: int | None = None,
    ) -> None:
        if not tasks:
            raise InputError("no task to train on", expected="at least one screened task", mend="screen the pool")
        for task in tasks:
            if split is not None and split.get(task.id, Split.POOL) is not Split.POOL:
                raise GateError(
                    f"task {task.id!r} belongs to a {split[task.id]}",
                    where="training source",
                    expected="tasks of the pool",
                    mend="train on the pool only; suites are for measuring",
                )
        self._tasks = list(tasks)
        self._weights = [float((weights or {}).get(task.id, 1.0)) for task in tasks]
        if not all(weight > 0.0 for weight in self._weights):
            raise InputError("a task weight is not positive", expected="weights above 0", mend="leave the task out")
        # Without a phase of its own, every task of weight 0.4 would be missing from the rounds 0 and 1, and come in 2.
        self._phases = [derive_random("training-source-phase", seed, task.id).random() for task in tasks]
        self._seed = seed
        self._num_rounds = num_rounds
        self._round = -1
        self._queue: list[Task] = []
        self.num_consumed: dict[str, int] = {}
        """Groups consumed by task id."""

    def next_task(self) -> Task | None:
        """The next task, or None when all rounds are done."""
        while not self._queue:
            self._round += 1
            if self._num_rounds is not None and self._round >= self._num_rounds:
                return None
            self._queue = self._shuffled_round(self._round)
        return self._queue.pop(0)

    def report(self, group: EpisodeGroup) -> None:
        """Count a consumed group."""
        self.num_consumed[group.task] = self.num_consumed.get(group.task, 0) + 1

    def _shuffled_round(self, number: int) -> list[Task]:
        order = [
            task
            for task, weight, phase in zip(self._tasks, self._weights, self._phases, strict=True)
            for _ in range(int((number + 1) * weight + phase) - int(number * weight + phase))
        ]
        random = derive_random("training-source", self._seed, number)
        random.shuffle(order)
        families: dict[str, list[Task]] = defaultdict(list)
        for task in order:
            families[task.family].append(task)
        due: list[tuple[float, Task]] = []
        for members in families.values():
            offset = random.random()
            due += [((turn + offset) / len(members), task) for turn, task in enumerate(members)]
        return [task for _, task in sorted(due, key=lambda row: row[0])]


class Rewound:
    """A source that can be gone through again from any place: tasks that were taken are remembered.

    Args:
        source: a fresh source.
    """

    def __init__(self, source: GroupSource) -> None:
        self._source = source
        self._taken: list[Task] = []
        self._place = 0

    def rewind(self, place: int) -> None:
        """Go on with the task of this ordinal; a source that ends before it gives none."""
        while len(self._taken) < place and (task := self._source.next_task()) is not None:
            self._taken.append(task)
        self._place = place

    def next_task(self) -> Task | None:
        """The task at this place, or None when the source is dry."""
        if self._place >= len(self._taken):
            fresh = self._source.next_task()
            if fresh is None:
                return None
            self._taken.append(fresh)
        self._place += 1
        return self._taken[self._place - 1]

    def report(self, group: EpisodeGroup) -> None:
        """Told on."""
        self._source.report(group)
