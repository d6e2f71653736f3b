"""Attempts: outcomes in three ways, who caused what, groups, and byte-exact replay."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from flightschool.errors import InfrastructureError
from flightschool.models import ChatModel, Completion
from flightschool.perturbation import profile
from flightschool.protocols import World, WorldReply
from flightschool.records import (
    Attempt,
    CheckKind,
    CheckSpec,
    EndReason,
    GroupState,
    JudgeCheck,
    Message,
    Outcome,
    Reference,
    Task,
    ToolCall,
)
from flightschool.rollouts import (
    EnginePolicy,
    EpisodeRunner,
    MessagesPolicy,
    NoopPolicy,
    OraclePolicy,
    RandomPolicy,
    Sampling,
    replay,
    run_attempts,
)
from flightschool.testing.engines import ByteTokenizer, SpokenEngine
from flightschool.testing.miniature import MiniatureEnvironment, MiniatureWorld
from flightschool.verification import OutcomeReward, Resources, RewardSettings

ENVIRONMENT = MiniatureEnvironment()
COMPOSITION = OutcomeReward(RewardSettings())


def runner(environment: MiniatureEnvironment = ENVIRONMENT) -> EpisodeRunner:
    return EpisodeRunner(environment, COMPOSITION, run="r")


def spoken(*texts: str, fail_at: int | None = None) -> EnginePolicy:
    sampling = Sampling(max_new_tokens=200)
    return EnginePolicy(SpokenEngine(texts, fail_at=fail_at), ByteTokenizer(), "spoken", sampling)


def test_the_oracle_succeeds_and_doing_nothing_does_not() -> None:
    for attempt in run_attempts(runner(), ENVIRONMENT.tasks(), OraclePolicy(ENVIRONMENT), seed=1):
        assert attempt.outcome is Outcome.SCORED
        assert attempt.reward is not None
        assert attempt.reward.success, attempt.task
    for attempt in run_attempts(runner(), ENVIRONMENT.tasks(), NoopPolicy(), seed=1):
        assert attempt.reward is not None
        assert attempt.reward.outcome == 0.0


def test_the_locked_task_ends_by_decline() -> None:
    [attempt] = run_attempts(runner(), [ENVIRONMENT.task("locked-pump")], OraclePolicy(ENVIRONMENT), seed=1)
    assert attempt.reason is EndReason.DECLINED


async def test_a_model_that_calls_the_tools_is_graded_on_the_end_state() -> None:
    policy = spoken('get_price {"item": "gear"}', 'set_price {"item": "bolt", "price": 17}', "Done.")
    attempt = await runner().attempt(ENVIRONMENT.task("copy-bolt-gear"), policy, group="g", index=0, seed=3)
    assert attempt.reward is not None
    assert attempt.reward.success
    assert [event.turn for event in attempt.events] == [0, 1]
    assert attempt.messages[-1] == Message(role="assistant", content="Done.")
    assert attempt.num_completion_tokens == sum(
        len(t) + 1 for t in ('get_price {"item": "gear"}', 'set_price {"item": "bolt", "price": 17}', "Done.")
    )


async def test_the_second_malformed_call_ends_as_a_policy_failure_that_keeps_a_reward() -> None:
    attempt = await runner().attempt(
        ENVIRONMENT.task("copy-bolt-gear"), spoken("get_price {", "get_price {"), group="g", index=0, seed=3
    )
    assert (attempt.outcome, attempt.reason, attempt.cause) == (
        Outcome.POLICY_FAILURE,
        EndReason.INVALID_CALLS,
        "policy",
    )
    assert attempt.reward is not None
    assert attempt.reward.total == 0.0


async def test_a_dead_engine_is_infrastructure_without_a_reward_and_is_retried() -> None:
    texts = ("Done.",) * 4
    group = await runner().group(
        ENVIRONMENT.task("copy-bolt-gear"), spoken(*texts, fail_at=1), size=3, group="g", admitted_step=0, seed=3
    )
    assert [m.number for m in group.members] in ([0, 1, 0], [1, 0, 0], [0, 0, 1])
    assert len(group.baseline) == 3


class BrokenWorld(MiniatureWorld):
    def execute(self, call: ToolCall) -> WorldReply:
        raise RuntimeError("disk on fire")

    def snapshot(self) -> bytes:
        if getattr(self, "asked", False):
            raise RuntimeError("gone")
        self.asked = True
        return super().snapshot()


class BrokenEnvironment(MiniatureEnvironment):
    def open(self, task: Task) -> World:
        return BrokenWorld()


async def test_a_broken_world_never_counts_against_the_policy() -> None:
    environment = BrokenEnvironment()
    group = await runner(environment).group(
        environment.task("copy-bolt-gear"), OraclePolicy(environment), size=2, group="g", admitted_step=0, seed=3
    )
    assert {m.outcome for m in group.members} == {Outcome.INFRA_FAILURE}
    assert {m.reward for m in group.members} == {None}
    assert {m.cause for m in group.members} == {"world"}
    assert group.state is GroupState.TOO_FEW


async def test_a_policy_that_raises_failed_by_itself() -> None:
    policy = MessagesPolicy({"copy-bolt-gear": 5}, "broken")  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        policy.endpoint(ENVIRONMENT.task("copy-bolt-gear"), 0, "g")

    class Raises:
        name = "raises"

        def endpoint(self, task: Task, seed: int, group: str) -> Raises:
            return self

        generation_ms = 0.0

        async def complete(self, messages: object, tools: object) -> Message:
            raise ZeroDivisionError("my own fault")

        def spans(self) -> tuple[()]:
            return ()

        def close(self) -> None:
            return None

    attempt = await runner().attempt(ENVIRONMENT.task("copy-bolt-gear"), Raises(), group="g", index=0, seed=0)
    assert attempt.reason is EndReason.POLICY_ERROR
    assert attempt.reward is not None
    assert "ZeroDivisionError" in attempt.detail


def attempts_under_weather() -> list[Attempt]:
    return run_attempts(
        runner(), ENVIRONMENT.tasks(), RandomPolicy(), seed=5, weather_profile=profile("storm"), concurrency=7
    )


def test_equal_seeds_give_equal_bytes_and_no_state_leaks_between_attempts() -> None:
    first, second = attempts_under_weather(), attempts_under_weather()
    assert [a.digest for a in first] == [a.digest for a in second]
    encoded = [msgspec.msgpack.encode(msgspec.structs.replace(a, timings=first[0].timings)) for a in first]
    again = [msgspec.msgpack.encode(msgspec.structs.replace(a, timings=first[0].timings)) for a in second]
    assert encoded == again


def test_scripted_attempts_replay_byte_for_byte_even_in_a_storm() -> None:
    for attempt in attempts_under_weather():
        assert replay(attempt, ENVIRONMENT, COMPOSITION, weather_profile=profile("storm")).identical


async def test_token_attempts_replay_through_the_real_session_and_notice_a_changed_world() -> None:
    texts = ('get_price {"item": "gear"}', 'set_price {"item": "bolt", "price": 17}', "Done.")
    attempt = await runner().attempt(ENVIRONMENT.task("copy-bolt-gear"), spoken(*texts), group="g", index=0, seed=3)
    assert await _replayed(attempt, ENVIRONMENT)

    class Repriced(MiniatureEnvironment):
        def open(self, task: Task) -> World:
            world = MiniatureWorld()
            world.execute(ToolCall(id="x", name="set_price", arguments={"item": "gear", "price": 18}))
            return world

    assert not await _replayed(attempt, Repriced())


async def _replayed(attempt: Attempt, environment: MiniatureEnvironment) -> bool:
    import asyncio

    result = await asyncio.to_thread(
        replay, attempt, environment, COMPOSITION, tokenizer=ByteTokenizer(), max_context=100_000
    )
    return result.identical


def test_hundreds_of_scripted_episodes_run_in_one_event_loop() -> None:
    tasks = [*ENVIRONMENT.tasks()] * 40
    attempts = run_attempts(runner(), tasks, OraclePolicy(ENVIRONMENT), seed=2, concurrency=400)
    assert len(attempts) == len(tasks)
    assert len({a.id for a in attempts}) == len(tasks)
    assert all(a.reward is not None and a.reward.success for a in attempts)


async def test_failing_alike_three_times_in_a_row_ends_the_attempt() -> None:
    same = 'get_price {"item": "gold"}'
    attempt = await runner().attempt(
        ENVIRONMENT.task("copy-bolt-gear"), spoken(*[same] * 9), group="g", index=0, seed=3
    )
    assert (attempt.outcome, attempt.reason) == (Outcome.POLICY_FAILURE, EndReason.REPEATED)
    assert len(attempt.events) == 3
    assert attempt.reward is not None


async def test_repeating_what_is_answered_or_failing_in_another_way_ends_nothing() -> None:
    task = msgspec.structs.replace(ENVIRONMENT.task("copy-bolt-gear"), max_turns=6)
    answered = await runner().attempt(task, spoken(*['get_price {"item": "gear"}'] * 9), group="g", index=0, seed=3)
    assert (answered.reason, len(answered.events)) == (EndReason.MAX_TURNS, 6)
    varied = [f'get_price {{"item": "{name}"}}' for name in ("gold", "gold", "tin", "gold", "gold", "tin")]
    other = await runner().attempt(task, spoken(*varied), group="g", index=0, seed=3)
    assert (other.reason, len(other.events)) == (EndReason.MAX_TURNS, 6)


class Judged(MiniatureEnvironment):
    """A judge has the last word on every answer."""

    def reference(self, task_id: str) -> Reference:
        rule = JudgeCheck(criterion="Says that it is done.", endpoint="openai:http://127.0.0.1:9/v1#m", key_env="")
        check = CheckSpec(id="judged", kind=CheckKind.FUNCTIONAL, rule=rule)
        return msgspec.structs.replace(super().reference(task_id), checks=(check,), oracle_answer="It is done now.")


def judged_by(judge: Callable[[], bool]) -> Resources:
    class Model:
        def complete(self, messages: Sequence[Message], **_: Any) -> Completion:
            prompt = messages[-1].content
            fence = prompt.rsplit("The fence is ", 1)[1].rstrip(".")
            met = judge()
            choice = "A" if met == ("A: the criterion is met" in prompt) else "B"
            return Completion(text=json.dumps({"fence": fence, "choice": choice, "reason": "r"}), finish="stop")

    @contextmanager
    def opened(rule: JudgeCheck) -> Iterator[ChatModel]:
        del rule
        yield Model()

    return Resources(open_model=opened)


def test_while_a_judge_thinks_the_other_episodes_go_on() -> None:
    """Four votes meet at one barrier, two of each of two episodes: judged in the event loop, they would never meet."""
    meeting = threading.Barrier(4, timeout=20.0)

    def judge() -> bool:
        meeting.wait()
        return True

    environment = Judged()
    runner = EpisodeRunner(environment, COMPOSITION, run="r", resources=judged_by(judge))
    attempts = run_attempts(runner, environment.tasks()[:2], OraclePolicy(environment), seed=1)
    assert [attempt.reward is not None and attempt.reward.outcome for attempt in attempts] == [1.0, 1.0]
    assert all(attempt.verdict is not None and len(attempt.verdict.checks[0].votes) == 2 for attempt in attempts)


def test_a_judge_that_fails_is_nobodys_score() -> None:
    def judge() -> bool:
        raise InfrastructureError("the server is overloaded", where="judge")

    environment = Judged()
    runner = EpisodeRunner(environment, COMPOSITION, run="r", resources=judged_by(judge))
    (attempt,) = run_attempts(runner, environment.tasks()[:1], OraclePolicy(environment), seed=1)
    assert (attempt.outcome, attempt.reason) == (Outcome.INFRA_FAILURE, EndReason.GRADER_ERROR)
    assert attempt.reward is None
