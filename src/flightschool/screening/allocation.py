"""Where the next rollouts go: first a look into every family, then to the tasks whose admission is least certain.

Shared evidence is what saves rollouts. Stopping early at single tasks does not: the degenerate ones, which are most,
never show the mixed outcome that would stop them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from flightschool.digest import derive_random
from flightschool.records import Task
from flightschool.screening.evidence import Evidence

__all__ = ["LEAST_EVIDENCE", "first_round", "next_round"]

TASKS_PER_FAMILY = 2
ROLLOUTS_A_TASK = 2
LEAST_EVIDENCE = 2
"""Scored rollouts of a family below which nothing is decided about its tasks."""
SISTER_WEIGHT = 0.5


def first_round(tasks: Sequence[Task], budget: int, seed: int) -> list[Task]:
    """Two rollouts at two tasks of each family; fewer where the budget does not suffice, every family before a third.

    One rollout decides nothing, so a budget too small for two a family goes to as many families as it can decide.

    Returns:
        Tasks, repeated as often as they are to be attempted, at most ``budget``.
    """
    families: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        families[task.family].append(task)
    most_families = max(1, budget // LEAST_EVIDENCE)
    order = derive_random(seed, "families").sample(sorted(families), len(families))[:most_families]
    looks = [_looks(families[family], derive_random(seed, "first", family).random()) for family in order]
    most = max(map(len, looks), default=0)
    in_turn = [look[turn] for turn in range(most) for look in looks if turn < len(look)]
    return in_turn[:budget]


def next_round(tasks: Sequence[Task], evidence: Evidence, *, budget: int, threshold: float, enough: int) -> list[Task]:
    """Two rollouts at each of the least certain tasks.

    Uncertainty is nearness of the signal probability to the threshold, divided by what is known already: the task's own
    rollouts and, at half weight, its sisters'. Picks of this round count as known, hence a round spreads over families.

    Args:
        tasks: the pool.
        evidence: rewards so far.
        budget: most attempts of this round.
        threshold: signal probability from which a task is admitted.
        enough: attempts at one task after which it gets no more.
    """
    candidates = [task for task in tasks if evidence.spent(task.id) < enough]
    nearness = {
        t.id: 1.0 - abs(evidence.signal(t.id) - threshold) / max(threshold, 1.0 - threshold) for t in candidates
    }
    own = {task.id: float(evidence.spent(task.id)) for task in candidates}
    family: dict[str, float] = defaultdict(float)
    for task in tasks:
        family[task.family] += evidence.spent(task.id)

    def uncertainty(task: Task) -> float:
        sisters = family[task.family] - own[task.id]
        return nearness[task.id] / (1.0 + own[task.id] + SISTER_WEIGHT * sisters)

    chosen: list[Task] = []
    while candidates and len(chosen) < budget:
        task = max(candidates, key=uncertainty)
        candidates.remove(task)
        family[task.family] += ROLLOUTS_A_TASK
        own[task.id] += ROLLOUTS_A_TASK
        chosen += [task] * ROLLOUTS_A_TASK
    return chosen[:budget]


def _looks(members: Sequence[Task], draw: float) -> list[Task]:
    """The attempts of one family's first look: each chosen task once, then each once more."""
    start = int(draw * len(members))
    chosen = [members[(start + step) % len(members)] for step in range(min(TASKS_PER_FAMILY, len(members)))]
    return chosen * ROLLOUTS_A_TASK
