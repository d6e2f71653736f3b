"""Means and paired differences with intervals that respect families and strata: a two-level cluster bootstrap.

Items of one family share wording and world, so they succeed and fail together; an interval that takes them for
independent is too narrow (E. Miller, arXiv 2411.00640). Here whole clusters are drawn with replacement and items are
drawn with replacement inside each, stratum by stratum where there are strata.

Choices, and why:

* *Percentile, not BCa.* BCa's acceleration comes from a jackknife over the clusters, of which there are often eight;
  it is undefined when all resamples agree; and it treats a gain and an equal loss differently.
* *Expanded levels* (T. Hesterberg, The American Statistician 69, 2015): resampling G clusters shows only (G−1)/G of
  their variance, so the tail α/2 becomes Φ(√(G/(G−1)) · z_{α/2}). G − 1 is summed over strata.
* *Two levels*, although the second draws part of the variance inside clusters twice: with few clusters that makes up
  for the normal quantile, which is too short there. Simulated Beta–Binomial families (2 to 50 clusters, intra-cluster
  correlation 0 to .6, rates .5 to .95) gave nominal 95 % intervals a coverage of .93 to 1. One level alone covered .54
  with two clusters and .79 to .95 with eight or more; Student's quantile on top made the intervals a fifth wider.
* *No variation at all* (say 12 of 12) would give an interval of no width. Then the share of deviating clusters is
  bounded by Wilson's upper limit u for 0 of G, and the interval reaches to where such a share could pull the mean
  within the range of scores.
* *Strata of few clusters* do not show their own variation (two of two alike look certain), so they are resampled
  together, and with the smallest other one if they are still few: the survey statistician's collapsed strata, which err
  to the wide side. Left alone, strata of one to three families gave nominal 95 % intervals a coverage of .71 to .94.
* *Student's quantile* where most clusters hold one item: the second level then draws nothing and makes up for nothing.
  Degrees of freedom are Satterthwaite's over the strata, by Kish's effective number of clusters in each.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from flightschool.errors import InputError
from flightschool.statistics.interval import Interval, check_finite, check_level
from flightschool.statistics.proportions import wilson
from flightschool.statistics.special import student_quantile

if TYPE_CHECKING:
    from numpy import float64
    from numpy.random import Generator
    from numpy.typing import NDArray

__all__ = ["NUM_RESAMPLES", "cluster_bootstrap_mean", "paired_bootstrap", "stratified_mean"]

NUM_RESAMPLES = 10_000
"""Enough that another seed moves a 95 % bound by about 2 % of the interval's width."""

FEWEST_CLUSTERS = 5
"""Clusters below which a stratum does not show its own variation."""

_ONE_STRATUM = ""


def cluster_bootstrap_mean(
    values: Sequence[float],
    clusters: Sequence[str],
    seed: int = 0,
    level: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
) -> Interval:
    """Mean over items, with the interval of a two-level bootstrap by cluster.

    Args:
        values: one number an item; repeats of one item are averaged by the caller.
        clusters: the item's cluster (family).
        seed: equal seeds give equal intervals, whatever the order of the items.
        level: nominal coverage.
        num_resamples: resamples drawn.

    Raises:
        InputError: nothing measured, not finite, lengths differ, or fewer than two clusters.
    """
    return _estimate(values, clusters, [_ONE_STRATUM] * len(values), {_ONE_STRATUM: 1.0}, seed, level, num_resamples)


def stratified_mean(
    values: Sequence[float],
    strata: Sequence[str],
    shares: Mapping[str, float],
    clusters: Sequence[str] | None = None,
    seed: int = 0,
    level: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
) -> Interval:
    """Mean as it would be in real traffic: Σ_h W_h · x̄_h, resampled stratum by stratum.

    Args:
        values: one number an item.
        strata: the item's stratum.
        shares: stratum → W_h, its share of real traffic; they sum to 1.
        clusters: the item's family; without, items count as independent.
        seed: as for ``cluster_bootstrap_mean``.
        level: nominal coverage.
        num_resamples: resamples drawn.

    Raises:
        InputError: as ``cluster_bootstrap_mean``; or the shares do not sum to 1, or a stratum has a share but no item,
            or items but no share.
    """
    clusters = [str(i) for i in range(len(values))] if clusters is None else clusters
    return _estimate(values, clusters, strata, shares, seed, level, num_resamples)


def paired_bootstrap(
    before: Sequence[float],
    after: Sequence[float],
    clusters: Sequence[str],
    seed: int = 0,
    level: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
    *,
    strata: Sequence[str] | None = None,
    shares: Mapping[str, float] | None = None,
) -> Interval:
    """Mean of the items' differences after − before, clustered and (if both are given) weighted by strata.

    Pairing by item takes the items' difficulty out of the comparison; position i of both is the same item.

    Raises:
        InputError: as ``stratified_mean``; or before and after differ in length; or strata without shares.
    """
    if len(before) != len(after):
        raise InputError(
            f"{len(before)} items before and {len(after)} after cannot be paired",
            expected="one value per item in both, in the same order",
            mend="pair by item id",
        )
    if (strata is None) != (shares is None):
        raise InputError("strata and shares go together", expected="both or neither", mend="pass both")
    check_finite(before, "before")
    check_finite(after, "after")
    differences = [a - b for b, a in zip(before, after, strict=True)]
    scores = all(0 <= value <= 1 for value in (*before, *after))
    return _estimate(
        differences,
        clusters,
        strata or [_ONE_STRATUM] * len(differences),
        shares or {_ONE_STRATUM: 1.0},
        seed,
        level,
        num_resamples,
        bounds=(-1.0, 1.0) if scores else None,
    )


@dataclass(frozen=True, slots=True)
class _Cluster:
    values: tuple[float, ...]
    item_weight: float
    """Share of traffic that one item stands for: W_h / n_h."""


@dataclass(frozen=True, slots=True)
class _Pool:
    """Clusters that are resampled among one another: a stratum, or several collapsed ones."""

    strata: tuple[str, ...]
    share: float
    clusters: tuple[_Cluster, ...]


def _estimate(
    values: Sequence[float],
    clusters: Sequence[str],
    strata: Sequence[str],
    shares: Mapping[str, float],
    seed: int,
    level: float,
    num_resamples: int,
    bounds: tuple[float, float] | None = None,
) -> Interval:
    check_level(level)
    check_finite(values, "values")
    _check_lengths(len(values), len(clusters), len(strata), num_resamples)
    pools = _collapse(_pools(values, clusters, strata, shares))
    used = [cluster for pool in pools for cluster in pool.clusters]
    num_clusters, num_items = len(used), sum(len(cluster.values) for cluster in used)
    value = math.fsum(cluster.item_weight * math.fsum(cluster.values) for cluster in used)
    collapsed = ["+".join(pool.strata) for pool in pools if len(pool.strata) > 1]
    method = f"two-level bootstrap over {num_clusters} clusters" + "".join(
        f", {names} collapsed" for names in collapsed
    )
    smallest, largest = min(min(c.values) for c in used), max(max(c.values) for c in used)
    value = min(max(value, smallest), largest)  # shares sum to 1 but for rounding
    if smallest == largest:
        scores = (0.0, 1.0) if smallest >= 0 and largest <= 1 else None
        low, high = _without_variation(value, num_clusters, bounds or scores, level)
        method = f"no variation in {num_clusters} clusters, wilson bound"
    else:
        low, high = _percentiles(pools, seed, level, num_resamples)
    low, high = min(low, value), max(high, value)
    return Interval(value=value, low=low, high=high, num_items=num_items, method=method, level=level)


def _check_lengths(num_values: int, num_clusters: int, num_strata: int, num_resamples: int) -> None:
    if not num_values == num_clusters == num_strata:
        raise InputError(
            f"{num_values} values, {num_clusters} clusters and {num_strata} strata do not match",
            expected="one cluster and one stratum per value",
            mend="pass them item by item",
        )
    if num_resamples < 100:
        raise InputError(
            f"{num_resamples} resamples show no tail", where="num_resamples", expected="at least 100", mend="use 10000"
        )


def _pools(
    values: Sequence[float], clusters: Sequence[str], strata: Sequence[str], shares: Mapping[str, float]
) -> list[_Pool]:
    """One pool a stratum, sorted all through, so that the order of items does not matter."""
    if not math.isclose(math.fsum(shares.values()), 1.0, abs_tol=1e-6) or min(shares.values()) < 0:
        raise InputError(
            "shares of traffic must not be negative and sum to 1", where="shares", mend="give every stratum its share"
        )
    if set(strata) != set(shares):
        odd = sorted(set(strata) ^ set(shares))
        raise InputError(
            "the sample cannot speak for these strata",
            where=", ".join(odd),
            expected="items and a share for every stratum",
            mend="measure them, or leave them out of the shares, rescale the others and say so",
        )
    members: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for value, cluster, stratum in zip(values, clusters, strata, strict=True):
        members[stratum][cluster].append(value)
    pools = []
    for stratum, groups in sorted(members.items()):
        if shares[stratum] == 0:
            continue
        item_weight = shares[stratum] / sum(len(group) for group in groups.values())
        inside = tuple(_Cluster(tuple(sorted(groups[name])), item_weight) for name in sorted(groups))
        pools.append(_Pool((stratum,), shares[stratum], inside))
    return pools


def _collapse(pools: list[_Pool]) -> list[_Pool]:
    """Strata of few clusters joined with each other, and with the smallest other one if they are still few."""
    small = [pool for pool in pools if len(pool.clusters) < FEWEST_CLUSTERS]
    others = sorted(
        (pool for pool in pools if len(pool.clusters) >= FEWEST_CLUSTERS),
        key=lambda pool: (len(pool.clusters), pool.strata),
    )
    if not small:
        return pools
    if others and sum(len(pool.clusters) for pool in small) < FEWEST_CLUSTERS:
        small.append(others.pop(0))
    if sum(len(pool.clusters) for pool in small) == 1:
        raise InputError(
            "one cluster tells nothing of the variation between clusters",
            where="clusters",
            expected="at least two families",
            mend="measure on more families, or report the value without an interval",
        )
    if len(small) == 1:
        return pools
    joined = _Pool(
        strata=tuple(name for pool in small for name in pool.strata),
        share=math.fsum(pool.share for pool in small),
        clusters=tuple(cluster for pool in small for cluster in pool.clusters),
    )
    return [joined, *others]


def _percentiles(pools: Sequence[_Pool], seed: int, level: float, num_resamples: int) -> tuple[float, float]:
    import numpy as np

    rng = np.random.default_rng(seed)
    means = np.zeros(num_resamples)
    for pool in pools:
        means += pool.share * _resampled_means(pool, rng, num_resamples)
    freedom = _freedom(pools)
    clusters = [cluster for pool in pools for cluster in pool.clusters]
    alone = sum(len(cluster.values) == 1 for cluster in clusters) > len(clusters) / 2
    tail = _expanded_tail((1 - level) / 2, freedom, alone)
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def _freedom(pools: Sequence[_Pool]) -> float:
    """Satterthwaite's degrees of freedom (Biometrics Bulletin 2, 1946): the pool with most of the variance counts most.

    Each brings share² / clusters, as if all varied alike.
    """
    sizes = [_effective(pool) for pool in pools]
    brought = [pool.share**2 / size for pool, size in zip(pools, sizes, strict=True)]
    return math.fsum(brought) ** 2 / math.fsum(v**2 / (size - 1) for v, size in zip(brought, sizes, strict=True))


def _effective(pool: _Pool) -> float:
    """Kish's effective number of clusters: where a few carry most of the weight, it is they that show the variation."""
    weights = [cluster.item_weight * len(cluster.values) for cluster in pool.clusters]
    return max(1.5, math.fsum(weights) ** 2 / math.fsum(weight**2 for weight in weights))


def _resampled_means(pool: _Pool, rng: Generator, num_resamples: int) -> NDArray[float64]:
    """Means of ``num_resamples`` two-level resamples of one pool; shape (num_resamples,).

    Clusters that are equal are drawn as one kind: with yes-or-no items there are few kinds, and the law is the same.
    """
    import numpy as np

    num_clusters, kinds = len(pool.clusters), Counter(pool.clusters)
    shares = np.array(list(kinds.values())) / num_clusters
    times_BG = rng.multinomial(num_clusters, shares, size=num_resamples)
    totals, weights = np.zeros(num_resamples), np.zeros(num_resamples)
    for cluster, times_B in zip(kinds, times_BG.T, strict=True):
        # A cluster drawn c times gives c·m draws from its m items: a multinomial over its distinct values.
        distinct, counts = np.unique(np.asarray(cluster.values), return_counts=True)
        draws_B = times_B * len(cluster.values)
        totals += cluster.item_weight * (rng.multinomial(draws_B, counts / len(cluster.values)) @ distinct)
        weights += cluster.item_weight * draws_B
    means: NDArray[float64] = totals / weights
    return means


def _expanded_tail(tail: float, freedom: float, alone: bool) -> float:
    """The level of the percentile; Student's where most clusters hold one item and the second level draws nothing."""
    normal = NormalDist()
    quantile = student_quantile(tail, freedom) if alone else normal.inv_cdf(tail)
    return normal.cdf(math.sqrt((freedom + 1) / freedom) * quantile)


def _without_variation(
    value: float, num_clusters: int, bounds: tuple[float, float] | None, level: float
) -> tuple[float, float]:
    if bounds is None:
        return value, value
    deviating = wilson(0, num_clusters, level).high
    return value - deviating * (value - bounds[0]), value + deviating * (bounds[1] - value)
