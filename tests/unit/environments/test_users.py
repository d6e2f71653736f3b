"""Simulated users tell facts when they are asked; invented answers are never worth a reward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flightschool.environments import TracedEnvironment, build_from_traces, check_environment
from flightschool.environments.users import ASK_USER, ScriptedUser, UserScript
from flightschool.errors import ConfigError, InfrastructureError, InputError
from flightschool.models import LoopbackServer, Reply, chat_reply
from flightschool.records import AnswerCheck, CheckKind, CheckSpec, Effect, Evidence, ToolCall, ToolEvent, ToolResult
from flightschool.rollouts import EpisodeRunner, OraclePolicy, run_attempts
from flightschool.verification import CheckVerifier, OutcomeReward, RewardSettings

if TYPE_CHECKING:
    from tests.unit.environments.conftest import Orders

SCRIPT = UserScript(
    task="t",
    opening="I want to cancel something.",
    replies=(("Which order is it, please?", "Order A1."), ("Why do you cancel the order?", "It came twice.")),
    facts=("You are Ann.", "You paid with the blue card.", "Your birthday is in May."),
)


def ask(text: str) -> ToolCall:
    return ToolCall(id="u", name=ASK_USER.name, arguments={"message": text})


def test_the_scripted_user_answers_the_question_most_alike_and_tells_facts_only_when_asked() -> None:
    user = ScriptedUser(SCRIPT)
    assert user.reply("Could you tell me which order?") == "Order A1."
    assert user.reply("And why would you cancel?") == "It came twice."
    assert user.reply("What card was it paid with?") == "You paid with the blue card."
    assert user.reply("Zebra?") == user.reply("Zebra?") == "I have nothing to add to that."


def talking(orders: Orders, user: str) -> TracedEnvironment:
    made = orders.cancelling("A1", "one")
    made["messages"][1]["content"] = "Hello, I need help."
    made["messages"].insert(2, {"role": "assistant", "content": "Which order?"})
    made["messages"].insert(3, {"role": "user", "content": "It is A1."})
    built = build_from_traces(orders.traces(made), "o", state=orders.state(), user=user).environment
    assert isinstance(built, TracedEnvironment)
    return built


def test_only_the_opening_is_told_and_the_rest_is_asked_for(orders: Orders) -> None:
    environment = talking(orders, "scripted")
    (task,) = environment.tasks()
    assert task.instruction == "Hello, I need help."
    world = environment.open(task)
    fresh = world.snapshot()
    reply = world.execute(ask("Which order do you mean?"))
    assert (reply.value, reply.served_by, reply.is_error) == ("It is A1.", "user", False)
    assert world.execute(ask(" ")).is_error
    assert world.fork().execute(ask("Which order?")).value == "It is A1."
    assert world.snapshot() == fresh
    assert check_environment(environment) == []
    runner = EpisodeRunner(environment, OutcomeReward(RewardSettings()), run="t")
    (attempt,) = run_attempts(runner, environment.tasks(), OraclePolicy(environment), seed=1)
    assert attempt.reward is not None
    assert attempt.reward.success


def test_a_language_model_may_play_the_user(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with LoopbackServer(lambda _: chat_reply("A1, of course.")) as server:
        environment = talking(orders, server.reference())
        world = environment.open(environment.tasks()[0])
        assert world.execute(ask("Which order?")).value == "A1, of course."


def test_a_language_model_may_invent_reads_alone_and_nothing_is_earned_by_it(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    traces = orders.traces(orders.cancelling("A1", "one"))
    asked: list[object] = []

    def invent(body: object) -> Reply:
        asked.append(body)
        return chat_reply('{"id": "Z9", "status": "open"}')

    with LoopbackServer(invent) as server:
        endpoint = server.reference()
        environment = build_from_traces(traces, "o", imitation=endpoint).environment
        world = environment.open(environment.tasks()[0])
        read = ToolCall(id="1", name="get_order", arguments={"order_id": "Z9"})
        reply = world.execute(read)
        assert (reply.value, reply.served_by) == ({"id": "Z9", "status": "open"}, "imitation")
        assert world.execute(read).value == reply.value
        write = ToolCall(id="2", name="cancel_order", arguments={"order_id": "Z9"})
        assert world.execute(write).served_by == "none"
    assert len(asked) == 1  # equal calls are answered alike, and no write is
    result = ToolResult(call_id="1", content="{}", served_by="imitation")
    event = ToolEvent(index=0, turn=0, call=read, result=result, effect=Effect.READ, start_ms=0, end_ms=1)
    check = CheckSpec(id="a", kind=CheckKind.FUNCTIONAL, rule=AnswerCheck(contains=("x",)))
    with pytest.raises(InfrastructureError, match="invented the answer to get_order"):
        CheckVerifier((check,)).verify(Evidence(initial_state=b"{}", end_state=b"{}", events=(event,), answer="x"))


def test_a_declared_check_may_count_questions(orders: Orders) -> None:
    checks = orders.folder / "checks.toml"
    checks.write_text('[[check]]\nid = "asks"\nkind = "process"\nrule = "calls"\ntool = "ask_user"\n')
    traces = orders.traces(orders.cancelling("A1", "one"))
    built = build_from_traces(traces, "o", state=orders.state(), user="scripted", checks=checks)
    assert [one.id for one in built.environment.reference("one").checks][-1] == "asks"
    with pytest.raises(ConfigError, match="there is no tool 'ask_user'"):
        build_from_traces(traces, "o", state=orders.state(), checks=checks)


def test_users_and_imitation_that_cannot_be(orders: Orders) -> None:
    traces = orders.traces(orders.cancelling("A1", "one"))
    with pytest.raises(InputError, match="not an endpoint"):
        build_from_traces(traces, "o", user="somebody")
    with pytest.raises(ConfigError, match="nothing to imitate"):
        build_from_traces(
            traces, "o", state=orders.state(), code=orders.code(), imitation="openai:http://127.0.0.1:9#m"
        )
