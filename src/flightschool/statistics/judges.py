"""Rates seen through an imperfect judge, corrected by labels of people.

Prediction-powered inference (A. Angelopoulos et al., Science 382, 2023; PPI++, arXiv 2311.01453): the judge's mean over
all items, minus its error on the labelled ones. Rogan and Gladen (American Journal of Epidemiology 107, 1978): from the
judge's sensitivity and specificity. Both need labels drawn at random from the same items; a judge cannot check itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from flightschool.errors import InputError
from flightschool.statistics.interval import Interval, check_finite, check_level

__all__ = ["prediction_powered_mean", "rogan_gladen"]


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
