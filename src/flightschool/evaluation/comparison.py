"""Candidate against baseline on the same suite, item by item.

Difference = candidate − baseline. Tasks are paired (same task, same seeds), families are resampled whole, and in the
headline strata are weighted by traffic. A comparison is *reliable* when it rests on enough families and decides
something: its interval excludes 0, or a difference worth having would have been seen (its minimal detectable effect is
small enough), so that "no difference" is a finding and not a lack of data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist

from flightschool.errors import GateError
from flightschool.evaluation.metrics import METRICS, WEIGHTED, Metric, TaskValue, family_or_task, scopes_of, task_values
from flightschool.evaluation.records import Comparison, Difference, EvaluationItem, EvaluationRun
from flightschool.evaluation.summary import NUM_RESAMPLES, present_shares
from flightschool.statistics import Interval, McNemar, mcnemar_exact, paired_bootstrap

__all__ = ["LEAST_FAMILIES", "MOST_MISSING", "WORTH_OF_A_MEAN", "WORTH_OF_A_RATE", "compare"]

MOST_MISSING = 0.02
"""Share of items without a grade above which runs are not compared."""
LEAST_FAMILIES = 5
"""Families below which no difference is called reliable."""
WORTH_OF_A_RATE = 0.1
"""Difference of a rate that is worth having."""
WORTH_OF_A_MEAN = 0.1
"""Difference of another mean that is worth having, as a share of the baseline's."""
POWER = 0.8

HEADLINE = f"success/{WEIGHTED}"


def compare(before: EvaluationRun, after: EvaluationRun, *, seed: int = 0, level: float = 0.95) -> Comparison:
    """Compare two runs.

    Args:
        before: the baseline.
        after: the candidate.
        seed: seed of the resampling.
        level: nominal coverage of the intervals.

    Raises:
        GateError: other suites, environments, graders, weather, seeds or repeats; or too many items without a grade.
    """
    _refuse_unlike(before, after)
    _refuse_missing(before)
    _refuse_missing(after)
    first, second = _paired(before, after)
    differences: list[Difference] = []
    for metric in METRICS:
        scopes_after = scopes_of(task_values(second, metric), after.weights)
        for scope, members in scopes_of(task_values(first, metric), before.weights).items():
            if len(members) > 1:
                pair = (members, scopes_after[scope])
                differences.append(_difference(metric, scope, pair, before.weights, seed, level))
    headline = next((d for d in differences if d.name == HEADLINE), None)
    if headline is None:
        raise GateError(
            "fewer than two tasks can be paired",
            where=f"suite {before.suite}",
            expected="at least two graded tasks in both runs",
            mend="freeze a larger suite",
        )
    return Comparison(
        suite=before.suite,
        suite_digest=before.suite_digest,
        noise=before.noise,
        baseline=before.policy,
        candidate=after.policy,
        diff=headline.diff,
        low=headline.low,
        high=headline.high,
        mde=headline.mde,
        reliable=headline.reliable,
        winner=headline.winner,
        mcnemar=_mcnemar(first, second),
        differences=tuple(differences),
        num_missing_before=before.num_missing,
        num_missing_after=after.num_missing,
    )


def _difference(
    metric: Metric,
    scope: str,
    pair: tuple[Sequence[TaskValue], Sequence[TaskValue]],
    weights: Mapping[str, float],
    seed: int,
    level: float,
) -> Difference:
    members, others = pair
    clusters, _ = family_or_task(members)
    strata = [m.stratum for m in members] if scope == WEIGHTED else [scope] * len(members)
    shares = present_shares(members, weights) if scope == WEIGHTED else {scope: 1.0}
    left, right = [m.value for m in members], [m.value for m in others]
    interval = paired_bootstrap(left, right, clusters, seed, level, NUM_RESAMPLES, strata=strata, shares=shares)
    before, after = _mean(left, strata, shares), _mean(right, strata, shares)
    mde = _minimal_detectable(interval)
    num_families = len({m.family for m in members})
    worth = WORTH_OF_A_RATE if metric.is_rate else WORTH_OF_A_MEAN * abs(before)
    decided = interval.excludes(0.0) or mde <= worth
    return Difference(
        name=f"{metric.name}/{scope}",
        before=before,
        after=after,
        diff=interval.value,
        low=interval.low,
        high=interval.high,
        mde=mde,
        num_pairs=len(members),
        num_families=num_families,
        reliable=num_families >= LEAST_FAMILIES and decided,
        winner=_winner(metric, interval),
    )


def _minimal_detectable(interval: Interval) -> float:
    """(z_level + z_power) · standard error, the error taken from the interval, which knows of families and strata."""
    quantile = NormalDist().inv_cdf((1 + interval.level) / 2)
    half_width = (interval.high - interval.low) / 2
    return half_width * (quantile + NormalDist().inv_cdf(POWER)) / quantile


def _winner(metric: Metric, interval: Interval) -> str | None:
    if not interval.excludes(0.0):
        return None
    return "candidate" if (interval.value > 0) == metric.higher_is_better else "baseline"


def _mean(values: Sequence[float], strata: Sequence[str], shares: Mapping[str, float]) -> float:
    sizes = {stratum: strata.count(stratum) for stratum in shares}
    return sum(shares[stratum] * value / sizes[stratum] for value, stratum in zip(values, strata, strict=True))


def _paired(before: EvaluationRun, after: EvaluationRun) -> tuple[list[EvaluationItem], list[EvaluationItem]]:
    """Items graded in both runs, in the order of the baseline."""
    graded = {(item.task, item.repeat): item for item in after.graded}
    pairs = [(item, graded[item.task, item.repeat]) for item in before.graded if (item.task, item.repeat) in graded]
    return [one for one, _ in pairs], [other for _, other in pairs]


def _mcnemar(first: Sequence[EvaluationItem], second: Sequence[EvaluationItem]) -> McNemar:
    """On the first repeats alone: repeats of one task are not independent."""
    rows = [(bool(a.success), bool(b.success)) for a, b in zip(first, second, strict=True) if a.repeat == 0]
    return mcnemar_exact([a for a, _ in rows], [b for _, b in rows])


def _refuse_unlike(before: EvaluationRun, after: EvaluationRun) -> None:
    fields = ("suite_digest", "environment_digest", "composition_digest", "noise_digest", "seed", "repeats")
    unlike = [name for name in fields if getattr(before, name) != getattr(after, name)]
    if unlike:
        name = unlike[0]
        raise GateError(
            f"the runs differ in {', '.join(unlike)}: they are not paired",
            where=f"{before.id} and {after.id}",
            expected=f"equal {name}, got {getattr(before, name)!r} and {getattr(after, name)!r}",
            mend="measure both policies on the same frozen suite, in the same weather, with the same seed",
        )


def _refuse_missing(run: EvaluationRun) -> None:
    if run.missing_share > MOST_MISSING:
        raise GateError(
            f"{run.num_missing} of {len(run.items)} items have no grade",
            where=f"evaluation {run.id}",
            expected=f"at most {MOST_MISSING:.0%}",
            mend="mend what failed (engine, world or grader) and measure again: a shrunken denominator proves nothing",
        )
