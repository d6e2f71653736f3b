"""``eval judged``: an evaluation as people see it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import typer

from flightschool.cli import output
from flightschool.cli.references import workspace
from flightschool.cli.verb import verb

if TYPE_CHECKING:
    from flightschool.evaluation import EvaluationRun, Judged
    from flightschool.protocols import Environment
    from flightschool.records import Suite
    from flightschool.statistics import Interval
    from flightschool.store import Workspace

__all__ = ["judge_alpha", "register"]


def register(evaluation: typer.Typer) -> None:
    """Add the verb to the group ``eval``."""
    verb(evaluation, "judged", example="flightschool eval judged eval-0001")(judged)


def judged(
    evaluation: str = typer.Argument(..., metavar="EVALUATION", help="Id of an evaluation."),
) -> None:
    """Hold an evaluation's grades against review labels: agreement, error rates, and success freed of these errors.

    Labels come from flightschool review list EVALUATION and review label. Ends with 1 when the grader does not agree
    with people well enough for its grades to decide anything.
    """
    from flightschool.evaluation import judged as hold
    from flightschool.evaluation import load_run
    from flightschool.evaluation.comparison import LEAST_JUDGE_ALPHA

    with workspace() as space:
        found = hold(space.store, load_run(space.store, evaluation))
    _tell(found)
    poor = found.alpha is not None and found.alpha < LEAST_JUDGE_ALPHA
    told = msgspec.to_builtins(found)
    told["verifier_error"] = told.pop("error")  # ``error`` is what a verb that failed says
    output.finish(told, fell_short=poor)


def judge_alpha(space: Workspace, world: Environment, suite: Suite, runs: Sequence[EvaluationRun]) -> float | None:
    """The least agreement of the suite's judge with people over these runs.

    None where no judge grades; NaN where one does and no label tells how well.
    """
    from flightschool.evaluation import judged as hold
    from flightschool.evaluation import judges_of

    if not judges_of(suite, world):
        return None
    found = [hold(space.store, run).alpha for run in runs if run.graded]
    known = [alpha for alpha in found if alpha is not None]
    return min(known) if known else math.nan


def _tell(found: Judged) -> None:
    rows = [("as graded", found.as_graded)]
    if found.prediction_powered is not None:
        rows.append(("prediction-powered", found.prediction_powered))
    if found.rogan_gladen is not None:
        rows.append(("Rogan-Gladen", found.rogan_gladen))
    output.table(
        f"{found.run} as people see it, {found.num_labels} labels",
        ("success", "#value", "#95 %"),
        [(name, f"{one.value:.3f}", _range(one)) for name, one in rows],
    )
    if found.error is not None:
        for name, rate in (("passed though wrong", found.error.rho0), ("failed though right", found.error.rho1)):
            output.say(f"{name}: " + ("nothing to tell from" if rate is None else f"{rate.value:.3f} ({_range(rate)})"))
    output.say("alpha: " + ("cannot be told" if found.alpha is None else f"{found.alpha:.2f}"))
    for note in found.notes:
        output.say(f"note: {note}")


def _range(one: Interval) -> str:
    return f"{one.low:.3f} to {one.high:.3f}"
