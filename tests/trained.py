"""What tests of training need again and again: an attempt that a reward was given, a trainer's specification."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flightschool.records import Attempt, EndReason, Outcome, Reward, Timings, TokenSpan
from flightschool.training.messages import TrainerSpec
from flightschool.training.settings import TrainingSettings


def reward_of(outcome: float) -> Reward:
    """The outcome alone."""
    return Reward(outcome=outcome, process=0.0, latency=0.0, gate=1.0, total=outcome)


def scored_attempt(
    group: str, index: int, spans: tuple[TokenSpan, ...], reward: Reward | None, **fields: Any
) -> Attempt:
    """A member of a group that came to its end.

    Args:
        group: its name.
        index: of the member.
        spans: what was sampled.
        reward: what it earned; whoever gives none says how it ended.
        fields: of ``Attempt``, where others are wanted.
    """
    plain: dict[str, Any] = {
        "run": "r",
        "environment": "e",
        "environment_digest": "",
        "task": "",
        "task_digest": "",
        "policy": "p",
        "seed": 0,
        "outcome": Outcome.SCORED,
        "reason": EndReason.FINISHED,
        "cause": "policy",
    }
    return Attempt(
        id=f"{group}:{index}",
        group=group,
        index=index,
        number=0,
        spans=spans,
        messages=(),
        events=(),
        verdict=None,
        reward=reward,
        end_state="",
        timings=Timings(virtual_ms=0.0),
        **plain | fields,
    )


def trainer_spec(
    folder: Path, run_dir: Path, checkpoint: Path | None = None, step: int = 0, **settings: object
) -> TrainerSpec:
    """Where a trainer of a model folder finds everything, with settings over those of small tests."""
    full = TrainingSettings.model_validate({"learning_rate": 1e-3, "max_new_tokens": 8, **settings})
    return TrainerSpec(
        run="r",
        incarnation=1,
        step=step,
        model=str(folder),
        checkpoint=str(checkpoint or ""),
        run_dir=str(run_dir),
        weights=str(run_dir / "weights"),
        settings=full.model_dump_json(),
    )
