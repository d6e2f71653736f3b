"""Anthropic's dialect against a real HTTP server on the loopback, and beside the vendor's own client.

``data/anthropic_request.json`` is what the vendor's client sent for the conversation below (``record_anthropic.py``
made it); where that client is installed (FLIGHTSCHOOL_ANTHROPIC names its Python), it is asked again.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import needs

from flightschool.errors import InfrastructureError, InputError
from flightschool.models import (
    ANTHROPIC,
    OPENAI,
    CallCompletion,
    ChatClient,
    LoopbackServer,
    MessagesClient,
    RefusedRequestError,
    Reply,
    Retries,
    client_of,
    message_reply,
)
from flightschool.records import Effect, Json, Message, ToolCall, ToolSpec

pytestmark = pytest.mark.integration

HERE = Path(__file__).parent
RECORDED = HERE / "data" / "anthropic_request.json"
PYTHON = Path(os.environ.get("FLIGHTSCHOOL_ANTHROPIC", "absent"))
QUICK = Retries(most_tries=3, first_pause_s=0.0, longest_pause_s=0.0)
WEATHER = ToolSpec(
    name="get_weather",
    description="Weather of a place.",
    parameters={"properties": {"place": {"type": "string"}}, "required": ["place"]},
    effect=Effect.READ,
)
TALK = (
    Message(role="system", content="Be brief."),
    Message(role="user", content="Warmer in Oslo or in Rome?"),
    Message(
        role="assistant",
        content="I look.",
        tool_calls=(
            ToolCall(id="toolu_1", name="get_weather", arguments={"place": "Oslo"}),
            ToolCall(id="toolu_2", name="get_weather", arguments={"place": "Rome"}),
        ),
    ),
    Message(role="tool", content="2", tool_call_id="toolu_1"),
    Message(role="tool", content="14", tool_call_id="toolu_2"),
)


def asked(respond: Callable[[dict[str, Json]], Reply], key: str = "", **how: Any) -> CallCompletion:
    with LoopbackServer(respond) as server:
        reference = server.reference("model-7", ANTHROPIC)
        with client_of(reference, key_env=key, dialects=(OPENAI, ANTHROPIC), retries=QUICK) as client:
            assert isinstance(client, MessagesClient)
            return client.call(TALK, (WEATHER,), max_tokens=99, **how)


def test_we_send_what_the_vendors_own_client_sends() -> None:
    seen: list[dict[str, Json]] = []

    def respond(request: dict[str, Json]) -> Reply:
        seen.append(request)
        return message_reply("Rome.")

    answer = asked(respond)
    assert (answer.said.text, answer.said.finish, answer.calls) == ("Rome.", "stop", ())
    assert seen == [json.loads(RECORDED.read_text(encoding="utf-8"))]
    # by hand: the rules stand apart, both results are blocks of one message
    assert seen[0]["system"] == "Be brief."
    assert [turn["role"] for turn in seen[0]["messages"]] == ["user", "assistant", "user"]
    assert [b["tool_use_id"] for b in seen[0]["messages"][2]["content"]] == ["toolu_1", "toolu_2"]


def test_calls_tokens_and_reasons_to_stop_are_read() -> None:
    reply = message_reply("I look.", ("toolu_9", "get_weather", {"place": "Rome"}))
    body = {**reply.body, "usage": {"input_tokens": 7, "cache_read_input_tokens": 100, "output_tokens": 12}}
    body["content"] = [{"type": "thinking", "thinking": "hm", "signature": "s"}, *body["content"]]
    answer = asked(lambda _: Reply(body))
    (call,) = answer.calls
    assert (call.id, call.name, json.loads(call.arguments)) == ("toolu_9", "get_weather", {"place": "Rome"})
    assert (answer.said.text, answer.said.finish) == ("I look.", "tool_calls")
    assert (answer.said.num_prompt_tokens, answer.said.num_completion_tokens) == (107, 12)
    for stop, finish in (("max_tokens", "length"), ("model_context_window_exceeded", "length"), ("end_turn", "stop")):
        assert asked(lambda _, stop=stop: message_reply("x", stop=stop)).said.finish == finish  # type: ignore[misc]


def test_thoughts_before_a_call_come_back_unchanged_unless_somebody_edited_the_message() -> None:
    thought = {"type": "thinking", "thinking": "Rome is warmer, surely.", "signature": "c2lnbmVk"}
    seen: list[dict[str, Json]] = []

    def respond(request: dict[str, Json]) -> Reply:
        seen.append(request)
        reply = message_reply("I look.", ("toolu_9", "get_weather", {"place": "Rome"}))
        return Reply({**reply.body, "content": [thought, *reply.body["content"]]})

    with LoopbackServer(respond) as server:
        reference = server.reference("model-7", ANTHROPIC)
        with client_of(reference, key_env="", dialects=(ANTHROPIC,), retries=QUICK) as client:
            answer = client.call(TALK[:2], (WEATHER,))
            (call,) = answer.calls
            made = ToolCall(id=call.id, name=call.name, arguments=json.loads(call.arguments))
            said = Message(role="assistant", content=answer.said.text, tool_calls=(made,))
            result = Message(role="tool", content="14", tool_call_id="toolu_9")
            client.call((*TALK[:2], said, result), (WEATHER,))
            other = Message(role="assistant", content="I guess.", tool_calls=(made,))
            client.call((*TALK[:2], other, result), (WEATHER,))
    kinds = [[block["type"] for block in request["messages"][1]["content"]] for request in seen[1:]]
    assert kinds == [["thinking", "text", "tool_use"], ["text", "tool_use"]]
    assert seen[1]["messages"][1]["content"][0] == thought


def test_overload_passes_and_refusals_do_not() -> None:
    def error(kind: str, status: int) -> Reply:
        return Reply({"type": "error", "error": {"type": kind, "message": kind}}, status=status)

    replies = [error("overloaded_error", 529), error("rate_limit_error", 429), message_reply("there")]
    assert asked(lambda _: replies.pop(0)).said.num_tries == 3
    with pytest.raises(RefusedRequestError, match="invalid_request_error"):
        asked(lambda _: error("invalid_request_error", 400))
    with pytest.raises(InfrastructureError, match="authentication_error"):
        asked(lambda _: error("authentication_error", 401))
    bodies: tuple[Json, ...] = (
        {"content": "text"},
        {"content": [{"type": "text"}], "stop_reason": "end_turn"},
        [],
        "no",
    )
    for garbage in bodies:
        with pytest.raises(InfrastructureError, match=r"gave no answer in 3 tries: no message"):
            asked(lambda _, body=garbage: Reply(body))  # type: ignore[misc]
    seen: list[dict[str, Json]] = []

    def noting(request: dict[str, Json]) -> Reply:
        seen.append(request)
        return message_reply("x")

    asked(noting, temperature=0.5)
    assert seen[0]["temperature"] == 0.5
    with pytest.raises(InputError, match=r"temperature 1\.5"):
        asked(lambda _: message_reply("x"), temperature=1.5)


def test_the_key_travels_as_the_vendor_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-ant-secret")
    found = client_of("anthropic:http://127.0.0.1:9/v1#m", key_env="SOME_KEY", dialects=(ANTHROPIC,))
    headers = found._headers("sk-ant-secret")
    assert headers == {"anthropic-version": "2023-06-01", "x-api-key": "sk-ant-secret"}
    assert found._address() == "http://127.0.0.1:9/v1/messages"
    assert "secret" not in str(found.endpoint)
    assert type(client_of("openai:http://127.0.0.1:9/v1#m", key_env="", dialects=(OPENAI, ANTHROPIC))) is ChatClient
    with pytest.raises(InputError, match="not an endpoint"):
        client_of("anthropic:http://127.0.0.1:9#m", key_env="", dialects=(OPENAI,))


@pytest.mark.slow
@pytest.mark.skipif(
    not PYTHON.is_file(), reason=needs.reason("the vendor's client", "set FLIGHTSCHOOL_ANTHROPIC to a Python with it")
)
def test_the_vendors_client_still_says_so() -> None:
    """It sends what was recorded, reads what our loopback answers, and knows the names that we read."""
    done = subprocess.run(
        [str(PYTHON), str(HERE / "record_anthropic.py")], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["request"] == json.loads(RECORDED.read_text(encoding="utf-8"))
    assert found["read"] == {"text": "I look.", "tool": "get_weather", "input": {"place": "Rome"}, "stop": "tool_use"}
    assert {"input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"} <= set(
        found["usage_fields"]
    )
    assert {"end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"} <= set(found["stop_reasons"])
