"""Quantiles with intervals that assume no distribution.

The number of n independent values below the true q-quantile is Binomial(n, q), so two order statistics enclose it
with the probability that the binomial lies between their ranks (H. David and H. Nagaraja, Order Statistics, 3rd
ed., 7.1). Where too few values were measured for that, the interval ends at the smallest or largest value and says
so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flightschool.errors import InputError
from flightschool.statistics.interval import Interval, check_finite, check_level

__all__ = ["quantile"]


def quantile(values: Sequence[float], q: float, level: float = 0.95) -> Interval:
    """The q-quantile (nearest rank: the smallest value that at least a share q does not exceed) with its interval.

    Args:
        values: independent measurements.
        q: 0 < q < 1.
        level: nominal coverage.

    Raises:
        InputError: nothing measured, values that are not finite, or q outside (0, 1).
    """
    check_level(level)
    check_finite(values, "values")
    if not 0 < q < 1:
        raise InputError(f"quantile {q}", where="quantile", expected="between 0 and 1", mend="use 0.5 or 0.95")
    ordered, n, tail = sorted(values), len(values), (1 - level) / 2
    low_rank, low_open = _rank(n, q, tail)
    high_rank, high_open = _rank(n, 1 - q, tail)
    remark = ", too few values for one end" if low_open or high_open else ""
    return Interval(
        value=ordered[max(0, math.ceil(q * n - 1e-9) - 1)],
        low=ordered[low_rank],
        high=ordered[n - 1 - high_rank],
        num_items=n,
        method="order statistics" + remark,
        level=level,
    )


def _rank(n: int, q: float, tail: float) -> tuple[int, bool]:
    """Largest index r (from 0) with P(Bin(n, q) ≤ r) ≤ tail, and whether there is none."""
    total, found = 0.0, -1
    log_q, log_p = math.log(q), math.log1p(-q)
    for k in range(n):
        total += math.exp(
            math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * log_q + (n - k) * log_p
        )
        if total > tail:
            break
        found = k
    return max(0, found), found < 0
