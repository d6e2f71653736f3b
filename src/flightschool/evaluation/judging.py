"""What people say of a judge's grades: how far it agrees with them, and the success rate freed of its errors.

Labels come from review sheets whose target is the evaluation (``flightschool review list EVAL-ID``). Three numbers
follow: Krippendorff's alpha, which gates decisions (see ``comparison``); success by prediction-powered inference
(``statistics.right_share``); and by Rogan and Gladen's correction (``statistics.corrected_rate``). Both weigh each
attempt of this evaluation the same; the sampling of tasks is in the interval of the evaluation itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flightschool.evaluation.records import EvaluationRun
from flightschool.governance import ReviewRates, ReviewSheet, labels_of, review_rates, reviewed_of, settled, sheets_of
from flightschool.protocols import Environment, Store
from flightschool.records import CheckRule, JudgeCheck, Record, Suite
from flightschool.statistics import (
    Interval,
    VerifierError,
    blaker,
    corrected_rate,
    krippendorff_alpha,
    right_share,
)
from flightschool.verification import rules_in

__all__ = ["Judged", "judged", "judges_of"]


class Judged(Record, frozen=True, kw_only=True):
    """An evaluation as people see it."""

    run: str
    sheets: tuple[str, ...]
    num_labels: int
    """Attempts with a label that holds."""
    alpha: float | None
    """Krippendorff's, between the grades and the labels; None where it cannot be computed."""
    error: VerifierError | None
    as_graded: Interval
    """Success over the graded attempts, each weighing the same."""
    prediction_powered: Interval | None
    rogan_gladen: Interval | None
    num_unspoken: int
    """Attempts in cells of which nothing is labelled: nothing is corrected while there are any."""
    notes: tuple[str, ...]


def judges_of(suite: Suite, environment: Environment) -> tuple[str, ...]:
    """Endpoints of the judges that grade a suite, each once; none where all checks are code."""
    found: dict[str, None] = {}
    for task in suite.task_digests:
        for check in environment.reference(task).checks:
            for endpoint in _endpoints(check.rule):
                found[endpoint] = None
    return tuple(found)


def judged(store: Store, run: EvaluationRun, *, level: float = 0.95) -> Judged:
    """Hold a run's grades against the labels of people.

    Args:
        store: holds sheets and labels.
        run: an evaluation with at least one grade.
        level: nominal coverage.
    """
    sheets = [sheet for sheet in sheets_of(store) if sheet.target == run.id]
    graded = {item.attempt: bool(item.success) for item in run.graded}
    as_graded = blaker(sum(graded.values()), len(graded), level)
    if not sheets:
        return Judged(
            run=run.id,
            sheets=(),
            num_labels=0,
            alpha=None,
            error=None,
            as_graded=as_graded,
            prediction_powered=None,
            rogan_gladen=None,
            num_unspoken=len(graded),
            notes=(f"no review sheet of {run.id}: nobody has looked at its grades",),
        )
    sheet = sheets[-1]  # a newer sheet is drawn from the same attempts with other probabilities: they do not add up
    labels = labels_of(store, sheet.name)
    said = {attempt: word for attempt, word in settled(labels).items() if word and attempt in graded}
    rates = review_rates(sheet, labels, level=level)
    whole = bool(said) and not rates.num_unspoken
    return Judged(
        run=run.id,
        sheets=tuple(one.name for one in sheets),
        num_labels=len(said),
        alpha=_alpha(graded, said),
        error=rates.error,
        as_graded=as_graded,
        prediction_powered=right_share(reviewed_of(sheet, labels), level=level, seed=sheet.seed) if whole else None,
        rogan_gladen=_rogan_gladen(as_graded, rates.error) if whole else None,
        num_unspoken=rates.num_unspoken,
        notes=tuple(_notes(sheets, rates, whole)),
    )


# ------------------------------------------------------------------------------------------------ parts


def _endpoints(rule: CheckRule) -> list[str]:
    return [one.endpoint for one in rules_in(rule) if isinstance(one, JudgeCheck)]


def _alpha(graded: dict[str, bool], said: dict[str, str]) -> float | None:
    """Two raters, the grader and the people; None where nothing or only one word was said."""
    if not said:
        return None
    alpha = krippendorff_alpha([(graded[attempt], word == "right") for attempt, word in said.items()])
    return None if math.isnan(alpha) else alpha


def _rogan_gladen(as_graded: Interval, error: VerifierError | None) -> Interval | None:
    """None where people saw no right or no wrong work, and where the grades tell nothing."""
    if error is None or error.rho0 is None or error.rho1 is None or error.rho0.value + error.rho1.value >= 1.0:
        return None
    return corrected_rate(as_graded, error.rho0, error.rho1)


def _notes(sheets: Sequence[ReviewSheet], rates: ReviewRates, whole: bool) -> list[str]:
    notes = []
    if not whole:
        notes.append(
            f"{rates.num_unspoken} of {rates.num_pool} attempts stand in cells without a label: nothing is corrected"
        )
    if rates.disputed:
        notes.append(f"{len(rates.disputed)} attempts are disputed among reviewers and not counted")
    if len(sheets) > 1:
        notes.append(f"{len(sheets)} sheets of this evaluation: the newest one speaks")
    return notes
