"""Coverage of the intervals that evaluations give, and errors of the sequential test: summed exactly, or simulated.

Coverage of the exact interval and the errors of the sequential test are summed over all outcomes. The clustered
interval is the one that ``summarise`` gives a single stratum, on simulated Beta–Binomial families; the headline is
``summarise``'s own, on suites drawn as the worked domain's are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from flightschool.digest import derive_random
from flightschool.evaluation import EvaluationItem, EvaluationRun, summarise
from flightschool.records import EndReason, Outcome, Record
from flightschool.statistics import (
    FEW_FAILING_CLUSTERS,
    Interval,
    SequentialPlan,
    blaker,
    cluster_bootstrap_mean,
    korn_graubard,
    num_failing_clusters,
)

__all__ = [
    "CLUSTERED_RATES",
    "CORRELATIONS",
    "RARE",
    "STRATA_RATES",
    "Simulated",
    "clustered_cell",
    "clustered_coverage",
    "exact_coverage",
    "sequential_errors",
    "weighted_coverage",
]

SIZES, RATES = (20, 50, 200), (0.5, 0.9, 0.97)
CLUSTERS, ITEMS = 25, 8
CORRELATIONS, CLUSTERED_RATES = (0.0, 0.1, 0.3), (0.5, 0.9)
NUM_RESAMPLES = 1_000
RARE = 0.97
STRATA, SHARES = (15, 2, 2, 2, 2), (0.35, 0.25, 0.15, 0.15, 0.10)
"""Families of each stratum and their traffic: how a suite of the worked domain is drawn, a task a family."""
STRATA_RATES = ((0.7, 0.7, 0.7, 0.7, 0.7), (0.95, 0.5, 0.8, 0.3, 0.9), (0.9, 0.9, 0.9, 0.9, 0.9))
STRATIFIED_TRIALS = 2_000


def exact_coverage() -> list[float]:
    """Coverage of the interval of n independent items at rate p, summed over all outcomes, for all sizes and rates."""
    found = []
    for n in SIZES:
        bounds = [blaker(k, n) for k in range(n + 1)]
        for p in RATES:
            mass = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
            found.append(math.fsum(m for m, one in zip(mass, bounds, strict=True) if one.low <= p <= one.high))
    return found


class Simulated(Record, frozen=True, kw_only=True):
    """Simulated suites of one cell."""

    coverage: float
    """Share of the intervals that hold the rate."""
    warned: float
    """Of those with few failing families, the share that says so; 1 where there was none."""


def clustered_coverage(icc: float, rate: float, trials: int, *, seed: int = 0) -> Simulated:
    """Simulate suites of 25 families of 8 and take the interval that ``summarise`` gives.

    Families are Beta–Binomial with intra-family correlation ``icc``. Where few families fail, the conservative
    interval is the one that is given, with its warning.
    """
    random = derive_random("clustered", seed, str(icc), str(rate))
    clusters = [f"c{index // ITEMS}" for index in range(CLUSTERS * ITEMS)]
    covered = few = warned = 0
    for trial in range(trials):
        values: list[float] = []
        for _ in range(CLUSTERS):
            p = rate if icc == 0 else random.betavariate(rate * (1 / icc - 1), (1 - rate) * (1 / icc - 1))
            values += [float(random.random() < p) for _ in range(ITEMS)]
        found = _interval(values, clusters, trial)
        covered += found.low <= rate <= found.high
        if num_failing_clusters(values, clusters) < FEW_FAILING_CLUSTERS:
            few += 1
            warned += "correlation assumed" in found.method
    return Simulated(coverage=covered / trials, warned=warned / few if few else 1.0)


def weighted_coverage(rates: Sequence[float], trials: int = STRATIFIED_TRIALS, *, seed: int = 0) -> float:
    """Simulate suites drawn as the worked domain's, and take the headline that ``summarise`` gives.

    Args:
        rates: success of each stratum.
        trials: simulated suites.
        seed: of the draws.
    """
    random = derive_random("weighted", seed, str(tuple(rates)))
    strata = [number for number, size in enumerate(STRATA) for _ in range(size)]
    truth = sum(share * rate for share, rate in zip(SHARES, rates, strict=True))
    covered = 0
    for trial in range(trials):
        found = summarise(_drawn(strata, rates, random), seed=trial, only=("success/weighted",))
        headline = found.measurement("success/weighted")
        covered += headline.low <= truth <= headline.high
    return covered / trials


def _drawn(strata: Sequence[int], rates: Sequence[float], random: Random) -> EvaluationRun:
    """A run in which each task succeeds with its stratum's rate."""
    items = tuple(
        EvaluationItem(
            task=f"t{number}",
            family=f"f{number}",
            stratum=f"s{stratum}",
            trained=False,
            repeat=0,
            seed=0,
            success=random.random() < rates[stratum],
            outcome=Outcome.SCORED,
            reason=EndReason.FINISHED,
            violations=(),
            virtual_ms=0.0,
            num_tokens=0,
            num_calls=0,
            num_retries=0,
            attempt="",
            attempt_digest="",
        )
        for number, stratum in enumerate(strata)
    )
    return EvaluationRun(
        id="drawn",
        suite="s",
        suite_digest="",
        environment="e",
        environment_digest="",
        policy="p",
        noise="clean",
        noise_digest="",
        composition_digest="",
        repeats=1,
        seed=0,
        holdout=False,
        weights={f"s{number}": share for number, share in enumerate(SHARES)},
        items=items,
    )


def clustered_cell(cell: tuple[float, float, int]) -> Simulated:
    """``clustered_coverage`` of one cell, for a pool of processes."""
    return clustered_coverage(*cell)


def _interval(values: Sequence[float], clusters: Sequence[str], seed: int) -> Interval:
    if num_failing_clusters(values, clusters) < FEW_FAILING_CLUSTERS:
        return korn_graubard(values, clusters)
    return cluster_bootstrap_mean(values, clusters, seed, 0.95, NUM_RESAMPLES)


def sequential_errors(plan: SequentialPlan, effect: float, discordant: float) -> tuple[float, float]:
    """Exact probability that the plan decides at all (for the candidate, if there is an effect), and its mean sample.

    The state after each pair is (discordant pairs so far, wins − losses); nothing is drawn at random.
    """
    import numpy as np

    most, edge = plan.most_discordant, plan.boundary
    up, down = (discordant + effect) / 2, (discordant - effect) / 2
    width = 2 * edge + 1
    state = np.zeros((most + 1, width))
    state[0, edge] = 1.0
    decided_up = decided_down = mean = 0.0
    for _ in range(plan.num_pairs):
        alive = float(state.sum())
        mean += alive
        moved = state * (1 - discordant)
        moved[1:, 1:] += up * state[:-1, :-1]
        moved[1:, :-1] += down * state[:-1, 1:]
        decided_up += float(moved[:, width - 1].sum())
        decided_down += float(moved[:, 0].sum())
        moved[:, width - 1] = moved[:, 0] = 0.0
        moved[most, :] = 0.0  # the planned end
        state = moved
    return (decided_up if effect else decided_up + decided_down), mean
