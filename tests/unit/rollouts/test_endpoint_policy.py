"""A model behind somebody else's server: good answers, garbage, overload, refusals, and who is to blame."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from flightschool.errors import InputError
from flightschool.models import ANTHROPIC, OPENAI, LoopbackServer, Reply, Retries, chat_reply, message_reply
from flightschool.records import Attempt, EndReason, Outcome
from flightschool.rollouts import EpisodeRunner, parse_policy, run_attempts
from flightschool.rollouts.endpoint_policy import EndpointPolicy
from flightschool.testing.miniature import MiniatureEnvironment
from flightschool.verification import OutcomeReward

ENVIRONMENT = MiniatureEnvironment()
FAST = Retries(most_tries=2, first_pause_s=0.0, longest_pause_s=0.0)


def attempted(respond: Callable[[dict[str, Any]], Reply], dialect: str = OPENAI) -> Attempt:
    task = ENVIRONMENT.task("copy-bolt-gear")
    with LoopbackServer(respond) as server:
        policy = EndpointPolicy(server.reference(dialect=dialect), retries=FAST)
        runner = EpisodeRunner(ENVIRONMENT, OutcomeReward(), run="r")
        (attempt,) = run_attempts(runner, [task], policy, seed=0)
    return attempt


def called(name: str, arguments: str, finish: str = "tool_calls") -> Reply:
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return Reply({"choices": [choice], "usage": {"prompt_tokens": 100, "completion_tokens": 10}})


def pilot(body: dict[str, Any]) -> Reply:
    """Reads the price, writes it, says it is done."""
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    assert {tool["function"]["name"] for tool in body["tools"]} == {"get_price", "set_price", "decline"}
    if turn == 0:
        return called("get_price", '{"item": "gear"}')
    if turn == 1:
        price = json.loads(body["messages"][-1]["content"])["price"]
        assert body["messages"][-1]["tool_call_id"] == "c1"
        return called("set_price", json.dumps({"item": "bolt", "price": price}))
    return chat_reply("Done.")


def test_a_model_with_tools_solves_the_task_and_its_tokens_are_counted() -> None:
    attempt = attempted(pilot)
    assert attempt.reward is not None
    assert attempt.reward.success
    assert attempt.num_completion_tokens == 21
    assert attempt.spans == ()


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply({"error": "slow down"}, status=429), EndReason.ENGINE_ERROR),
        (Reply({"error": "broken"}, status=500), EndReason.ENGINE_ERROR),
        (Reply({"choices": []}), EndReason.ENGINE_ERROR),
        (Reply("garbage"), EndReason.ENGINE_ERROR),
        (Reply({"choices": [{"message": {"content": "x", "tool_calls": [{"function": 3}]}}]}), EndReason.ENGINE_ERROR),
        (Reply({"error": "no such key"}, status=401), EndReason.ENGINE_ERROR),
        (Reply({"error": "bad request"}, status=400), EndReason.ENGINE_ERROR),
        (chat_reply("On and on and", finish="length"), EndReason.TRUNCATED),
        (called("get_price", "{not json"), EndReason.INVALID_CALLS),
        (called("get_price", "[1]"), EndReason.INVALID_CALLS),
        (called("get_prize", "{}"), EndReason.REPEATED),
    ],
)
def test_who_could_have_caused_it(reply: Reply, reason: EndReason) -> None:
    attempt = attempted(lambda _: reply)
    assert attempt.reason is reason
    infra = reason is EndReason.ENGINE_ERROR
    assert (attempt.outcome is Outcome.INFRA_FAILURE) == infra
    assert (attempt.reward is None) == infra


def test_a_request_refused_after_the_policy_has_spoken_is_the_policys() -> None:
    def then_refused(body: dict[str, Any]) -> Reply:
        first = len(body["messages"]) <= 2
        return called("get_price", '{"item": "gear"}') if first else Reply({"error": "context"}, status=400)

    attempt = attempted(then_refused)
    assert attempt.reason is EndReason.CONTEXT_FULL
    assert attempt.outcome is Outcome.POLICY_FAILURE


def test_the_grammar_knows_it() -> None:
    assert parse_policy("openai:http://127.0.0.1:9/v1#m", ENVIRONMENT).name == "openai:http://127.0.0.1:9/v1#m"
    assert parse_policy("anthropic:http://127.0.0.1:9#m", ENVIRONMENT).name == "anthropic:http://127.0.0.1:9#m"
    for wrong in ("openai:nowhere", "openai:http://127.0.0.1:9/v1", "anthropic:http://127.0.0.1:9", "anthropic:"):
        with pytest.raises(InputError):
            parse_policy(wrong, ENVIRONMENT)


def test_a_vendors_key_is_wanted_from_its_own_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(InputError, match="ANTHROPIC_API_KEY"):
        parse_policy("anthropic:https://api.example.org#m", ENVIRONMENT)


def test_a_model_of_the_other_dialect_solves_the_task() -> None:
    """Reads the price, writes it, says it is done: in Anthropic's format, through the whole runner."""

    def pilot(body: dict[str, Any]) -> Reply:
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        assert {tool["name"] for tool in body["tools"]} == {"get_price", "set_price", "decline"}
        if turn == 0:
            return message_reply("", ("t1", "get_price", {"item": "gear"}))
        (result,) = body["messages"][-1]["content"]
        if turn == 1:
            assert (result["type"], result["tool_use_id"]) == ("tool_result", "t1")
            return message_reply(
                "", ("t2", "set_price", {"item": "bolt", "price": json.loads(result["content"])["price"]})
            )
        return message_reply("Done.")

    attempt = attempted(pilot, ANTHROPIC)
    assert attempt.reward is not None
    assert attempt.reward.success
    assert attempt.num_completion_tokens == 3
    cut = attempted(lambda _: message_reply("On and on and", stop="max_tokens"), ANTHROPIC)
    assert (cut.reason, cut.outcome) == (EndReason.TRUNCATED, Outcome.POLICY_FAILURE)
    broken = attempted(lambda _: Reply({"type": "error"}, status=529), ANTHROPIC)
    assert (broken.reason, broken.outcome) == (EndReason.ENGINE_ERROR, Outcome.INFRA_FAILURE)
