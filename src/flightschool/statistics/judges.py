"""Rates seen through an imperfect judge, corrected by labels of people.

Prediction-powered inference (A. Angelopoulos et al., Science 382, 2023; PPI++, arXiv 2311.01453): the judge's mean over
all items, minus its error on the labelled ones (``rectified_mean``: the same where labels were drawn cell by cell with
known probabilities). Rogan and Gladen (American Journal of Epidemiology 107, 1978): from the
judge's sensitivity and specificity. Both need labels drawn at random from the same items; a judge cannot check itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from flightschool.errors import InputError
from flightschool.records import Record
from flightschool.statistics.interval import Interval, check_finite, check_level
from flightschool.statistics.verifier_error import VerifierError

__all__ = ["LabelledCell", "prediction_powered_mean", "rectified_mean", "rogan_gladen", "rogan_gladen_interval"]


def prediction_powered_mean(
    labels: Sequence[float],
    judged_labelled: Sequence[float],
    judged_unlabelled: Sequence[float],
    level: float = 0.95,
    weight: float | None = None,
) -> Interval:
    """Mean of what people would say of all items.

    θ = ȳ + λ·(mean_N f − mean_n f), Var = λ²·var(f_N)/N + var(y − λ·f)/n, with λ* = cov(y, f) / ((1 + n/N)·var f)
    cut to 0..1: a useless judge is ignored, a good one narrows the interval.

    Args:
        labels: of people, on n items drawn at random.
        judged_labelled: the judge's scores of the same items.
        judged_unlabelled: its scores of N other items.
        level: nominal coverage (normal approximation; use 30 labels or more).
        weight: λ; by default the best one.

    Raises:
        InputError: fewer than two of either, lengths differ, or values that are not finite.
    """
    check_level(level)
    for name, values in (("labels", labels), ("judged", judged_labelled), ("judged", judged_unlabelled)):
        check_finite(values, name)
    n, big = len(labels), len(judged_unlabelled)
    if n != len(judged_labelled) or n < 2 or big < 2:
        raise InputError(
            f"{n} labels, {len(judged_labelled)} judged and {big} more judged",
            where="prediction_powered_mean",
            expected="a judgement for each label, two or more of both kinds",
            mend="label more attempts with: flightschool review label",
        )
    variance = _covariance(judged_labelled, judged_labelled)
    best = _covariance(labels, judged_labelled) / ((1 + n / big) * variance) if variance > 0 else 0.0
    used = min(1.0, max(0.0, best)) if weight is None else weight
    value = _mean(labels) + used * (_mean(judged_unlabelled) - _mean(judged_labelled))
    errors = [y - used * f for y, f in zip(labels, judged_labelled, strict=True)]
    spread = used**2 * _covariance(judged_unlabelled, judged_unlabelled) / big + _covariance(errors, errors) / n
    half = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(spread)
    return Interval(
        value=value,
        low=value - half,
        high=value + half,
        num_items=n + big,
        method=f"prediction-powered, {n} labels, weight {used:.2f}",
        level=level,
    )


class LabelledCell(Record, frozen=True, kw_only=True):
    """Items on which a judge said one thing, some of which people labelled, drawn at random from the cell."""

    passed: bool
    """What the judge said of all of them."""
    size: int
    num_labelled: int
    num_wrong: int
    """Labelled items on which people say the opposite."""


def rectified_mean(cells: Sequence[LabelledCell], level: float = 0.95) -> Interval:
    """Rate of what people would say, of a population judged in full and labelled cell by cell.

    θ = Σ W_h · (f_h + r_h): prediction-powered inference with weight 1, its rectifier r_h the mean of label − judgement
    in cell h, W_h the cell's share. The judgements of all items are known, so only the rectifier varies:
    Var = Σ W_h² · (1 − n_h/N_h) · v_h / n_h, where v_h/n_h is the variance of Jeffreys' posterior of the share of wrong
    judgements: thirty right ones of thirty leave doubt. Normal approximation, cut to 0..1.

    By hand: 80 passes of which 2 of 20 labelled are wrong, 20 failures of which 1 of 10 is right after all:
    θ = .8 · (1 − .1) + .2 · (0 + .1) = .74.

    Raises:
        InputError: no cells, or a cell of which nothing was labelled.
    """
    check_level(level)
    total = sum(cell.size for cell in cells)
    bare = [cell for cell in cells if not 0 < cell.num_labelled <= cell.size or cell.num_wrong > cell.num_labelled]
    if not cells or bare:
        raise InputError(
            "a cell has no labels" if cells else "nothing was judged",
            where="rectified_mean",
            expected="labels in every cell of stratum and verdict",
            mend="label more attempts with: flightschool review label",
        )
    value = variance = 0.0
    for cell in cells:
        share, n, k = cell.size / total, cell.num_labelled, cell.num_wrong
        wrong = k / n
        value += share * (1 - wrong if cell.passed else wrong)
        a, b = k + 0.5, n - k + 0.5
        variance += share**2 * (1 - n / cell.size) * a * b / ((a + b) ** 2 * (a + b + 1))
    half = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(variance)
    return Interval(
        value=value,
        low=max(0.0, value - half),
        high=min(1.0, value + half),
        num_items=total,
        method=f"prediction-powered over {len(cells)} cells, {sum(cell.num_labelled for cell in cells)} labels",
        level=level,
    )


def rogan_gladen_interval(judged: Interval, error: VerifierError, level: float = 0.95) -> Interval | None:
    """The rate behind a judged rate, with the uncertainty of both: None where people saw no right or no wrong work.

    Sensitivity = 1 − ρ1, specificity = 1 − ρ0. The estimate rises with the judged rate and with ρ1 and falls with ρ0,
    so its bounds at the bounds of the three hold whenever all three do: give each 1 − (1 − level) / 3 (Bonferroni).
    None as well where the judge may tell nothing at all.
    """
    if error.rho0 is None or error.rho1 is None:
        return None
    try:
        value = rogan_gladen(judged.value, 1 - error.rho1.value, 1 - error.rho0.value)
        low = rogan_gladen(_unit(judged.low), 1 - error.rho1.low, 1 - error.rho0.high)
        high = rogan_gladen(_unit(judged.high), 1 - error.rho1.high, 1 - error.rho0.low)
    except InputError:
        return None
    return Interval(
        value=value,
        low=min(low, value),
        high=max(high, value),
        num_items=judged.num_items,
        method=f"rogan-gladen, ρ0 {error.rho0.value:.3f}, ρ1 {error.rho1.value:.3f}, bounds at the bounds of all three",
        level=level,
    )


def _unit(value: float) -> float:
    return min(1.0, max(0.0, value))


def rogan_gladen(judged_rate: float, sensitivity: float, specificity: float) -> float:
    """The rate behind a judged rate: (q + specificity − 1) / (sensitivity + specificity − 1), cut to 0..1.

    Raises:
        InputError: rates outside 0..1, or a judge that is no better than chance.
    """
    if not all(0 <= rate <= 1 for rate in (judged_rate, sensitivity, specificity)):
        raise InputError("a rate outside 0..1", where="rogan_gladen", expected="rates", mend="correct them")
    informed = sensitivity + specificity - 1
    if informed <= 0:
        raise InputError(
            f"a judge of sensitivity {sensitivity} and specificity {specificity} tells nothing",
            where="rogan_gladen",
            expected="sensitivity + specificity > 1",
            mend="mend the judge, or label by hand",
        )
    return min(1.0, max(0.0, (judged_rate + specificity - 1) / informed))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _covariance(a: Sequence[float], b: Sequence[float]) -> float:
    mean_a, mean_b = _mean(a), _mean(b)
    return math.fsum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True)) / (len(a) - 1)
