"""Candidate against baseline on the same suite, item by item.

Difference = candidate − baseline. Tasks are paired (same task, same seeds), families are resampled whole, and in the
headline strata are weighted by traffic. A comparison is *reliable* when it rests on enough families and its decision
would come out again:

* a difference is claimed when the interval excludes 0, the exact test agrees where few pairs differ, *and* an
  independent re-run would show the same sign with probability .95 or more (``statistics.sign_agreement``). The error of
  a re-run comes from the repeats; with one repeat it is not known and the whole error of the comparison is taken for
  it, which errs on the careful side;
* "no difference" is a finding, and no lack of data, when a difference worth having would have been seen (the minimal
  detectable effect is small enough).

What is not reliable names no winner.

Where reviews have measured how often the verifier is wrong, ``success_corrected`` stands beside ``success``: the
difference of the shares of right work. The headline stays what was seen: errors that are alike on both sides turn no
sign.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import NormalDist, variance

import msgspec

from flightschool.errors import GateError
from flightschool.evaluation.metrics import (
    CORRECTED,
    METRICS,
    TRAFFIC_SCOPES,
    WEIGHTED,
    Metric,
    TaskValue,
    family_or_task,
    scopes_of,
    task_values,
)
from flightschool.evaluation.records import Comparison, Difference, EvaluationItem, EvaluationRun
from flightschool.evaluation.rules import MOST_MISSING
from flightschool.evaluation.summary import NUM_RESAMPLES, informs, present_shares
from flightschool.statistics import (
    Interval,
    McNemar,
    corrected_difference,
    corrected_rate,
    e_value,
    mcnemar_exact,
    paired_bootstrap,
    sign_agreement,
)

__all__ = [
    "FEW_DISCORDANT",
    "LEAST_AGREEMENT",
    "LEAST_FAMILIES",
    "LEAST_JUDGE_ALPHA",
    "MOST_MISSING",
    "WORTH_OF_A_MEAN",
    "WORTH_OF_A_RATE",
    "compare",
]

LEAST_FAMILIES = 5
"""Families below which no difference is called reliable."""
WORTH_OF_A_RATE = 0.1
"""Difference of a rate that is worth having."""
WORTH_OF_A_MEAN = 0.1
"""Difference of another mean that is worth having, as a share of the baseline's."""
POWER = 0.8
FEW_DISCORDANT = 25
"""Discordant pairs below which a claim must stand in the exact test as well (the usual rule for McNemar's)."""
LEAST_AGREEMENT = 0.95
"""Probability that a re-run shows the same sign, below which no winner is named."""
LEAST_JUDGE_ALPHA = 0.667
"""Krippendorff's own floor for tentative conclusions: below it a judge's grades decide nothing."""

HEADLINE = f"success/{WEIGHTED}"


def compare(
    before: EvaluationRun,
    after: EvaluationRun,
    *,
    seed: int = 0,
    level: float = 0.95,
    judge_alpha: float | None = None,
    error: tuple[Interval, Interval] | None = None,
) -> Comparison:
    """Compare two runs.

    Args:
        before: the baseline.
        after: the candidate.
        seed: seed of the resampling.
        level: nominal coverage of the intervals; 1 − .05 / m for the best of m candidates.
        judge_alpha: agreement of the judge with people, where a judge grades (``judging.judged``); NaN: not known.
        error: (ρ0, ρ1) of the verifier, from reviews of attempts under the same checks: with them
            ``success_corrected`` stands beside ``success`` in every scope.

    Raises:
        GateError: other suites, environments, graders, weather, seeds or repeats; or too many items without a grade.
    """
    _refuse_unlike(before, after)
    _refuse_missing(before)
    _refuse_missing(after)
    first, second = _paired(before, after)
    differences = _differences(first, second, before.weights, seed, level, error)
    headline = next((d for d in differences if d.name == HEADLINE), None)
    if headline is None:
        raise GateError(
            "fewer than two tasks can be paired",
            where=f"suite {before.suite}",
            expected="at least two graded tasks in both runs",
            mend="freeze a larger suite",
        )
    mcnemar = _mcnemar(first, second)
    reasons = _doubts(headline, judge_alpha, mcnemar if before.repeats == 1 else None, level)
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
        reliable=not reasons,
        winner=None if reasons else headline.winner,
        sign_agreement=headline.sign_agreement,
        e_value=e_value(mcnemar.gained, mcnemar.lost),
        doubts=reasons,
        mcnemar=mcnemar,
        differences=tuple(differences),
        num_missing_before=before.num_missing,
        num_missing_after=after.num_missing,
    )


def _differences(
    first: Sequence[EvaluationItem],
    second: Sequence[EvaluationItem],
    weights: Mapping[str, float],
    seed: int,
    level: float,
    error: tuple[Interval, Interval] | None,
) -> list[Difference]:
    """In every metric and scope that both runs have; the runs are of one suite, hence of the same weights."""
    found: list[Difference] = []
    for metric in METRICS:
        scopes_after = scopes_of(task_values(second, metric), weights)
        for scope, members in scopes_of(task_values(first, metric), weights).items():
            if len(members) > 1 and scope in scopes_after:  # one side may not know what it cost
                luck = _rerun_error(first, second, metric, scope, weights)
                pair = (members, scopes_after[scope])
                difference = _difference(metric, scope, pair, weights, seed, level, luck)
                found.append(difference)
                if metric.name == "success" and error is not None and informs(error):
                    found.append(_corrected(difference, scope, error, level))
    return found


def _difference(
    metric: Metric,
    scope: str,
    pair: tuple[Sequence[TaskValue], Sequence[TaskValue]],
    weights: Mapping[str, float],
    seed: int,
    level: float,
    luck: float | None,
) -> Difference:
    members, others = pair
    clusters, _ = family_or_task(members)
    strata = [m.stratum for m in members] if scope in TRAFFIC_SCOPES else [scope] * len(members)
    shares = present_shares(members, weights) if scope in TRAFFIC_SCOPES else {scope: 1.0}
    left, right = [m.value for m in members], [m.value for m in others]
    if not metric.is_rate and left == right:  # no bound to reach to, as a rate would have
        interval = Interval(value=0.0, low=0.0, high=0.0, num_items=len(left), method="no difference", level=level)
    else:
        interval = paired_bootstrap(left, right, clusters, seed, level, NUM_RESAMPLES, strata=strata, shares=shares)
    before, after = _mean(left, strata, shares), _mean(right, strata, shares)
    mde = _minimal_detectable(interval)
    num_families = len({m.family for m in members})
    worth = WORTH_OF_A_RATE if metric.is_rate else WORTH_OF_A_MEAN * abs(before)
    quantile = NormalDist().inv_cdf((1 + level) / 2)
    again = sign_agreement(interval.value, (interval.high - interval.low) / 2 / quantile if luck is None else luck)
    claimed = interval.excludes(0.0)
    reliable = num_families >= LEAST_FAMILIES and (again >= LEAST_AGREEMENT if claimed else mde <= worth)
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
        sign_agreement=again,
        reliable=reliable,
        winner=_winner(metric, interval) if reliable else None,
    )


def _corrected(seen: Difference, scope: str, error: tuple[Interval, Interval], level: float) -> Difference:
    """A difference of success freed of the verifier's errors: no less sure of its sign than what was seen."""

    def interval(value: float, low: float, high: float) -> Interval:
        return Interval(value=value, low=low, high=high, num_items=seen.num_pairs, method="paired", level=level)

    found = corrected_difference(interval(seen.diff, seen.low, seen.high), *error)
    before, after = (corrected_rate(interval(rate, rate, rate), *error).value for rate in (seen.before, seen.after))
    mde = _minimal_detectable(found)
    claimed = found.excludes(0.0)
    settled = seen.sign_agreement >= LEAST_AGREEMENT if claimed else mde <= WORTH_OF_A_RATE
    reliable = seen.num_families >= LEAST_FAMILIES and settled
    return msgspec.structs.replace(
        seen,
        name=f"{CORRECTED.name}/{scope}",
        before=before,
        after=after,
        diff=found.value,
        low=found.low,
        high=found.high,
        mde=mde,
        reliable=reliable,
        winner=_winner(CORRECTED, found) if reliable else None,
    )


def _rerun_error(
    first: Sequence[EvaluationItem],
    second: Sequence[EvaluationItem],
    metric: Metric,
    scope: str,
    weights: Mapping[str, float],
) -> float | None:
    """Standard error of the difference over re-runs of the same tasks: √(Σ w² · (s²_before + s²_after) / repeats).

    None where some task of the scope has one repeat: a single attempt does not show its own luck.
    """
    members = scopes_of(task_values(first, metric), weights)[scope]
    shares = present_shares(members, weights) if scope in TRAFFIC_SCOPES else {}
    sizes = Counter(member.stratum for member in members)
    total = 0.0
    by_task = [_by_task(first, metric), _by_task(second, metric)]
    for member in members:
        weight = shares[member.stratum] / sizes[member.stratum] if scope in TRAFFIC_SCOPES else 1 / len(members)
        for values in (side[member.task] for side in by_task):
            if len(values) < 2:
                return None
            total += weight**2 * variance(values) / len(values)
    return math.sqrt(total)


def _by_task(items: Sequence[EvaluationItem], metric: Metric) -> dict[str, list[float]]:
    values: dict[str, list[float]] = defaultdict(list)
    for item in items:
        value = metric.of(item)
        if value is not None:
            values[item.task].append(value)
    return values


def _doubts(headline: Difference, judge_alpha: float | None, mcnemar: McNemar | None, level: float) -> tuple[str, ...]:
    """Why the headline decides nothing; empty when it does. ``mcnemar``: where each task was attempted once."""
    found = []
    if headline.num_families < LEAST_FAMILIES:
        found.append(f"{headline.num_families} families, fewer than {LEAST_FAMILIES}")
    claimed = headline.low > 0 or headline.high < 0
    if claimed and headline.sign_agreement < LEAST_AGREEMENT:
        found.append(f"a re-run would show the same sign with probability {headline.sign_agreement:.2f} only")
    if (
        claimed
        and mcnemar is not None
        and mcnemar.gained + mcnemar.lost < FEW_DISCORDANT
        and mcnemar.p_value > 1 - level
    ):
        found.append(
            f"{mcnemar.gained} tasks gained and {mcnemar.lost} lost: the exact test calls that chance "
            f"(p = {mcnemar.p_value:.2f})"
        )
    if not claimed and headline.mde > WORTH_OF_A_RATE:
        found.append(f"differences up to {headline.mde:.2f} would be missed, {WORTH_OF_A_RATE} is worth having")
    if judge_alpha is not None and math.isnan(judge_alpha):
        found.append("a judge grades, and no review label says how far it agrees with people")
    elif judge_alpha is not None and judge_alpha < LEAST_JUDGE_ALPHA:
        found.append(f"the judge agrees with people only to alpha {judge_alpha:.2f}, below {LEAST_JUDGE_ALPHA}")
    return tuple(found)


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
    suspected = {item.task: item.suspected for pair in pairs for item in pair if item.suspected}

    def marked(item: EvaluationItem) -> EvaluationItem:
        """Suspected in both if it is in one: a pair has one scope."""
        return msgspec.structs.replace(item, suspected=suspected.get(item.task, ""))

    return [marked(one) for one, _ in pairs], [marked(other) for _, other in pairs]


def _mcnemar(first: Sequence[EvaluationItem], second: Sequence[EvaluationItem]) -> McNemar:
    """On the first repeats alone: repeats of one task are not independent."""
    rows = [(bool(a.success), bool(b.success)) for a, b in zip(first, second, strict=True) if a.repeat == 0]
    return mcnemar_exact([a for a, _ in rows], [b for _, b in rows])


def _refuse_unlike(before: EvaluationRun, after: EvaluationRun) -> None:
    fields = (
        "suite_digest",
        "environment_digest",
        "composition_digest",
        "noise_digest",
        "seed",
        "repeats",
        "rules",
        "enforced",
        "seeds_of",
    )
    unlike = [name for name in fields if getattr(before, name) != getattr(after, name)]
    if unlike:
        name = unlike[0]
        raise GateError(
            f"the runs differ in {', '.join(unlike)}: they are not paired",
            where=f"{before.id} and {after.id}",
            expected=f"equal {name}, got {getattr(before, name)!r} and {getattr(after, name)!r}",
            mend="scores across this border are not comparable: measure both policies on the same frozen suite, in the "
            "same weather, with the same seed",
        )


def _refuse_missing(run: EvaluationRun) -> None:
    most = run.rules.most_missing
    if run.missing_share > most:
        raise GateError(
            f"{run.num_missing} of {len(run.items)} items have no grade",
            where=f"evaluation {run.id}",
            expected=f"at most {most:.0%}, as registered",
            mend="mend what failed (engine, world or grader) and measure again: a shrunken denominator proves nothing",
        )
