"""Dialects of providers, each in the exact shape that its writer gives it, found by sniffing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.unit.traces.conversation import (
    ANSWER,
    ARGUMENTS,
    ASKED,
    TOLD,
    check_conversation,
    read,
    write,
)

from flightschool.traces import IMPORT_FORMATS, Usage, total_usage


def test_there_is_an_importer_for_every_dialect() -> None:
    assert set(IMPORT_FORMATS) == {
        "anthropic-messages", "anthropic-session", "atif", "codex", "inspect", "langfuse", "langsmith", "openai-chat",
        "openai-responses", "openinference", "otlp", "swe-agent", "tau-bench",
    }  # fmt: skip


RESPONSES: dict[str, Any] = {
    "id": "resp_2",
    "model": "m",
    "instructions": "Help.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": ASKED}]},
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "look it up"}]},
        {"type": "function_call", "call_id": "c1", "name": "find_order", "arguments": json.dumps(ARGUMENTS)},
        {"type": "function_call_output", "call_id": "c1", "output": ANSWER},
    ],
    "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": TOLD}]}],
    "tools": [{"type": "function", "name": "find_order", "parameters": {"type": "object"}}, {"type": "web_search"}],
    "usage": {"input_tokens": 5, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 2}},
    "metadata": {"success": True, "task": "t"},
    "a_field_of_tomorrow": {"x": 1},
}


class TestResponses:
    def test_an_exchange(self, tmp_path: Path) -> None:
        episode = read(write(tmp_path / "t.jsonl", RESPONSES), "openai-responses")
        check_conversation(episode, "Help.")
        assert (episode.id, episode.success, episode.hint.id) == ("resp_2", True, "t")
        assert [t.name for t in episode.tools] == ["find_order"]
        assert episode.turns[0].reasoning == "look it up"
        assert episode.turns[-1].model == "m"
        assert total_usage(episode) == Usage(input_tokens=5, output_tokens=3, cached_tokens=2)

    def test_calls_of_one_response_are_one_turn_and_encrypted_thoughts_are_named(self, tmp_path: Path) -> None:
        items = [
            {"role": "user", "content": ASKED},
            {"type": "reasoning", "summary": [], "encrypted_content": "x"},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "b", "output": "2"},
            {"type": "function_call_output", "call_id": "a", "output": "1"},
        ]
        episode = read(write(tmp_path / "t.jsonl", {"items": items}), "openai-responses")
        assert [(c.id, c.turn, c.text) for c in episode.calls] == [("a", 0, "1"), ("b", 0, "2")]
        assert episode.issues == ("a thought is encrypted and was left out",)


ANTHROPIC: dict[str, Any] = {
    "request": {
        "model": "m",
        "system": [{"type": "text", "text": "Help."}],
        "messages": [
            {"role": "user", "content": ASKED},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "look it up", "signature": "s"},
                    {"type": "tool_use", "id": "tu1", "name": "find_order", "input": ARGUMENTS},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "tu1", "content": [{"type": "text", "text": ANSWER}]}
                ],
            },
        ],
        "tools": [{"name": "find_order", "description": "d", "input_schema": {"type": "object"}}],
    },
    "response": {
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "text", "text": TOLD}],
        "model": "m",
        "stop_reason": "end_turn",
        "usage": {
            "input_tokens": 7,
            "output_tokens": 5,
            "cache_read_input_tokens": 3,
            "cache_creation_input_tokens": 0,
        },
    },
}


class TestAnthropicMessages:
    def test_an_exchange(self, tmp_path: Path) -> None:
        episode = read(write(tmp_path / "t.jsonl", ANTHROPIC), "anthropic-messages")
        check_conversation(episode, "Help.")
        assert [(t.name, t.parameters) for t in episode.tools] == [("find_order", {"type": "object"})]
        assert episode.turns[0].reasoning == "look it up"
        # Anthropic counts cached tokens apart; here the prompt includes them.
        assert total_usage(episode) == Usage(input_tokens=10, output_tokens=5, cached_tokens=3)

    def test_a_failed_result_and_words_beside_it(self, tmp_path: Path) -> None:
        result = {"type": "tool_result", "tool_use_id": "tu1", "content": "gone", "is_error": True}
        line = json.loads(json.dumps(ANTHROPIC["request"]))
        line["messages"][2]["content"] = [result, {"type": "text", "text": "Try again."}]
        episode = read(write(tmp_path / "t.jsonl", line), "anthropic-messages")
        assert episode.calls[0].is_error
        assert [m.role for m in episode.messages][-2:] == ["tool", "user"]
