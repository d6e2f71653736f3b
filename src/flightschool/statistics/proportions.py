"""Single proportions and paired binary outcomes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from flightschool.errors import InputError
from flightschool.records import Record
from flightschool.statistics.interval import Interval, check_level, check_proportion

__all__ = ["McNemar", "mcnemar_exact", "wilson"]


def wilson(successes: int, total: int, level: float = 0.95) -> Interval:
    """Wilson's score interval of a proportion (E. B. Wilson, JASA 22, 1927).

    With p = successes / total and z the normal quantile: (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n).
    Unlike the textbook interval it keeps its coverage near 0 and 1 and for small n. It assumes independent items:
    where items share families, use ``cluster_bootstrap_mean``.

    Raises:
        InputError: no items, or more successes than items.
    """
    check_level(level)
    check_proportion(successes, total)
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2
    p = successes / total
    centre = (p + z2 / (2 * total)) / (1 + z2 / total)
    half = math.sqrt(z2 * (p * (1 - p) / total + z2 / (4 * total**2))) / (1 + z2 / total)
    return Interval(
        value=p,
        # At the ends the bound is p itself; rounding must not push it past.
        low=0.0 if successes == 0 else max(0.0, centre - half),
        high=1.0 if successes == total else min(1.0, centre + half),
        num_items=total,
        method="wilson",
        level=level,
    )


class McNemar(Record, frozen=True, kw_only=True):
    """Paired binary outcomes and their exact test."""

    gained: int
    """Items that failed before and succeed after."""
    lost: int
    """Items that succeeded before and fail after."""
    num_items: int
    p_value: float
    """Two-sided."""


def mcnemar_exact(before: Sequence[bool], after: Sequence[bool]) -> McNemar:
    """McNemar's test with exact binomial tail (Q. McNemar, Psychometrika 12, 1947).

    If nothing changed, each discordant item is a fair coin: p = min(1, 2 · P(Bin(gained + lost, ½) ≤ min)).
    Assumes independent items.

    Raises:
        InputError: the sequences differ in length.
    """
    if len(before) != len(after):
        raise InputError(
            f"{len(before)} items before and {len(after)} after cannot be paired",
            expected="one value per item in both, in the same order",
            mend="pair by item id",
        )
    gained = sum(1 for b, a in zip(before, after, strict=True) if a and not b)
    lost = sum(1 for b, a in zip(before, after, strict=True) if b and not a)
    discordant = gained + lost
    tail = sum(math.comb(discordant, k) for k in range(min(gained, lost) + 1))
    # Integers are exact however many items there are; their quotient is rounded once.
    p_value = min(1.0, 2 * tail / 2**discordant)
    return McNemar(gained=gained, lost=lost, num_items=len(before), p_value=p_value)
