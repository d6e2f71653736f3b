"""Several candidates at once: corrected p-values, and how stable their order is.

Holm (Scandinavian Journal of Statistics 6, 1979) keeps the chance of *any* false claim below α and is never weaker than
Bonferroni. An order of candidates is a claim too: ``rank_stability`` resamples whole clusters and asks how often the
first is first again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flightschool.digest import derive_seed
from flightschool.errors import InputError
from flightschool.records import Record
from flightschool.statistics.interval import check_finite

__all__ = ["RankStability", "holm", "rank_stability"]


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values, in the order given: reject those below α.

    Raises:
        InputError: something that is no probability.
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise InputError("no probability", where="holm", expected="0..1", mend="pass p-values")
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, highest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = highest
    return adjusted


class RankStability(Record, frozen=True, kw_only=True):
    """How an order of systems holds when the suite is drawn again."""

    order: tuple[str, ...]
    """Best first."""
    first_again: float
    """Share of resamples in which the first is first; ties share."""
    kendall: float
    """Mean τ between the order and those of the resamples."""
    rank_low: dict[str, float]
    rank_high: dict[str, float]
    """Percentile interval of each system's rank."""


def rank_stability(
    scores: Mapping[str, Sequence[float]],
    clusters: Sequence[str],
    *,
    seed: int = 0,
    level: float = 0.95,
    num_resamples: int = 2000,
) -> RankStability:
    """Resample clusters with replacement, rank the systems by mean each time.

    Args:
        scores: system → one score an item, higher is better, items in one order.
        clusters: the items' clusters.
        seed: of the resampling.
        level: of the rank intervals.
        num_resamples: resamples drawn.

    Raises:
        InputError: fewer than two systems or clusters, lengths differ, or values that are not finite.
    """
    import numpy as np

    systems = sorted(scores)
    distinct = sorted(set(clusters))
    if len(systems) < 2 or len(distinct) < 2 or any(len(scores[s]) != len(clusters) for s in systems):
        raise InputError(
            f"{len(systems)} systems, {len(distinct)} clusters",
            where="rank_stability",
            expected="two or more of each, a score an item from each system",
            mend="measure all systems on the same suite",
        )
    for system in systems:
        check_finite(scores[system], system)
    index = {name: place for place, name in enumerate(distinct)}
    sums = np.zeros((len(distinct), len(systems)))
    sizes = np.zeros(len(distinct))
    for item, cluster in enumerate(clusters):
        sizes[index[cluster]] += 1
        sums[index[cluster]] += [scores[system][item] for system in systems]
    rng = np.random.default_rng(derive_seed("ranks", seed))
    times = rng.multinomial(len(distinct), np.full(len(distinct), 1 / len(distinct)), size=num_resamples)
    means_BS = np.round((times @ sums) / (times @ sizes)[:, None], 12)
    overall = np.round(sums.sum(0) / sizes.sum(), 12)
    order = sorted(range(len(systems)), key=lambda s: (-overall[s], systems[s]))
    best = means_BS.max(1, keepdims=True)
    ties = means_BS == best
    first_again = float((ties[:, order[0]] / ties.sum(1)).mean())
    ranks_BS = 1 + (means_BS[:, :, None] < means_BS[:, None, :]).sum(2)
    tail = (1 - level) / 2
    low, high = np.quantile(ranks_BS, [tail, 1 - tail], axis=0)
    agreement = np.zeros(num_resamples)
    for one in range(len(systems)):
        for other in range(one):
            agreement += np.sign(overall[one] - overall[other]) * np.sign(means_BS[:, one] - means_BS[:, other])
    pairs = len(systems) * (len(systems) - 1) / 2
    return RankStability(
        order=tuple(systems[s] for s in order),
        first_again=first_again,
        kendall=float(agreement.mean() / pairs),
        rank_low={name: float(low[s]) for s, name in enumerate(systems)},
        rank_high={name: float(high[s]) for s, name in enumerate(systems)},
    )
