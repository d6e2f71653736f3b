"""The OpenAI format: what is taken, what is ignored and listed, what is refused by its name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.records import Message, SpanKind, TokenSpan, ToolCall, ToolSpec, VersionRun
from flightschool.rollouts.gateway.chat import (
    Ask,
    completion,
    error_body,
    event_stream,
    read_ask,
    said_of,
    shown_message,
    shown_tool,
)
from flightschool.rollouts.gateway.messages import ApiError

USER = {"role": "user", "content": "hi"}
TOOL = ToolSpec(name="f", description="d", parameters={"type": "object", "properties": {"a": {}}, "required": ["a"]})


def ask(**fields: Any) -> Ask:
    return read_ask(json.dumps({"model": "m", "messages": [USER], **fields}).encode())


def refused(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as raised:
        ask(**fields)
    assert raised.value.status == 400
    return raised.value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 2),
        ("logprobs", True),
        ("top_logprobs", 3),
        ("stop", ["\n"]),
        ("logit_bias", {"5": -100}),
        ("response_format", {"type": "json_object"}),
        ("tool_choice", "required"),
        ("functions", [{"name": "f"}]),
        ("modalities", ["text", "audio"]),
    ],
)
def test_what_would_change_the_meaning_of_an_answer_is_refused_by_name(name: str, value: Any) -> None:
    error = refused(**{name: value})
    assert error.param == name
    assert name in str(error)


def test_unknown_parameters_are_refused_by_name() -> None:
    assert refused(top_k=5).param == "top_k"


def test_sampling_of_the_program_is_ignored_and_listed_and_neutral_values_pass() -> None:
    asked = ask(temperature=0, top_p=0.9, max_tokens=5, user="u", seed=None, n=1, tool_choice="auto", stop=None)
    assert asked.ignored == ("max_tokens", "temperature", "top_p", "user")
    assert asked.messages == (Message(role="user", content="hi"),)


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ("hi", "messages"),
        ([5], "messages[0]"),
        ([{"role": "robot", "content": ""}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content[0]"),
        ([{"role": "tool", "content": "x"}], "messages[0].tool_call_id"),
        ([{"role": "user", "content": "x", "tool_calls": [{}]}], "messages[0].tool_calls"),
        (
            [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "[1]"}}]}],
            "messages[0].tool_calls[0].arguments",
        ),
    ],
)
def test_broken_messages_are_refused_by_their_place(messages: Any, param: str) -> None:
    assert refused(messages=messages).param == param


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"messages": [{"role": "user", "content": "\\ud800"}]}'])
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError):
        read_ask(body)
    with pytest.raises(ApiError):
        read_ask(b'{"a":' + b"[" * 100_000)


def test_roles_parts_and_calls_are_read_as_the_records_know_them() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": "\\u00fc"}'}}
    rows = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "x"},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
        {"role": "tool", "tool_call_id": "c1", "content": "7"},
    ]
    assert ask(messages=rows).messages == (
        Message(role="system", content="be brief"),
        Message(role="user", content="a\nb"),
        Message(role="assistant", tool_calls=(ToolCall(id="c1", name="f", arguments={"a": "ü"}),)),
        Message(role="tool", content="7", tool_call_id="c1"),
    )


def test_tools_are_shown_once_even_without_a_system_message_or_with_two() -> None:
    tools = [shown_tool(TOOL)]
    assert ask(tools=tools).tools == (TOOL,)
    assert [m.role for m in ask(tools=tools).messages] == ["system", "user"]
    assert [m.role for m in ask().messages] == ["user"]
    two = [{"role": "system", "content": "a"}, {"role": "system", "content": "b"}, USER]
    assert ask(messages=two).messages[0] == Message(role="system", content="a\n\nb")


@pytest.mark.parametrize("tool", [5, {"type": "custom"}, {"type": "function", "function": {"name": 5}}])
def test_broken_tools_are_refused(tool: Any) -> None:
    assert str(refused(tools=[tool]).param).startswith("tools[0]")


SPANS = (
    TokenSpan(id=0, parent=None, kind=SpanKind.PROMPT, token_ids_T=(1, 2, 3)),
    TokenSpan(
        id=1,
        parent=0,
        kind=SpanKind.COMPLETION,
        token_ids_T=(4, 5),
        logprobs_T=(-0.5, -1.0),
        versions=(VersionRun(step=3, count=1), VersionRun(step=4, count=1)),
    ),
)


def test_an_answer_tells_its_tokens_and_their_number() -> None:
    said = said_of(0, Message(role="assistant", content="yes"), SPANS, cut=False)
    shown = completion(Ask(messages=(), tools=(), model="m", token_ids=True), said, created=0)
    [choice] = shown["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == "yes"
    assert choice["token_ids"] == [4, 5]
    assert choice["token_logprobs"] == [-0.5, -1.0]
    assert choice["token_versions"] == [3, 4]
    assert shown["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    assert said_of(0, said.message, SPANS, cut=True).finish == "length"
    assert said_of(0, said.message, (), cut=False).usage["total_tokens"] == 0


@settings(deadline=None)
@given(st.text(), st.lists(st.dictionaries(st.text(max_size=5), st.text() | st.integers()), max_size=3))
def test_a_streamed_answer_adds_up_to_the_whole_one_and_reads_back(
    content: str, arguments: list[dict[str, Any]]
) -> None:
    calls = tuple(ToolCall(id=f"c{i}", name="f", arguments=row) for i, row in enumerate(arguments))
    message = Message(role="assistant", content=content, tool_calls=calls)
    asked = Ask(messages=(), tools=(), model="m", include_usage=True)
    said = said_of(0, message, SPANS, cut=False)
    *events, done = event_stream(asked, said, created=0).decode().strip("\n").split("\n\n")
    assert done == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert chunks[-1]["usage"]["total_tokens"] == 5
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert "".join(delta.get("content") or "" for delta in deltas) == content
    texts = [""] * len(calls)
    for part in (part for delta in deltas for part in delta.get("tool_calls", [])):
        texts[part["index"]] += part["function"]["arguments"]
    assert [json.loads(text) for text in texts] == [call.arguments for call in calls]
    whole = completion(asked, said, created=0)["choices"][0]["message"]
    assert ask(messages=[USER, whole]).messages[1] == message
    assert ask(messages=[USER, shown_message(message)]).messages[1] == message


def test_errors_have_the_openai_shape() -> None:
    error = json.loads(error_body(401, "no", code="invalid_api_key"))["error"]
    assert error == {"message": "no", "type": "authentication_error", "param": None, "code": "invalid_api_key"}
    assert json.loads(error_body(503, "x"))["error"]["type"] == "server_error"
