"""``eval reliability · validity``: whether scores come out again, and whether they mean anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import typer

from flightschool.cli import output
from flightschool.cli.references import existing_path, workspace
from flightschool.cli.verb import verb

if TYPE_CHECKING:
    from flightschool.evaluation import EvaluationRun, Reliability, Validity
    from flightschool.store import SqlStore

__all__ = ["register"]

EVALUATION_KIND = "evaluation"


def register(evaluation: typer.Typer) -> None:
    """Add the verbs to the group ``eval``."""
    verb(evaluation, "reliability", example="flightschool eval reliability eval-0001 eval-0002")(reliability)
    verb(evaluation, "validity", example="flightschool eval validity checkride --deployment outcomes.csv")(validity)


def reliability(
    evaluations: list[str] = typer.Argument(..., metavar="EVALUATION...", help="Ids of evaluations on one suite."),
    cost_task: float = typer.Option(0.0, "--cost-task", min=0.0, help="What one more task costs."),
    cost_run: float = typer.Option(1.0, "--cost-run", min=0.0, help="What one attempt costs."),
) -> None:
    """Would the scores come out again? ICC, G-study, stability of the order, and a plan for the next measurement.

    Ends with 1 when several systems were named and another draw or a re-run might well turn their order around.
    """
    from flightschool.evaluation import load_run
    from flightschool.evaluation import reliability as diagnose

    with workspace() as space:
        runs = [load_run(space.store, name) for name in evaluations]
        found = diagnose(runs, cost_of_a_task=cost_task, cost_of_a_run=cost_run)
    _tell_reliability(found)
    output.finish({**msgspec.to_builtins(found)}, fell_short=len(runs) > 1 and found.winner is None)


def validity(
    suite: str = typer.Argument(..., metavar="S", help="A frozen suite."),
    deployment: str = typer.Option(
        ..., "--deployment", help="Outcomes: version, stratum, successes, total (JSON, JSON lines or CSV)."
    ),
    perturb: str = typer.Option("clean", "--perturb", help="Weather of the evaluations that are used."),
) -> None:
    """Does the suite predict deployment? Relates the kept evaluations of a suite to later outcomes.

    Ends with 1 when no validity can be claimed.
    """
    from flightschool.evaluation import read_deployment
    from flightschool.evaluation import validity as relate

    outcomes = read_deployment(existing_path(deployment, "file of outcomes"))
    with workspace() as space:
        found = relate(_runs(space.store, suite, perturb), outcomes)
    _tell_validity(found)
    output.finish({**msgspec.to_builtins(found)}, fell_short=not found.claimed)


def _runs(store: SqlStore, suite: str, noise: str) -> list[EvaluationRun]:
    from flightschool.evaluation import load_runs
    from flightschool.records import Suite

    frozen = store.get("suite", suite, Suite)
    kept = load_runs(store)
    return [run for run in kept if run.suite_digest == frozen.digest and run.noise == noise]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _tell_reliability(found: Reliability) -> None:
    rows = [
        (
            system.policy,
            f"{system.success:.3f}",
            "-" if system.icc is None else "0/0" if system.icc.degenerate else f"{system.icc.single:.2f}",
            "-" if system.icc is None else f"{system.icc.low:.2f} to {system.icc.high:.2f}",
            "-" if system.repeats_wanted is None else system.repeats_wanted,
        )
        for system in found.systems
    ]
    columns = ("policy", "#success", "#ICC(1,1)", "#95 %", "#repeats for .8")
    output.table(f"Reliability on {found.suite}, {found.num_tasks} tasks", columns, rows)
    if found.components is not None:
        parts = found.components
        output.say(f"variance: systems {parts.p:.4f}, tasks {parts.i:.4f}, both {parts.pi:.4f}, runs {parts.r:.4f}")
        output.say(
            f"telling these systems apart: {_number(found.coefficient)} (scores as such {_number(found.dependability)})"
        )
    if found.ranking is not None:
        output.say(f"order {' > '.join(found.ranking.order)}; first again in {found.ranking.first_again:.0%} of draws")
        output.say("the order is NOT reliable: no winner" if found.winner is None else f"winner: {found.winner}")
    if found.plan is not None:
        plan = found.plan
        output.say(f"a coefficient of .8 takes {plan.num_tasks} tasks x {plan.num_runs} repeats, cost {plan.cost:g}")
    for note in found.notes:
        output.say(f"note: {note}")


def _tell_validity(found: Validity) -> None:
    rows = [
        ("pearson", f"{found.pearson.value:.2f}", f"{found.pearson.low:.2f} to {found.pearson.high:.2f}"),
        ("spearman", f"{found.spearman.value:.2f}", f"{found.spearman.low:.2f} to {found.spearman.high:.2f}"),
        ("pearson, both sides free of error", _number(found.corrected), ""),
        ("calibration slope (1 is right)", f"{found.calibration.slope:.2f}", ""),
        ("calibration error", f"{found.calibration.ece:.3f}", ""),
    ]
    title = f"{found.suite} against deployment: {found.num_cells} cells of {found.num_versions} versions"
    output.table(title, ("statistic", "#value", "#95 %"), rows)
    output.table(
        "With the traffic that was really seen",
        ("version", "#predicted", "#observed", "#residual", "#outcomes"),
        [
            (t.version, f"{t.predicted:.3f}", f"{t.observed:.3f}", f"{t.residual:+.3f}", t.num_outcomes)
            for t in found.transported
        ],
    )
    for note in found.notes:
        output.say(f"note: {note}")
    output.say("the suite speaks for deployment" if found.claimed else "NO validity is claimed")
