"""Outcome from named scores: tools for observation keep judgements under names that teams choose."""

from __future__ import annotations

from collections.abc import Mapping

from flightschool.records import Json

__all__ = ["VERDICTS", "graded", "outcome_of"]

VERDICTS = (
    "reward",
    "success",
    "succeeded",
    "task_success",
    "correct",
    "correctness",
    "accuracy",
    "passed",
    "pass",
    "solved",
    "outcome",
    "score",
)
"""Names that a verdict on the whole task goes by, the most telling first."""

_GRADES: dict[str, float] = {
    "c": 1.0,
    "correct": 1.0,
    "pass": 1.0,
    "passed": 1.0,
    "success": 1.0,
    "true": 1.0,
    "yes": 1.0,
    "p": 0.5,
    "partial": 0.5,
    "i": 0.0,
    "n": 0.0,
    "incorrect": 0.0,
    "fail": 0.0,
    "failed": 0.0,
    "failure": 0.0,
    "false": 0.0,
    "no": 0.0,
}


def graded(value: Json) -> float | None:
    """A score as a number: numbers and truth values as they are, words by their meaning; None if it has none."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float):
        return float(value)
    return _GRADES.get(value.strip().lower()) if isinstance(value, str) else None


def outcome_of(scores: Mapping[str, Json], *, only: bool = False) -> dict[str, Json]:
    """Attributes of a span (``flightschool.…``) for these scores: all of them as labels, one of them as the reward.

    Args:
        scores: name → value.
        only: take a single score as the verdict whatever its name.
    """
    if not scores:
        return {}
    found: dict[str, Json] = {"flightschool.labels": dict(scores)}
    lowered = {name.lower().replace("-", "_").replace(" ", "_"): value for name, value in scores.items()}
    named = [lowered[name] for name in VERDICTS if name in lowered]
    candidates = named or (list(scores.values()) if only and len(scores) == 1 else [])
    reward = next((grade for value in candidates if (grade := graded(value)) is not None), None)
    return found if reward is None else found | {"flightschool.reward": reward}
