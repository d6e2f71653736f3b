"""What one run says: measurements with intervals by family, beside what is missing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

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
from flightschool.evaluation.records import EvaluationRun, Summary
from flightschool.records import Measurement
from flightschool.statistics import (
    FEW_FAILING_CLUSTERS,
    Interval,
    blaker,
    cluster_bootstrap_mean,
    corrected_rate,
    korn_graubard,
    num_failing_clusters,
    pass_at_k,
    pass_hat_k,
    quantile,
    stratified_mean,
)

__all__ = ["informs", "latency", "present_shares", "repeated", "summarise"]

NUM_RESAMPLES = 4_000
"""Forty measurements a run; another seed moves a bound by about 3 % of the interval's width."""


def summarise(
    run: EvaluationRun,
    *,
    seed: int = 0,
    level: float = 0.95,
    error: tuple[Interval, Interval] | None = None,
    only: Collection[str] | None = None,
) -> Summary:
    """Measurements of accuracy, risk and latency, weighted by traffic, over all, trained and single strata.

    Args:
        run: the run.
        seed: seed of the resampling.
        level: nominal coverage of the intervals.
        error: (ρ0, ρ1) of the verifier, from reviews of attempts under the same checks. With them,
            ``success_corrected`` stands beside ``success``: the share of right work, where that is the share of passes.
        only: names of the measurements that are wanted; all by default.

    Raises:
        GateError: nothing at all was graded.
    """
    if not run.graded:
        raise GateError(
            "no item of the run was graded",
            where=f"evaluation {run.id}",
            expected="at least one attempt that is no infra failure",
            mend="mend the engine or the environment and measure again",
        )
    measurements: list[Measurement] = []
    lonely: dict[str, None] = {}
    notes = _notes(run)
    for metric in METRICS:
        for scope, members in scopes_of(task_values(run.items, metric), run.weights).items():
            if only is not None and f"{metric.name}/{scope}" not in only:
                continue
            if len(members) < 2:
                lonely.setdefault(scope.removeprefix("stratum:"))
                continue
            interval = _interval(metric, members, scope, run.weights, seed, level)
            measurements.append(_measurement(metric, scope, interval))
            if metric.name == "success" and error is not None and informs(error):
                measurements.append(_measurement(CORRECTED, scope, corrected_rate(interval, *error)))
    if lonely:
        notes.append(f"a single task each, which no interval can be given for: {', '.join(lonely)}")
    if error is not None and not informs(error):
        rates = f"ρ0 = {error[0].value:.2f} and ρ1 = {error[1].value:.2f}"
        notes.append(f"by the reviews the verifier says no more than a coin ({rates}): success cannot be corrected")
    succeeded = sum(bool(item.success) for item in run.items)
    return Summary(
        run=run.id,
        suite=run.suite,
        policy=run.policy,
        noise=run.noise,
        num_items=len(run.items),
        num_missing=run.num_missing,
        low_bound=succeeded / len(run.items),
        high_bound=(succeeded + run.num_missing) / len(run.items),
        measurements=tuple(measurements),
        notes=tuple(notes),
    )


def informs(error: tuple[Interval, Interval]) -> bool:
    """Whether a verifier with these (ρ0, ρ1) says more of the work than a coin."""
    return error[0].value + error[1].value < 1.0


def latency(run: EvaluationRun, level: float = 0.95) -> dict[str, Measurement]:
    """Median and 95th percentile over tasks (repeats averaged), in ms: critical path (virtual clock) and real time.

    Keys ``p50``, ``p95``, ``wall_p50``, ``wall_p95``; empty when nothing was graded.
    """
    virtual = next(metric for metric in METRICS if metric.name == "virtual_ms")
    real = Metric(name="wall_ms", unit="ms", higher_is_better=False, is_rate=False, of=lambda item: item.wall_ms)
    found: dict[str, Measurement] = {}
    for metric, prefix in ((virtual, ""), (real, "wall_")):
        values = [item.value for item in task_values(run.items, metric)]
        for label, q in (("p50", 0.5), ("p95", 0.95)) if values else ():
            one = quantile(values, q, level)
            found[f"{prefix}{label}"] = Measurement(
                name=f"{metric.name}/{label}",
                value=one.value,
                low=one.low,
                high=one.high,
                num_items=one.num_items,
                unit="ms",
                method=one.method,
            )
    return found


def repeated(run: EvaluationRun, *, seed: int = 0, level: float = 0.95) -> dict[str, Measurement]:
    """pass@k (any of k attempts succeeds) and pass^k (all of them do), weighted by traffic; empty with one repeat.

    Keys ``pass@2``, ``pass^2``, ``pass@4`` … up to the number of repeats. Unbiased (``statistics.pass_at_k``); tasks
    with fewer than k grades are left out of that k, and counted by ``num_items``.
    """
    marks: dict[str, list[bool]] = {}
    for item in run.graded:
        marks.setdefault(item.task, []).append(bool(item.success))
    means = task_values(run.items, METRICS[0])
    sizes = sorted({k for k in (2, 4, 8, 16, 32) if k <= run.repeats} | ({run.repeats} if run.repeats > 1 else set()))
    found: dict[str, Measurement] = {}
    for k in sizes:
        for label, estimate in ((f"pass@{k}", pass_at_k), (f"pass^{k}", pass_hat_k)):
            members = [
                replace(one, value=estimate(sum(marks[one.task]), len(marks[one.task]), k))
                for one in means
                if len(marks[one.task]) >= k
            ]
            if len(members) > 1:
                interval = _interval(METRICS[0], members, WEIGHTED, run.weights, seed, level)
                found[label] = _measurement(replace(METRICS[0], name=label), WEIGHTED, interval)
    return found


def present_shares(members: Sequence[TaskValue], weights: Mapping[str, float]) -> dict[str, float]:
    """Shares of the strata that have members, scaled to sum to 1."""
    present = {member.stratum for member in members}
    total = math.fsum(weights[stratum] for stratum in present)
    if total == 0:  # traffic never meets these strata; each item then counts the same
        return {stratum: sum(m.stratum == stratum for m in members) / len(members) for stratum in sorted(present)}
    return {stratum: weights[stratum] / total for stratum in sorted(present)}


def _interval(
    metric: Metric, members: Sequence[TaskValue], scope: str, weights: Mapping[str, float], seed: int, level: float
) -> Interval:
    """The interval of a scope: exact for independent yes-or-no tasks, conservative where few families fail.

    Elsewhere the bootstrap by family, in which strata of few families vary together.
    """
    values = [member.value for member in members]
    clusters, remark = family_or_task(members)
    strata = [member.stratum for member in members]
    weighted = scope in TRAFFIC_SCOPES and len(set(strata)) > 1
    shares = present_shares(members, weights) if weighted else {}
    if not metric.is_rate and len(set(values)) == 1:  # a time or a count that never varied has no bound to reach to
        interval = Interval(
            value=values[0], low=values[0], high=values[0], num_items=len(values), method="no variation", level=level
        )
    elif metric.is_rate and not weighted and len(set(clusters)) == len(values) and set(values) <= {0.0, 1.0}:
        interval = blaker(round(sum(values)), len(values), level)
    elif metric.is_rate and _is_rare(values, clusters) and not (weighted and len(set(values)) == 1):
        sizes = Counter(strata)
        own = [shares[stratum] / sizes[stratum] for stratum in strata] if weighted else None
        interval = korn_graubard(values, clusters, level, own)
    elif weighted:
        interval = stratified_mean(values, strata, shares, clusters, seed, level, NUM_RESAMPLES)
    else:
        interval = cluster_bootstrap_mean(values, clusters, seed, level, NUM_RESAMPLES)
    return Interval(
        value=interval.value,
        low=interval.low,
        high=interval.high,
        num_items=interval.num_items,
        method=interval.method + remark,
        level=level,
    )


def _is_rare(values: Sequence[float], clusters: Sequence[str]) -> bool:
    failing = num_failing_clusters(values, clusters)
    succeeding = num_failing_clusters([1.0 - value for value in values], clusters)
    return min(failing, succeeding) < FEW_FAILING_CLUSTERS


def _measurement(metric: Metric, scope: str, interval: Interval) -> Measurement:
    return Measurement(
        name=f"{metric.name}/{scope}",
        value=interval.value,
        low=interval.low,
        high=interval.high,
        num_items=interval.num_items,
        unit=metric.unit,
        method=interval.method,
    )


def _notes(run: EvaluationRun) -> list[str]:
    notes = []
    if run.num_missing:
        notes.append(
            f"{run.num_missing} of {len(run.items)} items have no grade (infra failures after retries): they "
            "count neither as successes nor as failures here; the bounds show what they could change"
        )
    silent = sorted(set(run.weights) - {item.stratum for item in run.graded})
    if silent:
        notes.append(f"nothing can be said of stratum {', '.join(silent)}; the shares of the others were scaled up")
    suspected = sorted({item.task for item in run.items if item.suspected})
    if suspected:
        notes.append(
            f"{len(suspected)} tasks have kin in what the policy was trained on: scopes clean and suspected stand "
            "apart, nothing was dropped"
        )
    return notes
