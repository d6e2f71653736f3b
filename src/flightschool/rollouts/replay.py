"""Replaying a recorded attempt, byte for byte.

An attempt with tokens is replayed through the *real* session, renderer, parser and boundary; only the engine is
exchanged for one that returns the recorded completions, and it refuses when the context that it is asked to
continue differs by one token from the recorded one. A scripted attempt replays its recorded messages.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import msgspec

from flightschool.digest import digest
from flightschool.errors import InfrastructureError
from flightschool.perturbation import FaultProfile
from flightschool.protocols import Environment, Generation, GenerationRequest, RewardComposition, Tokenizer
from flightschool.records import Attempt, EndReason, Evidence, SpanKind, Task, TokenSpan, WeightsVersion
from flightschool.rollouts.policies import MessagesPolicy, Policy, PolicyEndpoint
from flightschool.rollouts.runner import EpisodeRunner, boundary_of
from flightschool.rollouts.session import Session
from flightschool.rollouts.transcript import Sampling
from flightschool.tools import ToolBoundary, VirtualClock

__all__ = ["Replay", "answer_of", "reenact", "replay"]


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay gave."""

    recorded_digest: str
    replayed_digest: str
    attempt: Attempt

    @property
    def identical(self) -> bool:
        """Whether the replayed attempt is the recorded one, wall-clock times apart."""
        return self.recorded_digest == self.replayed_digest


def replay(
    attempt: Attempt,
    environment: Environment,
    composition: RewardComposition,
    *,
    tokenizer: Tokenizer | None = None,
    weather_profile: FaultProfile | None = None,
    sampling: Sampling | None = None,
    max_context: int = 1024,
) -> Replay:
    """Run the recorded attempt again (see the module).

    Raises:
        InfrastructureError: the attempt has tokens and no tokenizer was given.
        NotFoundError: the environment no longer holds the task.
    """
    policy: Policy
    if attempt.spans:
        if tokenizer is None:
            raise InfrastructureError(
                "the attempt holds tokens and needs the tokenizer of its model",
                where=attempt.id,
                expected="the model folder it was sampled from",
                mend="restore the folder",
            )
        policy = _RecordedTokens(attempt, tokenizer, sampling or Sampling(), max_context)
    else:
        replies = [m for m in attempt.messages[_num_opening(environment.task(attempt.task)) :] if m.role == "assistant"]
        policy = MessagesPolicy({attempt.task: replies}, attempt.policy)
    runner = EpisodeRunner(environment, composition, run=attempt.run)
    again = asyncio.run(
        runner.attempt(
            environment.task(attempt.task),
            policy,
            group=attempt.group,
            index=attempt.index,
            number=attempt.number,
            seed=attempt.seed,
            weather_profile=weather_profile,
        )
    )
    return Replay(recorded_digest=attempt.digest, replayed_digest=again.digest, attempt=again)


def reenact(
    attempt: Attempt, environment: Environment, *, weather_profile: FaultProfile | None = None, enforce: bool = True
) -> Evidence:
    """Execute the recorded calls once more in a fresh world: what a grader may see, without the policy.

    Raises:
        InfrastructureError: the world broke, or ends in another state than the recorded one.
        NotFoundError: the environment no longer holds the task.
    """
    task = environment.task(attempt.task)
    world = environment.open(task)
    try:
        initial = world.snapshot()
        tools = boundary_of(environment, task, world, VirtualClock(), attempt.seed, weather_profile, enforce=enforce)
        try:
            asyncio.run(_call_again(tools, attempt))
        finally:
            tools.close()
        end_state = world.snapshot()
    finally:
        world.close()
    if digest(end_state) != attempt.end_state:
        raise InfrastructureError(
            "the recorded calls end in another state now",
            where=attempt.id,
            expected=f"end state {attempt.end_state[:19]}…",
            mend="restore the environment (and the weather) that it was recorded in",
        )
    return Evidence(initial_state=initial, end_state=end_state, events=attempt.events, answer=answer_of(attempt))


def answer_of(attempt: Attempt) -> str:
    """The final message of an attempt that ended with one; empty for all others."""
    last = attempt.messages[-1] if attempt.messages else None
    ended = attempt.reason in (EndReason.FINISHED, EndReason.GRADER_ERROR)  # the latter hides how it ended
    return last.content if ended and last is not None and last.role == "assistant" and not last.tool_calls else ""


async def _call_again(tools: ToolBoundary, attempt: Attempt) -> None:
    """Turn by turn, as they were asked for."""
    for _, events in itertools.groupby(attempt.events, key=lambda event: event.turn):
        await tools.call([event.call for event in events])


def _num_opening(task: Task) -> int:
    return 2 + len(task.example)


class _RecordedEngine:
    """Returns recorded completions in order; refuses a context that is not the recorded one."""

    def __init__(self, spans: Sequence[TokenSpan], max_context: int) -> None:
        self.version = WeightsVersion(run="recorded", incarnation=0, step=0)
        self.max_context = max_context
        self._spans = {span.id: span for span in spans}
        self._completions = iter([span for span in spans if span.kind is SpanKind.COMPLETION])

    async def generate(self, request: GenerationRequest) -> Generation:
        span = next(self._completions, None)
        if span is None or self._context_of(span) != request.token_ids_T:
            raise InfrastructureError(
                "the replay asks for a context that was not recorded", expected="the recorded tokens"
            )
        stopped = span.token_ids_T[-1] in request.stop_token_ids
        return Generation(
            token_ids_T=span.token_ids_T,
            logprobs_T=span.logprobs_T,
            versions=span.versions,
            kv_step=span.kv_step,
            finish="stop" if stopped else "length",
        )

    def _context_of(self, span: TokenSpan) -> tuple[int, ...]:
        tokens: tuple[int, ...] = ()
        parent = span.parent
        while parent is not None:
            tokens = self._spans[parent].token_ids_T + tokens
            parent = self._spans[parent].parent
        return tokens

    def release(self, session: str) -> None:
        del session  # nothing is cached


class _RecordedTokens:
    """A policy that plays an attempt's recorded tokens."""

    def __init__(self, attempt: Attempt, tokenizer: Tokenizer, sampling: Sampling, max_context: int) -> None:
        self.name = attempt.policy
        self._attempt = attempt
        self._tokenizer = tokenizer
        temperatures = [s.temperature for s in attempt.spans if s.kind is SpanKind.COMPLETION]
        self._sampling = msgspec.structs.replace(sampling, temperature=temperatures[0] if temperatures else 1.0)
        self._max_context = max_context

    def endpoint(self, task: Task, seed: int, group: str) -> PolicyEndpoint:
        engine = _RecordedEngine(self._attempt.spans, self._max_context)
        return Session(f"{group}/{task.id}/{seed}", engine, self._tokenizer, self._sampling, seed)
