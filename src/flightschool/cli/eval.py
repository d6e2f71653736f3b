"""``eval list · compare``, and the group that all verbs of measuring stand in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import typer

from flightschool.cli import (
    eval_exchange,
    eval_freeze,
    eval_holdout,
    eval_judge,
    eval_run,
    eval_upkeep,
    eval_validity,
    output,
)
from flightschool.cli.eval_early import compare_now, early_told
from flightschool.cli.eval_judge import judge_alpha
from flightschool.cli.eval_run import EVALUATION_KIND, Asked, measure, open_suite
from flightschool.cli.eval_telling import shown
from flightschool.cli.references import workspace
from flightschool.cli.verb import group, verb
from flightschool.errors import GateError, NotFoundError

if TYPE_CHECKING:
    from flightschool.evaluation import Comparison, EvaluationRun
    from flightschool.governance import KnownError
    from flightschool.store import Workspace

__all__ = ["register"]

ERROR = 0.05
"""Error probability of a comparison, or of all comparisons of one choice together (Bonferroni)."""


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    evaluation = group(app, "eval", "Measure on a suite that was frozen before the training began.")
    eval_freeze.register(evaluation)
    eval_holdout.register(evaluation)
    verb(evaluation, "list", example="flightschool eval list")(list_)
    eval_run.register(evaluation)
    verb(evaluation, "compare", example="flightschool eval compare checkride model:./before run:my-run")(compare)
    eval_validity.register(evaluation)
    eval_judge.register(evaluation)
    eval_upkeep.register(evaluation)
    eval_exchange.register(evaluation)


def list_() -> None:
    """List suites and evaluations of the workspace."""
    from flightschool.evaluation import EvaluationRun
    from flightschool.records import Suite

    with workspace() as space:
        suites = [suite for _, suite in space.store.items("suite", Suite)]
        runs = [run for _, run in space.store.items(EVALUATION_KIND, EvaluationRun)]
    output.table(
        "Suites",
        ("suite", "environment", "#tasks", "frozen at"),
        [(s.name, s.environment, len(s.task_digests), s.frozen_at) for s in suites],
    )
    output.table(
        "Evaluations", ("id", "suite", "policy", "weather"), [(r.id, r.suite, r.policy, r.noise) for r in runs]
    )
    output.finish(
        {
            "suites": suites,
            "evaluations": [{"id": r.id, "suite": r.suite, "policy": r.policy, "noise": r.noise} for r in runs],
        }
    )


def compare(
    suite: str = typer.Argument(..., metavar="S", help="A frozen suite."),
    baseline: str = typer.Argument(..., metavar="BASELINE", help="An evaluation's id, or a policy to measure now."),
    candidate: str = typer.Argument(..., metavar="CANDIDATE", help="An evaluation's id, or a policy to measure now."),
    perturb: str | None = typer.Option(None, "--perturb", help="Fault profile of what is measured now."),
    repeats: int = typer.Option(1, "--repeats", min=1, help="Attempts at each task of what is measured now."),
    temperature: float = typer.Option(
        0.0, "--temperature", min=0.0, help="Sampling temperature of what is measured now."
    ),
    seed: int = typer.Option(0, "--seed", help="Seed of what is measured now."),
    candidates: int = typer.Option(
        1, "--candidates", min=1, help="How many were tried, of which this is the best: the error is shared among them."
    ),
    early: bool = typer.Option(False, "--early", help="Measure both now, and end as soon as it is decided."),
    look_every: int = typer.Option(8, "--look-every", min=1, help="With --early: tasks between two looks."),
) -> None:
    """Compare two policies on one suite, paired; the difference is CANDIDATE - BASELINE.

    Ends with 1 when the candidate is worse, or when the comparison is not reliable.
    """
    asked = Asked(perturb=perturb, repeats=repeats, temperature=temperature, seed=seed)
    error, looks, rates = ERROR / candidates, None, None
    if early:
        found = compare_now(suite, baseline, candidate, asked, alpha=error, look_every=look_every)
        comparison, looks = found.comparison, early_told(found)
    else:
        comparison, rates = _compared(suite, baseline, candidate, asked, error)
    _tell_comparison(comparison, 1 - (error / 2 if early else error))
    if rates is not None:
        output.say(_told_error(comparison, rates))
    output.finish(
        {**msgspec.to_builtins(comparison), "early": looks, "verifier_error": rates},
        fell_short=comparison.winner == "baseline" or not comparison.reliable,
    )


# ------------------------------------------------------------------------------------------------ parts


def _compared(
    suite: str, baseline: str, candidate: str, asked: Asked, error: float
) -> tuple[Comparison, KnownError | None]:
    """Both as they were measured, or are measured now in full; and the verifier's error rates, if people know them."""
    from flightschool.evaluation import compare as pair
    from flightschool.evaluation import load_design, load_run, require_design
    from flightschool.governance import known_error

    with workspace() as space:
        known = any(space.store.has(kind, suite) for kind in ("suite", "holdout", "sealed-holdout"))
        opened = open_suite(space, suite) if known or not _taken_in(space, baseline, candidate) else None
        if opened is not None:
            design = load_design(space.store, suite)
            if design is not None:
                require_design(design, *opened)

        def found(reference: str) -> EvaluationRun:
            if space.store.has(EVALUATION_KIND, reference):
                return load_run(space.store, reference)
            if opened is None or (":" not in reference and reference not in ("oracle", "noop", "random")):
                known = ", ".join(space.store.keys(EVALUATION_KIND)) or "none yet"
                raise NotFoundError(
                    f"{reference!r} is no evaluation and no policy",
                    where="eval compare",
                    expected=f"an evaluation ({known}) or a policy such as model:DIR",
                    mend="see flightschool eval list",
                )
            return measure(space, *opened, reference, asked)

        before, after = found(baseline), found(candidate)
        _require_suite(suite, before, after)
        alpha = None if opened is None else judge_alpha(space, opened[1], opened[0], (before, after))
        rates = known_error(space.store, before.environment_digest)
        wrong = None if rates is None else (rates.rho0, rates.rho1)
        return pair(before, after, level=1 - error, judge_alpha=alpha, error=wrong), rates


def _taken_in(space: Workspace, *references: str) -> bool:
    """Whether these are evaluations that were measured elsewhere: their suite is not kept here."""
    return all(space.store.has(EVALUATION_KIND, reference) for reference in references)


def _require_suite(name: str, *runs: EvaluationRun) -> None:
    for run in runs:
        if run.suite != name:
            raise GateError(
                f"{run.id} stands on {run.suite!r}, not on {name!r}: scores across this border are not comparable",
                where=f"evaluation {run.id}",
                expected=f"an evaluation on {name}",
                mend=f"name the other suite; or see flightschool eval equate {run.id} … for two versions of one suite",
            )


def _told_error(comparison: Comparison, known: KnownError) -> str:
    """What the verifier's errors, as far as people have measured them, do to the headline."""
    told = (
        f"by {known.num_reviewed} reviewed attempts (sheet {known.sheet}) the verifier passes wrong work with "
        f"{known.rho0.value:.3f} and refuses right work with {known.rho1.value:.3f}: "
    )
    found = next((one for one in comparison.differences if one.name == "success_corrected/weighted"), None)
    if found is None:
        return told + "its verdict holds no signal, and no difference can be freed of that"
    return told + f"freed of that, success differs by {found.diff:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


def _tell_comparison(comparison: Comparison, level: float) -> None:
    rows: Sequence[tuple[object, ...]] = [
        (
            d.name,
            f"{d.before:.3g}",
            f"{d.after:.3g}",
            f"{d.diff:+.3g}",
            f"{d.low:+.3g} to {d.high:+.3g}",
            d.winner or "open",
        )
        for d in comparison.differences
        if shown(d.name)
    ]
    output.table(
        f"{comparison.candidate} - {comparison.baseline} on {comparison.suite} ({comparison.noise})",
        ("metric", "#baseline", "#candidate", "#difference", f"{100 * level:.4g} %", "better"),
        rows,
    )
    judged = "reliable" if comparison.reliable else f"NOT reliable ({'; '.join(comparison.doubts)}): no winner"
    output.say(
        f"success {comparison.diff:+.3f} ({comparison.low:+.3f} to {comparison.high:+.3f}), {judged}; "
        f"differences below {comparison.mde:.3f} would be missed"
    )
