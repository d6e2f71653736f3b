"""How far one score speaks for another: correlation, ranks, calibration, and what unreliability hides.

Pearson with Fisher's z interval (R. Fisher 1915), Spearman with the standard error of Bonett and Wright (Psychometrika
65, 2000), Kendall's τ_b (1945). Attenuation: r_true = r_xy / √(r_xx · r_yy) (Spearman 1904). Range restriction:
Thorndike's case 2 (1949). Calibration of probabilities: intercept and slope of a logistic fit on the logit, Brier
score, ECE.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist

from flightschool.errors import InputError
from flightschool.records import Record
from flightschool.statistics.interval import Interval, check_finite, check_level

__all__ = [
    "Calibration",
    "calibration",
    "disattenuated",
    "kendall_tau",
    "pearson",
    "ranks",
    "spearman",
    "unrestricted",
]

FEWEST_PAIRS = 4
"""Fisher's interval has standard error 1 / √(n − 3)."""


def pearson(x: Sequence[float], y: Sequence[float], level: float = 0.95) -> Interval:
    """Linear correlation. An interval over a handful of points is wide, and says so.

    Raises:
        InputError: fewer than four pairs, lengths differ, or one side does not vary (then there is no correlation).
    """
    value = _correlation(x, y)
    return _fisher(value, len(x), 1 / math.sqrt(len(x) - 3), level, "pearson, fisher z")


def spearman(x: Sequence[float], y: Sequence[float], level: float = 0.95) -> Interval:
    """Rank correlation. Raises ``InputError`` as ``pearson``."""
    value = _correlation(ranks(x), ranks(y))
    error = math.sqrt((1 + value**2 / 2) / (len(x) - 3))
    return _fisher(value, len(x), error, level, "spearman, bonett-wright")


def kendall_tau(x: Sequence[float], y: Sequence[float]) -> float:
    """τ_b: (concordant − discordant) / √((n0 − ties_x)·(n0 − ties_y)); 0 when one side does not vary."""
    _check_pairs(x, y, 2)
    balance = 0
    for i in range(len(x)):
        for j in range(i):
            balance += _sign(x[i] - x[j]) * _sign(y[i] - y[j])
    pairs = len(x) * (len(x) - 1) / 2
    ties = [math.fsum(c * (c - 1) / 2 for c in Counter(values).values()) for values in (x, y)]
    scale = (pairs - ties[0]) * (pairs - ties[1])
    return balance / math.sqrt(scale) if scale > 0 else 0.0


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1, ties sharing their mean."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for place in order[start : end + 1]:
            found[place] = (start + end) / 2 + 1
        start = end + 1
    return found


def disattenuated(correlation: float, reliability_x: float, reliability_y: float) -> float:
    """Correlation between what the two measure, had both been measured without error; may exceed 1 by sampling error.

    Raises:
        InputError: a reliability outside (0, 1]: what is not reliable at all cannot be corrected.
    """
    if not (0 < reliability_x <= 1 and 0 < reliability_y <= 1):
        raise InputError(
            f"reliabilities {reliability_x} and {reliability_y}",
            where="disattenuated",
            expected="above 0, at most 1",
            mend="measure with more repeats: validity cannot be asked of what is not reliable",
        )
    return correlation / math.sqrt(reliability_x * reliability_y)


def unrestricted(correlation: float, sd_seen: float, sd_all: float) -> float:
    """Correlation in the full range, from one in a narrower range of x: Thorndike's case 2.

    r·u / √(1 + r²·(u² − 1)) with u = sd_all / sd_seen.

    Raises:
        InputError: spreads that are not positive.
    """
    if not (sd_seen > 0 and sd_all > 0):
        raise InputError(
            "a spread that is not positive", where="unrestricted", expected="sd > 0", mend="use systems that differ"
        )
    u = sd_all / sd_seen
    return correlation * u / math.sqrt(1 + correlation**2 * (u**2 - 1))


class Calibration(Record, frozen=True, kw_only=True):
    """How well predicted rates are met, each pair weighted by its number of outcomes."""

    slope: float
    """1 is right; below 1: predictions are too extreme. NaN-free: 0 when the predictions do not vary."""
    intercept: float
    """0 is right; below 0: outcomes are worse than predicted."""
    brier: float
    """Mean squared error of the predicted probability."""
    ece: float
    """Expected calibration error over ten bins."""
    mean_predicted: float
    mean_observed: float
    num_outcomes: int


def calibration(predicted: Sequence[float], successes: Sequence[float], totals: Sequence[int]) -> Calibration:
    """Calibration of predicted rates against later outcomes (successes of totals for each prediction).

    The logistic fit logit P = a + b·logit(predicted) is by Newton's method with a small ridge (1e-6), so that separated
    data give a large but finite slope. Predictions of 0 and 1 are moved in by 1e-3.

    Raises:
        InputError: lengths differ, rates outside 0..1, or no outcomes.
    """
    check_finite(predicted, "predicted")
    check_finite(successes, "successes")
    good = len(predicted) == len(successes) == len(totals) and all(
        0 <= p <= 1 and 0 <= s <= n for p, s, n in zip(predicted, successes, totals, strict=True)
    )
    num = sum(totals) if good else 0
    if not good or num == 0:
        raise InputError(
            "no outcomes to calibrate against",
            where="calibration",
            expected="a predicted rate, successes and a total each, 0 ≤ successes ≤ total",
            mend="correct the file of outcomes",
        )
    rows = [(p, s, n) for p, s, n in zip(predicted, successes, totals, strict=True) if n]
    intercept, slope = _logistic(rows)
    brier = math.fsum(s * (1 - p) ** 2 + (n - s) * p**2 for p, s, n in rows) / num
    bins: dict[int, list[tuple[float, float, int]]] = {}
    for row in rows:
        bins.setdefault(min(9, int(row[0] * 10)), []).append(row)
    ece = math.fsum(abs(math.fsum(s - p * n for p, s, n in members)) for members in bins.values()) / num
    return Calibration(
        slope=slope,
        intercept=intercept,
        brier=brier,
        ece=ece,
        mean_predicted=math.fsum(p * n for p, _, n in rows) / num,
        mean_observed=math.fsum(s for _, s, _ in rows) / num,
        num_outcomes=num,
    )


def _logistic(rows: Sequence[tuple[float, float, int]]) -> tuple[float, float]:
    points = [(_logit(p), s, n) for p, s, n in rows]
    varies = len({x for x, _, _ in points}) > 1
    a, b, ridge = 0.0, 1.0 if varies else 0.0, 1e-6
    for _ in range(100):
        gradient_a, gradient_b = -ridge * a, -ridge * b
        h_aa, h_ab, h_bb = ridge, 0.0, ridge
        for x, s, n in points:
            p = 1 / (1 + math.exp(-max(-30.0, min(30.0, a + b * x))))
            w = n * p * (1 - p)
            gradient_a += s - n * p
            gradient_b += (s - n * p) * x
            h_aa, h_ab, h_bb = h_aa + w, h_ab + w * x, h_bb + w * x * x
        determinant = h_aa * h_bb - h_ab**2
        if not varies or determinant <= 1e-12:
            step_a, step_b = gradient_a / h_aa, 0.0
        else:
            step_a = (h_bb * gradient_a - h_ab * gradient_b) / determinant
            step_b = (h_aa * gradient_b - h_ab * gradient_a) / determinant
        shrink = min(1.0, 4 / max(abs(step_a), abs(step_b), 1e-12))
        a, b = a + shrink * step_a, b + shrink * step_b
        if max(abs(step_a), abs(step_b)) < 1e-10:
            break
    return a, b


def _logit(p: float) -> float:
    inside = min(1 - 1e-3, max(1e-3, p))
    return math.log(inside / (1 - inside))


def _correlation(x: Sequence[float], y: Sequence[float]) -> float:
    _check_pairs(x, y, FEWEST_PAIRS)
    mean_x, mean_y = math.fsum(x) / len(x), math.fsum(y) / len(y)
    dx, dy = [v - mean_x for v in x], [v - mean_y for v in y]
    scale = math.sqrt(math.fsum(v * v for v in dx)) * math.sqrt(math.fsum(v * v for v in dy))
    if scale < 1e-12:
        raise InputError(
            "one side does not vary: there is no correlation",
            where="correlation",
            expected="scores that differ",
            mend="compare systems, versions or strata that differ",
        )
    return max(-1.0, min(1.0, math.fsum(a * b for a, b in zip(dx, dy, strict=True)) / scale))


def _fisher(value: float, size: int, error: float, level: float, method: str) -> Interval:
    check_level(level)
    inside = max(-1 + 1e-12, min(1 - 1e-12, value))
    half = NormalDist().inv_cdf((1 + level) / 2) * error
    low, high = math.tanh(math.atanh(inside) - half), math.tanh(math.atanh(inside) + half)
    return Interval(value=value, low=min(low, value), high=max(high, value), num_items=size, method=method, level=level)


def _check_pairs(x: Sequence[float], y: Sequence[float], fewest: int) -> None:
    check_finite(x, "x")
    check_finite(y, "y")
    if len(x) != len(y) or len(x) < fewest:
        raise InputError(
            f"{len(x)} and {len(y)} values",
            where="correlation",
            expected=f"pairs, at least {fewest}",
            mend="add versions, policies or strata",
        )


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
