"""The episode runner: one attempt from a fresh world to a reward, and groups of attempts.

Who could have caused an end decides everything that follows: what the policy could cause stays in the
denominator; what it could not (engine, world, grader) is an infra failure with reward ``None`` and is retried
under a new number. Grading happens after both endpoints are closed, on an immutable snapshot.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from flightschool.digest import derive_seed, digest
from flightschool.errors import InfrastructureError, TokenContractError
from flightschool.perturbation import FaultProfile, SeededWeather
from flightschool.protocols import Environment, Harness, RewardComposition, Tokenizer, World
from flightschool.records import (
    INFRA_REASONS,
    Attempt,
    EndReason,
    EpisodeGroup,
    Evidence,
    GroupState,
    Message,
    Outcome,
    Reward,
    SpanKind,
    Task,
    Timings,
    TokenSpan,
    TokenUse,
    ToolCall,
    ToolEvent,
    ToolResult,
    ToolSpec,
    Verdict,
)
from flightschool.rollouts.harness import EpisodeEndError, ToolCallingHarness, opening_messages
from flightschool.rollouts.policies import Policy, PolicyEndpoint
from flightschool.rollouts.transcript import Sampling, Transcript
from flightschool.tools import ToolBoundary, VirtualClock
from flightschool.verification import CheckVerifier, Resources

__all__ = ["MAX_INFRA_RETRIES", "EpisodeRunner", "boundary_of", "outcome_of", "run_attempts"]

KeepBlob = Callable[[bytes], str]
MAX_INFRA_RETRIES = 2
LEAST_BASELINE_MEMBERS = 2


class EpisodeRunner:
    """Runs attempts in one environment.

    Args:
        environment: tasks, tools, fresh worlds, references.
        composition: makes rewards of verdicts.
        run: id of the run that attempts belong to.
        harness: drives the model; the built-in one by default.
        keep_blob: keeps end states (bytes → digest); states are only digested if it is None.
        resources: what checks by commands and judges need; by default sandboxes of this machine and the endpoints that
            the checks name.
        enforce: whether denied calls are refused; without it they run, and the event says that they were denied. For
            evaluations alone, to see what a policy would do.
    """

    def __init__(
        self,
        environment: Environment,
        composition: RewardComposition,
        *,
        run: str,
        harness: Harness | None = None,
        keep_blob: KeepBlob | None = None,
        resources: Resources | None = None,
        enforce: bool = True,
    ) -> None:
        self._resources = resources
        self.environment = environment
        self.run = run
        self._composition = composition
        self._harness = harness or ToolCallingHarness()
        self._keep_blob = keep_blob or digest
        self._enforce = enforce
        self._environment_digest = environment.digest
        self._verifiers: dict[str, CheckVerifier] = {}
        self._task_digests: dict[str, str] = {}

    async def attempt(
        self,
        task: Task,
        policy: Policy,
        *,
        group: str,
        index: int,
        seed: int,
        number: int = 0,
        weather_profile: FaultProfile | None = None,
    ) -> Attempt:
        """One attempt. Infra failures come back as attempts too, never as exceptions.

        Args:
            seed: seed of the group: latencies and weather follow it alone, so all members meet the same world;
                sampling follows it together with ``index`` and ``number``.
        """
        started = time.perf_counter()
        world = self.environment.open(task)
        initial = world.snapshot()
        clock = VirtualClock()
        tools = boundary_of(self.environment, task, world, clock, seed, weather_profile, enforce=self._enforce)
        model = _Recorder(policy.endpoint(task, derive_seed("sample", seed, task.id, index, number), group), clock)
        try:
            reason, detail = await _drive(self._harness, task, model, _Tools(tools))
        finally:
            model.close()
            tools.close()
        end_state = _final_state(world)
        if end_state is None and reason not in INFRA_REASONS:
            reason, detail = EndReason.WORLD_ERROR, "the world could not be read at the end"
        evidence = Evidence(
            initial_state=initial, end_state=end_state or b"", events=tuple(tools.events), answer=model.answer
        )
        spans = model.endpoint.spans()
        usage: TokenUse | None = getattr(model.endpoint, "usage", None)
        num_tokens = _num_sampled(spans) if usage is None else usage.num_completion_tokens
        reason, verdict, reward, detail = await self._grade(task, reason, evidence, clock.now_ms, num_tokens, detail)
        return Attempt(
            id=f"{self.run}:{group}:{index}:{number}",
            run=self.run,
            group=group,
            index=index,
            number=number,
            environment=self.environment.name,
            environment_digest=self._environment_digest,
            task=task.id,
            task_digest=self._digest_of(task),
            policy=policy.name,
            seed=seed,
            spans=spans,
            messages=(*model.messages, *_last_results(model.messages, evidence.events)),
            events=evidence.events,
            outcome=_outcome(reason),
            reason=reason,
            cause=_cause(reason),
            verdict=verdict,
            reward=reward,
            end_state=self._keep_blob(evidence.end_state),
            timings=Timings(virtual_ms=clock.now_ms, wall_s=time.perf_counter() - started),
            noise=weather_profile.label if weather_profile else "clean",
            detail=detail,
            grammars=_grammars(model.endpoint),
            usage=usage or msgspec.UNSET,
        )

    async def group(
        self,
        task: Task,
        policy: Policy,
        *,
        size: int,
        group: str,
        admitted_step: int,
        seed: int,
        weather_profile: FaultProfile | None = None,
        known: Mapping[int, Attempt] | None = None,
        keep: Callable[[Attempt], None] | None = None,
    ) -> EpisodeGroup:
        """``size`` attempts at one task side by side; infra failures are retried under the next number.

        Args:
            known: members that are there already, by index: of an earlier try at the same group.
            keep: is told every other member as it ends.
        """

        async def member(index: int) -> Attempt:
            if known is not None and index in known:
                return known[index]
            for number in range(MAX_INFRA_RETRIES + 1):
                attempt = await self.attempt(
                    task,
                    policy,
                    group=group,
                    index=index,
                    number=number,
                    seed=seed,
                    weather_profile=weather_profile,
                )
                if attempt.outcome is not Outcome.INFRA_FAILURE:
                    break
            if keep is not None:
                keep(attempt)
            return attempt

        members = tuple(await asyncio.gather(*(member(index) for index in range(size))))
        group_record = EpisodeGroup(id=group, task=task.id, size=size, members=members, admitted_step=admitted_step)
        if len(group_record.baseline) < LEAST_BASELINE_MEMBERS <= size:
            return msgspec.structs.replace(group_record, state=GroupState.TOO_FEW)
        return group_record

    # ------------------------------------------------------------------ parts of an attempt

    async def _grade(
        self, task: Task, reason: EndReason, evidence: Evidence, virtual_ms: float, num_tokens: int, detail: str
    ) -> tuple[EndReason, Verdict | None, Reward | None, str]:
        if reason in INFRA_REASONS:
            return reason, None, None, detail
        try:
            verifier = self._verifier(task)
            verdict = (
                await asyncio.to_thread(verifier.verify, evidence) if verifier.waits else verifier.verify(evidence)
            )
            return reason, verdict, self._composition.compose(verdict, virtual_ms, num_tokens), detail
        except InfrastructureError as error:
            return EndReason.GRADER_ERROR, None, None, str(error)

    def _verifier(self, task: Task) -> CheckVerifier:
        if task.id not in self._verifiers:
            self._verifiers[task.id] = CheckVerifier(self.environment.reference(task.id).checks, self._resources)
        return self._verifiers[task.id]

    def _digest_of(self, task: Task) -> str:
        if task.id not in self._task_digests:
            self._task_digests[task.id] = task.digest
        return self._task_digests[task.id]


def boundary_of(
    environment: Environment,
    task: Task,
    world: World,
    clock: VirtualClock,
    seed: int,
    profile: FaultProfile | None,
    *,
    enforce: bool = True,
) -> ToolBoundary:
    """The boundary of an attempt of this seed: the same latencies and the same weather every time."""
    weather = SeededWeather(profile, derive_seed("weather", seed, task.id)) if profile and profile.faults else None
    return ToolBoundary(
        world,
        environment.tools(),
        environment.permissions(task),
        shown=task.tools,
        weather=weather,
        clock=clock,
        seed=derive_seed("latency", seed, task.id),
        enforce=enforce,
    )


def num_prompt_tokens(environment: Environment, task: Task, tokenizer: Tokenizer) -> int:
    """Tokens of a task's first prompt, as the built-in harness opens it and a session renders it."""
    world = environment.open(task)
    try:
        specs = boundary_of(environment, task, world, VirtualClock(), 0, None).specs()
    finally:
        world.close()
    return Transcript(tokenizer, Sampling(), 0).measure(opening_messages(task), specs)


class _Recorder:
    """Wraps a policy's endpoint: keeps the conversation and moves the virtual clock by generation.

    Requests may overlap; the conversation and the answer kept are those of the request that was answered last.
    """

    def __init__(self, endpoint: PolicyEndpoint, clock: VirtualClock) -> None:
        self.endpoint = endpoint
        self.messages: list[Message] = []
        self.answer = ""
        self._clock = clock
        self._counted_ms = endpoint.generation_ms

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
        asked = list(messages)
        self.messages = asked
        try:
            reply = await self.endpoint.complete(messages, tools)
        finally:
            now_ms = self.endpoint.generation_ms
            self._clock.advance(now_ms - self._counted_ms)
            self._counted_ms = now_ms
        self.messages = [*asked, reply]
        self.answer = reply.content if not reply.tool_calls else ""
        return reply

    def spans(self) -> tuple[TokenSpan, ...]:
        return self.endpoint.spans()

    def close(self) -> None:
        self.endpoint.close()


class _Tools:
    """Turns a world that breaks into the end of the episode, as infrastructure."""

    def __init__(self, boundary: ToolBoundary) -> None:
        self._boundary = boundary

    def specs(self) -> Sequence[ToolSpec]:
        return self._boundary.specs()

    async def call(self, calls: Sequence[ToolCall]) -> Sequence[ToolResult]:
        try:
            return await self._boundary.call(calls)
        except InfrastructureError as error:
            raise EpisodeEndError(EndReason.WORLD_ERROR, str(error)) from error


async def _drive(harness: Harness, task: Task, model: _Recorder, tools: _Tools) -> tuple[EndReason, str]:
    try:
        return await harness.run(task, model, tools), ""
    except EpisodeEndError as end:
        return end.reason, end.detail
    except TokenContractError as error:
        return EndReason.ENGINE_ERROR, str(error)
    except Exception as error:  # noqa: BLE001  a harness is the policy's side: whatever it raises is the policy's failure
        return EndReason.POLICY_ERROR, f"{type(error).__name__}: {error}"


def _last_results(messages: Sequence[Message], events: Sequence[ToolEvent]) -> list[Message]:
    """Results of the last turn's calls when the episode ended with them: no later turn has shown them."""
    if not messages or not messages[-1].tool_calls or not events:
        return []
    asked = {call.id for call in messages[-1].tool_calls}
    last = [event for event in events if event.turn == events[-1].turn and event.call.id in asked]
    return [Message(role="tool", content=e.result.content, tool_call_id=e.call.id) for e in last]


def _grammars(endpoint: PolicyEndpoint) -> dict[str, str] | msgspec.UnsetType:
    """Texts of the grammars that completions were sampled under, where there are any."""
    found: dict[str, str] = getattr(endpoint, "grammars", {})
    return found or msgspec.UNSET


def _num_sampled(spans: Sequence[TokenSpan]) -> int:
    return sum(len(span.token_ids_T) for span in spans if span.kind is SpanKind.COMPLETION)


def _final_state(world: World) -> bytes | None:
    """The end state, or None when a broken world cannot even be read."""
    try:
        return world.snapshot()
    except Exception:  # noqa: BLE001  domain code of other people's making: whatever it raises, the world is lost
        return None
    finally:
        world.close()


def _outcome(reason: EndReason) -> Outcome:
    if reason in INFRA_REASONS:
        return Outcome.INFRA_FAILURE
    return Outcome.SCORED if reason in (EndReason.FINISHED, EndReason.DECLINED) else Outcome.POLICY_FAILURE


_CAUSES = {
    EndReason.ENGINE_ERROR: "engine",
    EndReason.WORLD_ERROR: "world",
    EndReason.HARNESS_ERROR: "harness",
    EndReason.GRADER_ERROR: "grader",
}


def _cause(reason: EndReason) -> str:
    return _CAUSES.get(reason, "policy")


def outcome_of(reason: EndReason) -> tuple[Outcome, str]:
    """Outcome and cause that follow from how an attempt ended."""
    return _outcome(reason), _cause(reason)


def run_attempts(
    runner: EpisodeRunner,
    tasks: Sequence[Task],
    policy: Policy,
    *,
    seed: int,
    weather_profile: FaultProfile | None = None,
    concurrency: int = 64,
    on_attempt: Callable[[Attempt], None] | None = None,
) -> list[Attempt]:
    """One attempt at each task, ``concurrency`` at a time in one event loop; results in the order of the tasks.

    Tasks may repeat; the n-th occurrence is member n of its group.
    """

    async def run_all() -> list[Attempt]:
        gate = asyncio.Semaphore(concurrency)
        occurrences: dict[str, int] = {}

        async def one(task: Task, index: int) -> Attempt:
            async with gate:
                attempt = await runner.attempt(
                    task,
                    policy,
                    group=f"{policy.name}:{task.id}",
                    index=index,
                    seed=derive_seed(seed, task.id, index),
                    weather_profile=weather_profile,
                )
                if on_attempt is not None:
                    on_attempt(attempt)
                return attempt

        jobs = []
        for task in tasks:
            index = occurrences.get(task.id, 0)
            occurrences[task.id] = index + 1
            jobs.append(one(task, index))
        return list(await asyncio.gather(*jobs))

    return asyncio.run(run_all())
