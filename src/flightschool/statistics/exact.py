"""Intervals of a rate that keep their coverage when failures are few: exact ones, and Korn–Graubard for clusters.

Blaker (Canadian Journal of Statistics 28, 2000) inverts the test that orders outcomes by their smaller tail. Its
coverage is never below nominal and it lies inside Clopper–Pearson's interval. For 5 of 5 it says [0.5, 1], not [1, 1].

Korn and Graubard (Survey Methodology 24, 1998) use Clopper–Pearson with the effective number of items. The design
effect itself is hardly known when a handful of clusters hold all failures; then it is taken to be at least what an
intra-cluster correlation of ``LEAST_ICC`` would give, and the method says so.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache

from flightschool.errors import InputError
from flightschool.statistics.interval import Interval, check_finite, check_level, check_proportion
from flightschool.statistics.samples import design_effect, effective_sample_size
from flightschool.statistics.special import beta_quantile, student_quantile

__all__ = ["FEW_FAILING_CLUSTERS", "blaker", "clopper_pearson", "korn_graubard", "num_failing_clusters"]

FEW_FAILING_CLUSTERS = 5
"""Below so many clusters with a failure (or with a success), no estimate of their correlation is trusted."""
LEAST_ICC = 0.3
_STEPS = 400
_SLACK = 1e-12


def clopper_pearson(successes: float, total: float, level: float = 0.95) -> tuple[float, float]:
    """Bounds by the two binomial tails; sizes need not be whole (Clopper and Pearson, Biometrika 26, 1934)."""
    tail = (1 - level) / 2
    low = 0.0 if successes <= 0 else beta_quantile(tail, successes, total - successes + 1)
    high = 1.0 if successes >= total else beta_quantile(1 - tail, successes + 1, total - successes)
    return low, high


def blaker(successes: int, total: int, level: float = 0.95) -> Interval:
    """Blaker's exact interval of a proportion of independent items.

    Raises:
        InputError: no items, or more successes than items.
    """
    check_level(level)
    check_proportion(successes, total)
    low, high = _blaker_bounds(successes, total, level)
    return Interval(value=successes / total, low=low, high=high, num_items=total, method="blaker exact", level=level)


@lru_cache(maxsize=4096)
def _blaker_bounds(successes: int, total: int, level: float) -> tuple[float, float]:
    low = _blaker_low(successes, total, level)
    return low, 1.0 - _blaker_low(total - successes, total, level)


def _blaker_low(successes: int, total: int, level: float) -> float:
    """The least p that is acceptable: searched upward from Clopper–Pearson's bound, below which none is."""
    if successes == 0:
        return 0.0
    start, estimate = clopper_pearson(successes, total, level)[0], successes / total
    step = (estimate - start) / _STEPS
    p = start
    while p < estimate and _acceptability(successes, total, p) < 1 - level:
        p += step
    below, above = max(start, p - step), min(p, estimate)
    for _ in range(40):
        middle = (below + above) / 2
        if _acceptability(successes, total, middle) < 1 - level:
            below = middle
        else:
            above = middle
    return below  # the outer side: never shorter than exact


def _acceptability(successes: int, total: int, p: float) -> float:
    """P_p(the smaller tail is as small as that of what was seen)."""
    pmf = _binomial(total, p)
    lower, upper = math.fsum(pmf[: successes + 1]), math.fsum(pmf[successes:])
    if upper <= lower:
        return upper + _tail_up_to(pmf, upper)
    return lower + _tail_up_to(pmf[::-1], lower)


def _tail_up_to(pmf: Sequence[float], most: float) -> float:
    """The largest tail from the left that is at most ``most``."""
    total = 0.0
    for mass in pmf:
        if total + mass > most * (1 + _SLACK):
            break
        total += mass
    return total


def _binomial(total: int, p: float) -> list[float]:
    if p <= 0 or p >= 1:
        return [float(k == (0 if p <= 0 else total)) for k in range(total + 1)]
    log_p, log_q, top = math.log(p), math.log1p(-p), math.lgamma(total + 1)
    return [
        math.exp(top - math.lgamma(k + 1) - math.lgamma(total - k + 1) + k * log_p + (total - k) * log_q)
        for k in range(total + 1)
    ]


def korn_graubard(
    values: Sequence[float], clusters: Sequence[str], level: float = 0.95, weights: Sequence[float] | None = None
) -> Interval:
    """Clopper–Pearson with n / deff items, degrees of freedom of the clusters, and a floor under the design effect.

    Args:
        values: one rate in 0..1 an item.
        clusters: the item's cluster.
        level: nominal coverage.
        weights: the item's share of the mean; equal by default. They cost effective items (Kish).

    Raises:
        InputError: nothing measured, values outside 0..1, lengths differ, or fewer than two clusters.
    """
    check_level(level)
    check_finite(values, "values")
    if not all(0 <= value <= 1 for value in values):
        raise InputError("a rate outside 0..1", where="values", expected="0..1", mend="pass rates")
    shares = [1.0] * len(values) if weights is None else list(weights)
    num_items, sizes = len(values), Counter(clusters)
    failing, succeeding = num_failing_clusters(values, clusters), _num_with(values, clusters, 0.0)
    effect = max(1.0, design_effect(values, clusters))
    few = min(failing, succeeding) < FEW_FAILING_CLUSTERS
    if few:
        size = sum(count**2 for count in sizes.values()) / num_items
        effect = max(effect, 1 + (size - 1) * LEAST_ICC)
    tail = (1 + level) / 2
    effective = effective_sample_size(shares) / effect
    if num_items > 1 and len(sizes) > 1:
        effective *= (student_quantile(tail, num_items - 1) / student_quantile(tail, len(sizes) - 1)) ** 2
    mean = math.fsum(w * x for w, x in zip(shares, values, strict=True)) / math.fsum(shares)
    low, high = clopper_pearson(mean * effective, effective, level)
    remark = f", {failing} of {len(sizes)} clusters fail at all: correlation assumed" if few else ""
    return Interval(
        value=mean,
        low=min(low, mean),
        high=max(high, mean),
        num_items=num_items,
        method=f"korn-graubard, {effective:.1f} effective items{remark}",
        level=level,
    )


def num_failing_clusters(values: Sequence[float], clusters: Sequence[str]) -> int:
    """Clusters in which any item is below 1."""
    return _num_with(values, clusters, 1.0)


def _num_with(values: Sequence[float], clusters: Sequence[str], other_than: float) -> int:
    found: defaultdict[str, bool] = defaultdict(bool)
    for value, cluster in zip(values, clusters, strict=True):
        found[cluster] |= value != other_than
    return sum(found.values())
