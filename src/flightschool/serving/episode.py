"""One episode of an environment of ours, offered to a program that trains or measures elsewhere.

Whoever drives it sees what a policy here sees: the instruction, the tools of the task, answers through the boundary.
When it ends (an answer, a ``decline``, the last turn) the end state is judged by the task's own checks, exactly as the
episode runner does. What the policy could not have caused has no reward: a foreign trainer must mask such an episode,
never score it 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from flightschool.digest import derive_seed
from flightschool.errors import InfrastructureError
from flightschool.perturbation import FaultProfile, SeededWeather
from flightschool.protocols import Environment, RewardComposition
from flightschool.records import (
    CommandCheck,
    EndReason,
    Evidence,
    Json,
    JudgeCheck,
    Message,
    Outcome,
    Reward,
    Task,
    ToolCall,
    ToolEvent,
    ToolResult,
    ToolSpec,
    Verdict,
)
from flightschool.rollouts.harness import opening_messages
from flightschool.rollouts.runner import outcome_of
from flightschool.tools import ToolBoundary, VirtualClock
from flightschool.verification import CheckVerifier, OutcomeReward
from flightschool.verification.verifier import rules_in

__all__ = ["Judged", "Offer", "ServedEpisode"]

DECLINE = "decline"


@dataclass(frozen=True)
class Judged:
    """How an episode ended and what it is worth."""

    outcome: Outcome
    reason: EndReason
    cause: str
    """Who could have caused the end: ``policy``, ``world`` or ``grader``."""
    verdict: Verdict | None
    reward: Reward | None
    """None exactly when the outcome is an infra failure."""
    detail: str = ""

    @property
    def components(self) -> dict[str, float]:
        """Terms of the reward by name; empty for an infra failure."""
        if self.reward is None:
            return {}
        terms = ("outcome", "process", "latency", "gate", "total")
        return {name: float(getattr(self.reward, name)) for name in terms}

    def as_json(self) -> dict[str, Json]:
        """The judgement as foreign trainers are told it. Evidence of checks is left out: it may hold references."""
        checks = () if self.verdict is None else self.verdict.checks
        return {
            "outcome": self.outcome.value,
            "reason": self.reason.value,
            "cause": self.cause,
            "success": self.reward is not None and self.reward.success,
            "reward_components": self.components,
            "checks": [{"id": c.id, "kind": c.kind.value, "weight": c.weight, "passed": c.passed} for c in checks],
            "mask_sample": self.outcome is Outcome.INFRA_FAILURE,
        }


class Offer:
    """What all episodes of one server share: environment, reward, weather, verifiers. Immutable but for its caches.

    Args:
        environment: tasks, tools, worlds, references.
        composition: makes rewards of verdicts; the default weights if None.
        weather: faults injected into every episode, or None.
        max_calls: calls of one episode after which every further one is refused.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        composition: RewardComposition | None = None,
        weather: FaultProfile | None = None,
        max_calls: int = 64,
    ) -> None:
        self.environment = environment
        self.composition = composition or OutcomeReward()
        self.weather = weather if weather is not None and weather.faults else None
        self.max_calls = max_calls
        self.specs = tuple(environment.tools())
        self._verifiers: dict[str, CheckVerifier] = {}
        # known beforehand, so that a server need not open a thread for a lookup: worlds say it themselves
        self.answers_at_once = _is_bounded(environment) and not _runs_programs(environment)

    @cached_property
    def identity(self) -> dict[str, str]:
        """Digests that every result names."""
        return {
            "environment": self.environment.name,
            "environment_digest": self.environment.digest,
            "composition_digest": self.composition.digest,
            "noise": "clean" if self.weather is None else self.weather.label,
        }

    def verifier(self, task: Task) -> CheckVerifier:
        """The task's verifier, made once."""
        if task.id not in self._verifiers:
            self._verifiers[task.id] = CheckVerifier(self.environment.reference(task.id).checks)
        return self._verifiers[task.id]

    def open(self, task: Task, *, seed: int = 0, max_turns: int | None = None) -> ServedEpisode:
        """A fresh episode.

        Raises:
            InfrastructureError: the world could not be opened.
        """
        return ServedEpisode(self, task, seed=seed, max_turns=max_turns)


class ServedEpisode:
    """One attempt that somebody else drives. Single use; not for several threads at once.

    Args:
        offer: what it is an episode of.
        task: what is attempted.
        seed: seed of latencies and weather.
        max_turns: turns after which the episode is cut; the task's own if None.
    """

    def __init__(self, offer: Offer, task: Task, *, seed: int = 0, max_turns: int | None = None) -> None:
        environment = offer.environment
        self.task = task
        self.seed = seed
        self.max_turns = task.max_turns if max_turns is None else max_turns
        self.num_turns = 0
        self.judged: Judged | None = None
        self._offer = offer
        self._clock = VirtualClock()
        self._world = environment.open(task)
        try:
            self._initial = self._world.snapshot()
            self._boundary = ToolBoundary(
                self._world,
                offer.specs,
                environment.permissions(task),
                shown=task.tools,
                weather=self._weather(),
                clock=self._clock,
                max_calls=offer.max_calls,
                seed=derive_seed("latency", seed, task.id),
            )
        except BaseException:
            self._world.close()
            raise

    @property
    def specs(self) -> Sequence[ToolSpec]:
        """The tools that the task shows."""
        return self._boundary.specs()

    @property
    def events(self) -> Sequence[ToolEvent]:
        """All calls so far."""
        return self._boundary.events

    @property
    def opening(self) -> list[Message]:
        """What a policy sees before its first turn."""
        return opening_messages(self.task)

    def act(self, calls: Sequence[ToolCall]) -> Sequence[ToolResult]:
        """One turn of calls. An accepted ``decline`` or the last turn ends the episode, which is then ``judged``.

        Raises:
            InfrastructureError: the world broke (``judged`` says so), or the episode is over.
        """
        if self.judged is not None:
            raise InfrastructureError(
                "the episode is over", where=self.task.id, expected="a new episode", mend="reset before acting again"
            )
        try:
            results = self._boundary.run(calls)
        except InfrastructureError as error:
            self._end(EndReason.WORLD_ERROR, "", str(error))
            raise
        self.num_turns += 1
        accepted = {result.call_id for result in results if not result.is_error}
        if any(call.name == DECLINE and call.id in accepted for call in calls):
            self._end(EndReason.DECLINED, "")
        elif self.num_turns >= self.max_turns:
            self._end(EndReason.MAX_TURNS, "")
        return results

    def finish(self, answer: str, reason: EndReason = EndReason.FINISHED) -> Judged:
        """End the episode with the policy's last message and judge it; once only, later calls give the same."""
        return self._end(reason, answer)

    def close(self) -> None:
        """Let everything go without a judgement."""
        if self.judged is None:
            self._boundary.close()
            self._world.close()

    # -------------------------------------------------------------------------------------------- the end

    def _end(self, reason: EndReason, answer: str, detail: str = "") -> Judged:
        if self.judged is None:
            self.judged = self._judge(reason, answer, detail)
        return self.judged

    def _judge(self, reason: EndReason, answer: str, detail: str) -> Judged:
        self._boundary.close()
        events = self._boundary.events
        try:
            end_state = self._world.snapshot()
        except Exception as error:  # noqa: BLE001  domain code of other people's making: the world is lost
            reason, detail, end_state = EndReason.WORLD_ERROR, detail or f"the world cannot be read: {error}", b""
        finally:
            self._world.close()
        verdict, reward = None, None
        outcome, cause = outcome_of(reason)
        if outcome is not Outcome.INFRA_FAILURE:
            evidence = Evidence(initial_state=self._initial, end_state=end_state, events=events, answer=answer)
            try:
                verdict = self._offer.verifier(self.task).verify(evidence)
                reward = self._offer.composition.compose(verdict, self._clock.now_ms)
            except InfrastructureError as error:
                verdict, reward, reason, detail = None, None, EndReason.GRADER_ERROR, str(error)
                outcome, cause = outcome_of(reason)
        return Judged(outcome, reason, cause, verdict, reward, detail)

    def _weather(self) -> SeededWeather | None:
        profile = self._offer.weather
        return None if profile is None else SeededWeather(profile, derive_seed("weather", self.seed, self.task.id))


def _is_bounded(environment: Environment) -> bool:
    """Whether all worlds only look things up: they say so (``bounded``); foreign code and asked models never do.

    Every task is looked at, since a user who is a language model may stand in some worlds and not in others.
    """

    def bounded(task: Task) -> bool:
        world = environment.open(task)
        try:
            return bool(getattr(world, "bounded", False))
        finally:
            world.close()

    tasks = environment.tasks()
    return bool(tasks) and all(bounded(task) for task in tasks)


def _runs_programs(environment: Environment) -> bool:
    """Whether some check runs a program or asks a model."""
    return any(
        isinstance(rule, CommandCheck | JudgeCheck)
        for task in environment.tasks()
        for check in environment.reference(task.id).checks
        for rule in rules_in(check.rule)
    )
