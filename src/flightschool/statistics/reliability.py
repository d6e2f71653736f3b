"""Reliability: would the same measurement come out again? Asked before anyone asks whether it means anything.

Validity is bounded by reliability (r_xy ≤ √(r_xx · r_yy), Spearman 1904). What must be reliable is the *decision*:
``sign_agreement``. ICC and alpha tell where the noise comes from and are diagnostics; ICC speaks of telling items
apart, not systems (see ``generalizability`` for those); agreement of judges stands in ``agreement``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from flightschool.errors import InputError
from flightschool.records import Record
from flightschool.statistics.interval import check_finite, check_level
from flightschool.statistics.special import f_quantile

__all__ = [
    "IntraclassCorrelation",
    "cronbach_alpha",
    "icc_oneway",
    "repeats_for",
    "sign_agreement",
    "spearman_brown",
    "standard_error_of_measurement",
]


class IntraclassCorrelation(Record, frozen=True, kw_only=True):
    """One-way random effects: items × repeats, repeats interchangeable."""

    single: float
    """ICC(1,1): reliability of one repeat. NaN-free: 1 when nothing but items differ, 0 when nothing differs at all."""
    low: float
    high: float
    average: float
    """ICC(1,k): reliability of the mean of all k repeats."""
    between: float
    """σ² between items, cut at 0."""
    within: float
    """σ² between repeats of an item."""
    num_items: int
    num_repeats: int
    degenerate: bool = False
    """All scores were equal: nothing varies, so no reliability is defined (0/0) and ``single`` is a convention."""


def icc_oneway(scores: Sequence[Sequence[float]], level: float = 0.95) -> IntraclassCorrelation:
    """ICC(1,1) = (MSB − MSW) / (MSB + (k−1)·MSW) with its F interval (Shrout and Fleiss, Psych. Bulletin 86, 1979).

    Args:
        scores: one row of k repeats an item, all rows as long.
        level: nominal coverage.

    Raises:
        InputError: fewer than two items or repeats, or rows that differ in length.
    """
    check_level(level)
    num_items, k = _shape(scores, "items", "repeats")
    means = [math.fsum(row) / k for row in scores]
    grand = math.fsum(means) / num_items
    msb = k * math.fsum((mean - grand) ** 2 for mean in means) / (num_items - 1)
    msw = math.fsum((x - mean) ** 2 for row, mean in zip(scores, means, strict=True) for x in row) / (
        num_items * (k - 1)
    )
    degenerate = math.isclose(msb, 0.0, abs_tol=1e-15) and math.isclose(msw, 0.0, abs_tol=1e-15)
    if degenerate:
        single, low, high, average = 0.0, 0.0, 1.0, 0.0
    elif msw <= 1e-15 * msb:
        single, low, high, average = 1.0, 1.0, 1.0, 1.0
    else:
        ratio, tail = msb / msw, (1 + level) / 2
        d1, d2 = num_items - 1, num_items * (k - 1)
        below, above = ratio / f_quantile(tail, d1, d2), ratio * f_quantile(tail, d2, d1)
        single = (msb - msw) / (msb + (k - 1) * msw)
        low, high = (below - 1) / (below + k - 1), (above - 1) / (above + k - 1)
        average = (msb - msw) / msb if msb > 0 else 0.0
    return IntraclassCorrelation(
        single=single,
        low=low,
        high=high,
        average=average,
        between=max(0.0, (msb - msw) / k),
        within=msw,
        num_items=num_items,
        num_repeats=k,
        degenerate=degenerate,
    )


def spearman_brown(reliability: float, factor: float) -> float:
    """Reliability of a test ``factor`` times as long: k·r / (1 + (k−1)·r) (Spearman 1910, Brown 1910)."""
    if factor <= 0 or reliability > 1:
        raise InputError(
            f"reliability {reliability} lengthened by {factor}",
            where="spearman_brown",
            expected="reliability ≤ 1, factor > 0",
            mend="correct them",
        )
    return factor * reliability / (1 + (factor - 1) * reliability)


def repeats_for(reliability: float, wanted: float) -> int | None:
    """Repeats that raise a single repeat's reliability to ``wanted``; None if none do (reliability ≤ 0)."""
    if not 0 < wanted < 1:
        raise InputError(
            f"reliability {wanted} wanted", where="repeats_for", expected="between 0 and 1", mend="use 0.8"
        )
    if reliability <= 0:
        return None
    if reliability >= 1:
        return 1
    return max(1, math.ceil(wanted * (1 - reliability) / (reliability * (1 - wanted)) - 1e-9))


def cronbach_alpha(scores: Sequence[Sequence[float]]) -> float:
    """Internal consistency over subjects (systems) × items: k/(k−1) · (1 − Σ σ²_item / σ²_total) (Cronbach 1951).

    0 when the totals do not vary: then nothing tells the subjects apart.

    Raises:
        InputError: fewer than two subjects or items, or rows that differ in length.
    """
    num_subjects, k = _shape(scores, "subjects", "items")
    columns = list(zip(*scores, strict=True))
    total = _variance([math.fsum(row) for row in scores], num_subjects)
    if math.isclose(total, 0.0, abs_tol=1e-15):
        return 0.0
    return k / (k - 1) * (1 - math.fsum(_variance(column, num_subjects) for column in columns) / total)


def sign_agreement(difference: float, rerun_error: float) -> float:
    """P(an independent re-run shows a difference of the same sign), given this one and its standard error.

    The first result is off by N(0, τ²) and so is the second, hence their gap is N(0, 2τ²) and, with no prior knowledge
    of the true difference, the chance is Φ(|d| / (τ√2)). ½ when nothing was seen.

    Raises:
        InputError: a negative error, or values that are not finite.
    """
    check_finite([difference, rerun_error], "difference, rerun_error")
    if rerun_error < 0:
        raise InputError("a negative error", where="rerun_error", expected="0 or more", mend="pass a standard error")
    if difference == 0:
        return 0.5
    if rerun_error == 0:
        return 1.0
    return NormalDist().cdf(abs(difference) / (rerun_error * math.sqrt(2)))


def standard_error_of_measurement(sd: float, reliability: float) -> float:
    """How far one score is off: sd · √(1 − reliability), reliability cut to 0..1."""
    return sd * math.sqrt(1 - min(1.0, max(0.0, reliability)))


def _variance(values: Sequence[float], size: int) -> float:
    mean = math.fsum(values) / size
    return math.fsum((value - mean) ** 2 for value in values) / (size - 1)


def _shape(scores: Sequence[Sequence[float]], rows: str, columns: str) -> tuple[int, int]:
    lengths = {len(row) for row in scores}
    if len(scores) < 2 or len(lengths) != 1 or min(lengths) < 2:
        raise InputError(
            f"{len(scores)} {rows} with {sorted(lengths)} {columns}",
            where="scores",
            expected=f"two or more {rows}, each with the same two or more {columns}",
            mend=f"measure with more {columns}",
        )
    for row in scores:
        check_finite(row, "scores")
    return len(scores), lengths.pop()
