"""An attempt at a terminal task while it is made: what is known of it stands in its record, however it ends."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import msgspec

from flightschool.digest import digest
from flightschool.environments.terminal import TerminalTask, plan_build
from flightschool.environments.terminal.trees import Image
from flightschool.records import INFRA_REASONS, Attempt, EndReason, Message, Timings, ToolEvent
from flightschool.rollouts.runner import outcome_of
from flightschool.rollouts.terminal.records import Episode, StageResult, TerminalEpisode
from flightschool.rollouts.terminal.scoring import Scores
from flightschool.rollouts.terminal.shell import Seat

__all__ = ["Course"]


@dataclass(kw_only=True)
class Course:
    """What an attempt has come to. Made by the runner for one attempt; its parts fill it in."""

    task: TerminalTask
    run: str
    policy: str
    group: str
    index: int
    number: int
    seed: int
    scores: Scores
    image: Image | None = None
    """None: it could not be built."""
    stood_in: tuple[str, ...] = ()
    """See ``TerminalEpisode``."""
    seat: Seat | None = None
    """Where the policy is a model: its side of the conversation."""
    events: list[ToolEvent] = field(default_factory=list)
    stages: list[StageResult] = field(default_factory=list)
    build_failed: bool = False
    started_s: float = field(default_factory=time.perf_counter)

    def take_seat(self, seat: Seat) -> None:
        """A model acts: what it calls is what happened."""
        self.seat, self.events = seat, seat.events

    def episode(self, reason: EndReason, detail: str) -> Episode:
        """The record of an attempt that ended so."""
        attempt = self._attempt(reason, detail)
        was_lost = bool(self.stages) and self.stages[-1].graded is not None and self.stages[-1].graded.lost
        return Episode(
            attempt=attempt,
            details=self._details(attempt.id),
            faulty_task=self.build_failed or (reason is EndReason.GRADER_ERROR and not was_lost),
        )

    def _attempt(self, reason: EndReason, detail: str) -> Attempt:
        task, seat = self.task, self.seat
        verdict, reward = (None, None) if reason in INFRA_REASONS else self.scores.result()
        outcome, cause = outcome_of(reason)
        wall_s = time.perf_counter() - self.started_s
        return Attempt(
            id=f"{self.run}:{self.group}:{self.index}:{self.number}",
            run=self.run,
            group=self.group,
            index=self.index,
            number=self.number,
            environment=task.format.value,
            environment_digest=self.image.digest if self.image else digest(plan_build(task)),
            task=task.id,
            task_digest=task.digest,
            policy=self.policy,
            seed=self.seed,
            spans=seat.spans if seat is not None else (),
            messages=tuple(seat.messages) if seat is not None else _asked(task),
            events=tuple(self.events),
            outcome=outcome,
            reason=reason,
            cause=cause,
            verdict=verdict,
            reward=reward,
            end_state=self.stages[-1].end_state if self.stages else "",
            timings=Timings(virtual_ms=seat.generation_ms if seat is not None else 0.0, wall_s=wall_s),
            detail=detail,
            usage=seat.usage if seat is not None else msgspec.UNSET,
        )

    def _details(self, attempt: str) -> TerminalEpisode | None:
        if self.image is None:
            return None
        return TerminalEpisode(
            attempt=attempt,
            folder=self.task.folder,
            base=self.image.base,
            image_digest=self.image.digest,
            stages=tuple(self.stages),
            stood_in=self.stood_in,
            networked=self.image.networked,
        )


def _asked(task: TerminalTask) -> tuple[Message, ...]:
    """What a program cannot read, and a reader wants to know."""
    return tuple(Message(role="user", content=stage.instruction) for stage in task.stages)
