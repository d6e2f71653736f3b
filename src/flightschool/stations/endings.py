"""Why a training ended before its steps were made, in words for the person who watches it and reads its report."""

from __future__ import annotations

from flightschool.training import TrainingSettings, TrainResult

__all__ = ["ended_early"]


def ended_early(result: TrainResult, settings: TrainingSettings) -> str | None:
    """One sentence with the mend, or None for a training that made all its steps."""
    reasons = {
        "no gradient": (
            f"{settings.max_flat_groups} groups in a row had no gradient, since attempts at a task scored alike: "
            "easier or harder tasks, imitation first, a larger training.group_size, or training.max_flat_groups"
        ),
        "time limit": "its time limit was reached: time_limit_s",
        "source dry": "no task was left to draw",
    }
    if result.stopped == "steps done":
        return None
    why = reasons.get(result.stopped, result.stopped)
    return f"training ended at step {result.manifest.step} of {settings.num_steps}: {why}"
