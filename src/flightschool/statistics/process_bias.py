"""Whether a process term may shape: how it goes with the outcome, and what chasing it alone would earn.

Three questions, all *within* tasks, since between tasks a term may go with the outcome only because both are high where
tasks are easy:

* correlation of term and outcome, pooled over tasks after each task's means are taken out;
* share of the pairs of attempts at one task, unequal in outcome, whose order the term reverses;
* mean outcome of the attempts that maximise the term, task by task (ties shared): what a policy gets that chases
  nothing else, beside the mean of all attempts. A gain that is negative says that the term pays for worse work.

Intervals come from resampling whole tasks: percentile bounds with tails widened by √(M / (M − 1)) (Hesterberg 2015,
see ``bootstrap``). Where no resample could differ (no pair reversed in any task), the bound is what a share of
deviating tasks up to Wilson's limit could do.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from flightschool.errors import InputError
from flightschool.records import Record
from flightschool.statistics.bootstrap import cluster_bootstrap_mean, paired_bootstrap
from flightschool.statistics.interval import Interval, check_finite, check_level
from flightschool.statistics.proportions import wilson

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

__all__ = ["ProcessBias", "process_bias"]


class ProcessBias(Record, frozen=True, kw_only=True):
    """The examination of one process term."""

    term: str
    num_tasks: int
    num_attempts: int
    correlation: Interval | None
    """Within tasks, −1..1; None where term and outcome vary together in fewer than two tasks."""
    reversed_pairs: Interval | None
    """Share of unequal pairs that the term puts the wrong way round; None if fewer than two tasks have such pairs."""
    tied_pairs: float
    """Share of unequal pairs that the term does not tell apart."""
    maximiser: Interval
    """Mean outcome of a policy that maximises the term alone."""
    everyone: Interval
    """Mean outcome of all attempts, each task weighing the same."""
    gain: Interval
    """maximiser − everyone, paired by task."""


@dataclass(frozen=True)
class _Sums:
    """What one task adds."""

    xy: float
    xx: float
    yy: float
    pairs: int
    reversed: int
    tied: int
    best: float
    mean: float


def process_bias(
    tasks: Sequence[str],
    outcomes: Sequence[float],
    terms: Sequence[float],
    *,
    term: str = "process",
    level: float = 0.95,
    seed: int = 0,
    num_resamples: int = 4000,
) -> ProcessBias:
    """Examine a term on attempts; position i of the three sequences is one attempt.

    Args:
        tasks: the attempt's task.
        outcomes: its outcome, without any process term.
        terms: the term's raw value.
        term: its name.
        level: nominal coverage.
        seed: of the resampling.
        num_resamples: resamples drawn.

    Raises:
        InputError: lengths differ, a value is not finite, or there are fewer than two tasks.
    """
    check_level(level)
    check_finite(outcomes, "outcomes")
    check_finite(terms, "terms")
    if not len(tasks) == len(outcomes) == len(terms):
        raise InputError(
            f"{len(tasks)} tasks, {len(outcomes)} outcomes and {len(terms)} terms do not match",
            where="process_bias",
            expected="one of each per attempt",
            mend="pass them attempt by attempt",
        )
    groups: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for task, outcome, value in zip(tasks, outcomes, terms, strict=True):
        groups[task].append((outcome, value))
    names = sorted(groups)
    sums = [_task_sums(groups[name]) for name in names]
    best, mean = [one.best for one in sums], [one.mean for one in sums]
    with_pairs = [one for one in sums if one.pairs]
    num_pairs = sum(one.pairs for one in with_pairs)
    return ProcessBias(
        term=term,
        num_tasks=len(names),
        num_attempts=len(tasks),
        correlation=_correlation(sums, level, seed, num_resamples),
        reversed_pairs=_reversed(with_pairs, level, seed, num_resamples),
        tied_pairs=sum(one.tied for one in with_pairs) / num_pairs if num_pairs else 0.0,
        maximiser=cluster_bootstrap_mean(best, names, seed, level, num_resamples),
        everyone=cluster_bootstrap_mean(mean, names, seed, level, num_resamples),
        gain=paired_bootstrap(mean, best, names, seed, level, num_resamples),
    )


def _task_sums(rows: Sequence[tuple[float, float]]) -> _Sums:
    size = len(rows)
    mean_y, mean_x = math.fsum(y for y, _ in rows) / size, math.fsum(x for _, x in rows) / size
    pairs = [(a, b) for i, a in enumerate(rows) for b in rows[i + 1 :] if a[0] != b[0]]
    top = max(x for _, x in rows)
    chosen = [y for y, x in rows if x == top]
    return _Sums(
        xy=math.fsum((y - mean_y) * (x - mean_x) for y, x in rows),
        xx=math.fsum((x - mean_x) ** 2 for _, x in rows),
        yy=math.fsum((y - mean_y) ** 2 for y, _ in rows),
        pairs=len(pairs),
        reversed=sum((a[0] - b[0] > 0) != (a[1] - b[1] > 0) and a[1] != b[1] for a, b in pairs),
        tied=sum(a[1] == b[1] for a, b in pairs),
        best=math.fsum(chosen) / len(chosen),
        mean=mean_y,
    )


def _correlation(sums: Sequence[_Sums], level: float, seed: int, num_resamples: int) -> Interval | None:
    import numpy as np

    used = [one for one in sums if one.xx > 0.0 and one.yy > 0.0]
    if len(used) < 2:
        return None
    # tasks in which only one of the two varies count in the variances: there the term says nothing of the outcome
    table_M3 = np.array([[one.xy, one.xx, one.yy] for one in sums])
    value = float(table_M3[:, 0].sum() / math.sqrt(table_M3[:, 1].sum() * table_M3[:, 2].sum()))
    value = min(max(value, -1.0), 1.0)
    totals_B3 = _resampled(table_M3, seed, num_resamples)
    spread_B = np.sqrt(totals_B3[:, 1] * totals_B3[:, 2])
    found_B = totals_B3[spread_B > 0, 0] / spread_B[spread_B > 0]
    return _interval(value, found_B, len(sums), level, (-1.0, 1.0), "pooled within-task correlation")


def _reversed(sums: Sequence[_Sums], level: float, seed: int, num_resamples: int) -> Interval | None:
    import numpy as np

    if len(sums) < 2:
        return None
    table_M2 = np.array([[one.reversed, one.pairs] for one in sums], dtype=float)
    totals_B2 = _resampled(table_M2, seed, num_resamples)
    value = float(table_M2[:, 0].sum() / table_M2[:, 1].sum())
    return _interval(value, totals_B2[:, 0] / totals_B2[:, 1], len(sums), level, (0.0, 1.0), "reversed pairs")


def _resampled(table_MK: NDArray[float64], seed: int, num_resamples: int) -> NDArray[float64]:
    """Sums over resampled tasks; shape (resamples, columns)."""
    import numpy as np

    size = len(table_MK)
    times_BM = np.random.default_rng(seed).multinomial(size, np.full(size, 1.0 / size), size=num_resamples)
    totals: NDArray[float64] = times_BM @ table_MK
    return totals


def _interval(
    value: float, found_B: NDArray[float64], num_tasks: int, level: float, bounds: tuple[float, float], what: str
) -> Interval:
    import numpy as np

    if found_B.size == 0 or np.ptp(found_B) < 1e-12:
        deviating = wilson(0, num_tasks, level).high
        low, high = value - deviating * (value - bounds[0]), value + deviating * (bounds[1] - value)
        method = f"{what}, no variation in {num_tasks} tasks, wilson bound"
    else:
        normal = NormalDist()
        tail = normal.cdf(math.sqrt(num_tasks / (num_tasks - 1)) * normal.inv_cdf((1.0 - level) / 2))
        low, high = (float(one) for one in np.quantile(found_B, [tail, 1.0 - tail]))
        method = f"{what}, bootstrap over {num_tasks} tasks"
    low, high = max(min(low, value), bounds[0]), min(max(high, value), bounds[1])
    return Interval(value=value, low=low, high=high, num_items=num_tasks, method=method, level=level)
