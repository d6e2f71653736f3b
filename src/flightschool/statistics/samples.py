"""How much a sample can tell: effective sizes, detectable differences, and the bias of dropping the long."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import NormalDist

from flightschool.errors import InputError
from flightschool.statistics.interval import check_finite, check_level

__all__ = ["design_effect", "effective_sample_size", "length_bias", "minimal_detectable_effect"]


def effective_sample_size(weights: Sequence[float]) -> float:
    """Kish's effective size (L. Kish, Survey Sampling, 1965): (Σw)² / Σw²; n for equal weights, 1 for one item.

    Raises:
        InputError: no weights, a negative one, or all zero.
    """
    check_finite(weights, "weights")
    if min(weights) < 0 or max(weights) == 0:
        raise InputError(
            "weights must not be negative nor all zero", where="weights", expected="shares", mend="check the shares"
        )
    largest = max(weights)
    scaled = [weight / largest for weight in weights]  # keeps squares of tiny weights from vanishing
    return sum(scaled) ** 2 / math.fsum(weight**2 for weight in scaled)


def design_effect(values: Sequence[float], clusters: Sequence[str]) -> float:
    """Variance of the mean under clustering over its variance under independence; n / this is the effective size.

    Clustered variance after E. Miller, "Adding Error Bars to Evals" (arXiv 2411.00640):
    (1/n²) Σ_g (Σ_{i∈g} (x_i − x̄))², here with the small-sample factor G/(G−1). 1 when all values are
    equal: nothing varies, nothing is clustered.

    Raises:
        InputError: lengths differ, or fewer than two clusters.
    """
    check_finite(values, "values")
    if len(values) != len(clusters):
        raise InputError(
            f"{len(values)} values and {len(clusters)} clusters", expected="one cluster per value", mend="pair them"
        )
    num_items, num_clusters = len(values), len(set(clusters))
    if num_clusters < 2:
        raise InputError(
            "one cluster tells nothing of the variation between clusters",
            where="clusters",
            expected="at least two",
            mend="measure on more families",
        )
    mean = math.fsum(values) / num_items
    sums: defaultdict[str, float] = defaultdict(float)
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] += value - mean
    independent = math.fsum((value - mean) ** 2 for value in values) / (num_items * (num_items - 1))
    if math.isclose(independent, 0.0, abs_tol=1e-24):
        return 1.0
    clustered = math.fsum(total**2 for total in sums.values()) / num_items**2 * num_clusters / (num_clusters - 1)
    return clustered / independent


def minimal_detectable_effect(
    num_items: int, sd: float, *, level: float = 0.95, power: float = 0.8, design_effect: float = 1.0
) -> float:
    """Smallest true difference of means that a comparison finds with probability ``power``.

    (z_{(1+level)/2} + z_power) · sd · √(design_effect / n); normal approximation. For a paired comparison ``sd`` is
    the standard deviation of the items' differences, for two independent samples of n items each it is √(sd₁² + sd₂²).

    Raises:
        InputError: no items, a negative spread, or a level or power outside (0, 1).
    """
    check_level(level)
    check_level(power)
    if num_items < 1 or not sd >= 0 or not design_effect > 0:
        raise InputError(
            "no detectable effect can be computed",
            where=f"num_items={num_items}, sd={sd}, design_effect={design_effect}",
            expected="at least one item, sd ≥ 0 and a positive design effect",
            mend="measure first, or plan with sd = 0.5, the largest of a success rate",
        )
    normal = NormalDist()
    quantiles = normal.inv_cdf((1 + level) / 2) + normal.inv_cdf(power)
    return max(0.0, quantiles) * sd * math.sqrt(design_effect / num_items)


def length_bias(consumed: Sequence[float], admitted: Sequence[float]) -> float:
    """|mean length consumed / mean length admitted − 1|: what dropping stale or late groups does to lengths.

    Lengths in tokens. 0 when what was trained on is as long, on average, as what was admitted.

    Raises:
        InputError: either is empty, or the admitted have mean length 0.
    """
    check_finite(consumed, "consumed")
    check_finite(admitted, "admitted")
    mean_admitted = math.fsum(admitted) / len(admitted)
    if mean_admitted <= 0:
        raise InputError(
            "lengths admitted are zero on average",
            where="admitted",
            expected="positive lengths",
            mend="count completion tokens",
        )
    return abs(math.fsum(consumed) / len(consumed) / mean_admitted - 1)
