"""The split into pool, suite and holdout: stratum by stratum, whole families, and blind to results.

Tasks of one family share wording, condition structure and world; an agent trained on one knows the others. So a family
goes to one side as a whole. The function sees tasks and a seed and nothing else: no pass rate can sway the measure.

Families are ordered by a digest of (seed, stratum, family) and the order is cut by quotas. Hence the split does not
depend on the order of rows or on other strata, and a new family moves few others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from flightschool.digest import derive_seed
from flightschool.errors import InputError
from flightschool.records import Split, Task

__all__ = ["families_of", "split_by_family", "strata_of"]

FEWEST_FAMILIES = 3
"""From this many families on, a stratum gives at least one to each side that was asked for."""


def strata_of(tasks: Sequence[Task]) -> dict[str, tuple[Task, ...]]:
    """Stratum → its tasks, both in the order of the tasks."""
    strata: defaultdict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        strata[task.stratum].append(task)
    return {name: tuple(members) for name, members in strata.items()}


def families_of(tasks: Sequence[Task]) -> dict[str, tuple[Task, ...]]:
    """Family → its tasks, both in the order of the tasks."""
    families: defaultdict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        families[task.family].append(task)
    return {name: tuple(members) for name, members in families.items()}


def split_by_family(tasks: Sequence[Task], *, suite: float, holdout: float, seed: int) -> dict[str, Split]:
    """Task id → split, in the order of the tasks.

    Args:
        tasks: all tasks; ids differ, and each family lies in one stratum.
        suite: share of each stratum's families that is frozen for measuring.
        holdout: share that is sealed until acceptance. What is left is the pool.
        seed: equal seeds give equal splits.

    With F families in a stratum each side gets its share of F rounded to a neighbouring whole number, except that from
    three families on no side that was asked for stays empty, and that one or two families fill the pool, then the
    suite, then the holdout.

    Raises:
        InputError: shares that are no shares, doubled ids, or a family in two strata.
    """
    shares = _checked_shares(suite, holdout)
    _check_tasks(tasks)
    side_of: dict[str, Split] = {}
    for stratum, members in strata_of(tasks).items():
        order = sorted(
            {task.family for task in members}, key=lambda family: (derive_seed(seed, stratum, family), family)
        )
        quotas = _quotas(len(order), shares)
        sides = [side for side, quota in quotas.items() for _ in range(quota)]
        side_of.update(zip(order, sides, strict=True))
    return {task.id: side_of[task.family] for task in tasks}


def _checked_shares(suite: float, holdout: float) -> dict[Split, float]:
    pool = 1.0 - suite - holdout
    if not (0 <= suite <= 1 and 0 <= holdout <= 1 and pool >= -1e-9):
        raise InputError(
            f"suite {suite} and holdout {holdout} are no shares of one whole",
            where="suite, holdout",
            expected="each in 0..1 and together at most 1",
            mend="for instance suite 0.25 and holdout 0.15",
        )
    return {Split.POOL: max(0.0, round(pool, 9)), Split.SUITE: suite, Split.HOLDOUT: holdout}


def _check_tasks(tasks: Sequence[Task]) -> None:
    ids: set[str] = set()
    stratum_of: dict[str, str] = {}
    for task in tasks:
        if task.id in ids:
            raise InputError("two tasks have one id", where=task.id, expected="unique ids", mend="rename one of them")
        ids.add(task.id)
        if stratum_of.setdefault(task.family, task.stratum) != task.stratum:
            raise InputError(
                f"the family {task.family!r} lies in strata {stratum_of[task.family]!r} and {task.stratum!r}",
                where=task.id,
                expected="each family in one stratum",
                mend="name the families of each stratum differently",
            )


def _quotas(num_families: int, shares: dict[Split, float]) -> dict[Split, int]:
    """Families a side by largest remainders, then one from the fullest to each empty side that was asked for."""
    wanted = [side for side, share in shares.items() if share > 0]
    if num_families < FEWEST_FAMILIES:
        sides = [*wanted, wanted[0], wanted[0]][:num_families]
        return {side: sides.count(side) for side in shares}
    exact = {side: share * num_families for side, share in shares.items()}
    quotas = {side: math.floor(amount + 1e-9) for side, amount in exact.items()}
    by_remainder = sorted(shares, key=lambda side: quotas[side] - exact[side])
    for side in by_remainder[: num_families - sum(quotas.values())]:
        quotas[side] += 1
    for side in wanted:
        if quotas[side] == 0:
            fullest = max(quotas, key=lambda other: quotas[other])
            quotas[fullest] -= 1
            quotas[side] = 1
    return quotas
