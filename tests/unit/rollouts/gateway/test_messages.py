"""Keys of messages: shown to the model, listed as ignored, or refused by their place; never dropped unseen."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flightschool.records import Message, ToolCall
from flightschool.rollouts.gateway.chat import Ask, completion, read_ask, said_of
from flightschool.rollouts.gateway.messages import ApiError, read_call

USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def ask(*messages: dict[str, Any]) -> Ask:
    return read_ask(json.dumps({"messages": list(messages)}).encode())


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}, "function_call"),
        ({"role": "assistant", "content": "x", "reasoning_content": "because"}, "reasoning_content"),
        ({"role": "assistant", "content": "x", "reasoning": "because"}, "reasoning"),
        ({"role": "assistant", "content": "x", "audio": {"id": "a"}}, "audio"),
        ({"role": "assistant", "content": "x", "refusal": "no"}, "refusal"),
        ({"role": "user", "content": "x", "refusal": "no"}, "refusal"),
        ({"role": "user", "content": "x", "tool_call_id": "c1"}, "tool_call_id"),
        ({"role": "user", "content": "x", "contnet": "y"}, "contnet"),
        ({"role": "user", "content": [{"type": "text", "text": "x", "txt": "y"}]}, "content[0].txt"),
        ({"role": "assistant", "tool_calls": [{**CALL, "functoin": {}}]}, "tool_calls[0].functoin"),
        (
            {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "f", "arguments": "{}", "args": {}}}]},
            "tool_calls[0].function.args",
        ),
    ],
)
def test_what_the_model_would_not_be_shown_is_refused_by_its_place(message: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as raised:
        ask(USER, message)
    assert (raised.value.status, raised.value.param) == (400, f"messages[1].{param}")
    assert param in str(raised.value)


def test_what_repeats_or_annotates_is_ignored_and_listed() -> None:
    call = {**CALL, "index": 0, "function": {"name": "f", "arguments": "{}", "parsed_arguments": {}}}
    asked = ask(
        {"role": "user", "name": "bob", "content": [{"type": "text", "text": "hi", "cache_control": {}}]},
        {"role": "assistant", "content": "x", "annotations": [], "parsed": {"a": 1}, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "7"},
    )
    assert asked.ignored == (
        "messages.annotations",
        "messages.content.cache_control",
        "messages.name",
        "messages.parsed",
        "messages.tool_calls.function.parsed_arguments",
        "messages.tool_calls.index",
    )
    assert [message.content for message in asked.messages] == ["hi", "x", "7"]


def test_a_refusal_is_what_the_assistant_said() -> None:
    assert ask(USER, {"role": "assistant", "content": None, "refusal": "I cannot."}).messages[1].content == "I cannot."


def test_what_the_official_client_sends_back_passes() -> None:
    """Its ``model_dump()`` of our own answer: every field that it knows, null where nothing was said."""
    said = said_of(0, Message(role="assistant", tool_calls=(ToolCall(id="c1", name="f", arguments={}),)), (), cut=False)
    answered = completion(Ask(messages=(), tools=(), model="m"), said)["choices"][0]["message"]
    dumped = {"refusal": None, "annotations": None, "audio": None, "function_call": None, "tool_calls": None}
    asked = ask(USER, {**dumped, **answered}, {"role": "tool", "tool_call_id": "c1", "content": "7"})
    assert asked.ignored == ()
    assert asked.messages[1].tool_calls[0].name == "f"
    assert ask(USER, {**dumped, "role": "assistant", "content": "x"}).messages[1].content == "x"


def test_empty_values_of_what_would_be_lost_say_nothing() -> None:
    message = {"role": "assistant", "content": "x", "reasoning_content": "", "tool_calls": [], "function_call": {}}
    assert ask(USER, message).ignored == ()


def test_a_bare_call_has_its_own_keys_only() -> None:
    assert read_call({"id": "1", "name": "f", "arguments": {"a": 1}}, "calls[0]").arguments == {"a": 1}
    with pytest.raises(ApiError, match=r"calls\[0\]\.argumnets"):
        read_call({"name": "f", "arguments": {}, "argumnets": {"a": 1}}, "calls[0]")
