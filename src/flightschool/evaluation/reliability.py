"""Whether a suite measures anything twice alike: diagnostics of one or several runs on it.

The gate stands in ``comparison`` and asks about the decision. Here stands what explains it: ICC of the tasks over
repeats, a G-study of systems × tasks × runs, the stability of the order, and what the next measurement should look
like (D-study). Runs must be on one suite with equal seeds and repeats; tasks that are missing in any of them are left
out and counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from flightschool.errors import GateError, InputError
from flightschool.evaluation.comparison import LEAST_AGREEMENT
from flightschool.evaluation.metrics import METRICS, family_or_task, task_values
from flightschool.evaluation.records import EvaluationRun
from flightschool.records import Record
from flightschool.statistics import (
    Design,
    IntraclassCorrelation,
    RankStability,
    VarianceComponents,
    cheapest_design,
    cronbach_alpha,
    dependability,
    g_study,
    generalizability,
    icc_oneway,
    pass_at_k,
    pass_hat_k,
    rank_stability,
    repeats_for,
    sign_agreement,
    standard_error_of_measurement,
)

__all__ = ["Reliability", "SystemReliability", "reliability"]

WANTED = 0.8
"""Coefficient that the plans aim at: the usual floor for telling groups apart (Nunnally 1978)."""
_SUCCESS = METRICS[0]


class SystemReliability(Record, frozen=True, kw_only=True):
    """One policy over repeats of the same tasks."""

    policy: str
    success: float
    icc: IntraclassCorrelation | None
    """None with one repeat: nothing was measured twice."""
    repeats_wanted: int | None
    """Repeats for an average reliability of .8; None if none would do, or nothing is known."""
    sem: float | None
    """Error of a single task's score: sd · √(1 − ICC of the mean)."""
    pass_at: dict[str, float]
    """k → mean pass@k over tasks."""
    pass_hat: dict[str, float]
    """k → mean pass^k over tasks."""


class Reliability(Record, frozen=True, kw_only=True):
    """What runs on one suite say about the suite."""

    suite: str
    suite_digest: str
    num_tasks: int
    num_left_out: int
    """Tasks that some run did not grade in every repeat."""
    systems: tuple[SystemReliability, ...]
    components: VarianceComponents | None
    """None with a single system."""
    coefficient: float | None
    """Eρ²: reliability of telling these systems apart with this suite and these repeats."""
    dependability: float | None
    """Φ: reliability of the scores as such."""
    alpha: float | None
    """Cronbach's alpha over tasks."""
    ranking: RankStability | None
    least_agreement: float | None
    """Least probability, over pairs of systems, that a re-run shows the same sign; from repeats."""
    winner: str | None
    """First of several systems, where the order is reliable: first again in 95 % of resamples, and a re-run would show
    every pair the same way round with that probability; None where it is not, or for a single system."""
    plan: Design | None
    """Cheapest design with Eρ² ≥ .8, None where none does."""
    notes: tuple[str, ...]


def reliability(
    runs: Sequence[EvaluationRun], *, cost_of_a_task: float = 0.0, cost_of_a_run: float = 1.0, seed: int = 0
) -> Reliability:
    """Diagnose the success scores of runs on one suite.

    Args:
        runs: one a system.
        cost_of_a_task: what one more task costs to make.
        cost_of_a_run: what one attempt costs.
        seed: of the resampling.

    Raises:
        InputError: no runs, or one policy twice.
        GateError: runs of other suites, seeds or repeats.
    """
    _require_alike(runs)
    tables = [_table(run) for run in runs]
    tasks = [task for task in tables[0] if all(len(table.get(task, ())) == runs[0].repeats for table in tables)]
    left_out = len({item.task for run in runs for item in run.items}) - len(tasks)
    if len(tasks) < 2:
        raise GateError(
            f"{len(tasks)} tasks were graded in every repeat of every run",
            where=f"suite {runs[0].suite}",
            expected="two or more",
            mend="mend what failed and measure again",
        )
    scores = [[table[task] for task in tasks] for table in tables]
    several = len(runs) > 1
    found = g_study([[[[x] for x in row] for row in system] for system in scores]) if several else None
    means = [[sum(row) / len(row) for row in system] for system in scores]
    names = _names(runs)
    repeats = runs[0].repeats
    clusters = _clusters(runs[0], tasks)
    ranking = None
    if several and len(set(clusters)) > 1:
        ranking = rank_stability(dict(zip(names, means, strict=True)), clusters, seed=seed)
    agreement = _least_agreement(scores) if several and repeats > 1 else None
    return Reliability(
        suite=runs[0].suite,
        suite_digest=runs[0].suite_digest,
        num_tasks=len(tasks),
        num_left_out=left_out,
        systems=tuple(_system(name, rows) for name, rows in zip(names, scores, strict=True)),
        components=found,
        coefficient=None if found is None else generalizability(found, len(tasks), repeats),
        dependability=None if found is None else dependability(found, len(tasks), repeats),
        alpha=cronbach_alpha(means) if several else None,
        ranking=ranking,
        least_agreement=agreement,
        winner=_winner(ranking, agreement),
        plan=None
        if found is None
        else cheapest_design(found, wanted=WANTED, cost_of_a_task=cost_of_a_task, cost_of_a_run=cost_of_a_run),
        notes=tuple(_notes(runs, found, left_out)),
    )


def _require_alike(runs: Sequence[EvaluationRun]) -> None:
    if not runs or len({run.id for run in runs}) < len(runs):
        raise InputError(
            "no runs" if not runs else "one evaluation is named twice",
            where="reliability",
            expected="one evaluation a system",
            mend="see flightschool eval list",
        )
    for name in ("suite_digest", "environment_digest", "composition_digest", "noise_digest", "seed", "repeats"):
        values = {getattr(run, name) for run in runs}
        if len(values) > 1:
            raise GateError(
                f"the runs differ in {name}",
                where=", ".join(run.id for run in runs),
                expected=f"one {name}",
                mend="measure all policies on the same suite, in the same weather, with the same seed and repeats",
            )


def _table(run: EvaluationRun) -> dict[str, list[float]]:
    table: dict[str, list[float]] = {}
    for item in run.graded:
        table.setdefault(item.task, []).append(float(bool(item.success)))
    return table


def _names(runs: Sequence[EvaluationRun]) -> list[str]:
    """Policies, with the run's id where two share a name."""
    policies = [run.policy for run in runs]
    return [run.policy if policies.count(run.policy) == 1 else f"{run.policy} ({run.id})" for run in runs]


def _clusters(run: EvaluationRun, tasks: Sequence[str]) -> list[str]:
    values = {value.task: value for value in task_values(run.items, _SUCCESS)}
    return family_or_task([values[task] for task in tasks])[0]


def _system(name: str, rows: Sequence[Sequence[float]]) -> SystemReliability:
    k = len(rows[0])
    means = [sum(row) / k for row in rows]
    mean = sum(means) / len(means)
    icc = icc_oneway(rows) if k > 1 else None
    sem = None
    if icc is not None:
        spread = (sum((m - mean) ** 2 for m in means) / (len(means) - 1)) ** 0.5
        sem = standard_error_of_measurement(spread, icc.average)
    sizes = [n for n in (1, 2, 4, 8, 16, 32) if n <= k]
    counts = [round(sum(row)) for row in rows]
    return SystemReliability(
        policy=name,
        success=mean,
        icc=icc,
        repeats_wanted=None if icc is None or icc.degenerate else repeats_for(icc.single, WANTED),
        sem=sem,
        pass_at={str(n): sum(pass_at_k(c, k, n) for c in counts) / len(counts) for n in sizes},
        pass_hat={str(n): sum(pass_hat_k(c, k, n) for c in counts) / len(counts) for n in sizes},
    )


def _winner(ranking: RankStability | None, agreement: float | None) -> str | None:
    """The first, if it would be first again."""
    if ranking is None or ranking.first_again < LEAST_AGREEMENT:
        return None
    return None if agreement is not None and agreement < LEAST_AGREEMENT else ranking.order[0]


def _least_agreement(scores: Sequence[Sequence[Sequence[float]]]) -> float:
    def luck(system: Sequence[Sequence[float]]) -> float:
        within = 0.0
        for row in system:
            mean = sum(row) / len(row)
            within += sum((x - mean) ** 2 for x in row) / (len(row) - 1) / len(row)
        return within / len(system) ** 2

    means = [sum(sum(row) / len(row) for row in system) / len(system) for system in scores]
    errors = [luck(system) for system in scores]
    return min(
        sign_agreement(means[a] - means[b], (errors[a] + errors[b]) ** 0.5)
        for a, b in itertools.combinations(range(len(scores)), 2)
    )


def _notes(runs: Sequence[EvaluationRun], found: VarianceComponents | None, left_out: int) -> list[str]:
    notes = []
    if runs[0].repeats == 1:
        notes.append("one repeat: luck cannot be told from tasks; measure with --repeats 2 or more")
    if len(runs) == 1:
        notes.append("one system: ICC tells tasks apart, not systems; name two or more evaluations for a G-study")
    if left_out:
        notes.append(f"{left_out} tasks were not graded in every repeat of every run and are left out here")
    if found is not None and found.cut:
        notes.append(f"variance components estimated below 0 are given as 0: {', '.join(found.cut)}")
    if found is not None and len(runs) < 5:
        notes.append(f"{len(runs)} systems: the component of systems, and all that rests on it, is known only roughly")
    return notes
