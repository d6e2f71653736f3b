"""OpenTelemetry traces: the dialects that are out there, and what is missing or cut off in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flightschool.errors import TraceError
from flightschool.traces import RecordedEpisode, import_traces


def typed(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [typed(v) for v in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [{"key": k, "value": typed(v)} for k, v in value.items()]}}
    return {"stringValue": value}


def span(number: int, start: int, attributes: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {
        "traceId": "t1",
        "spanId": f"s{number}",
        "name": "span",
        "startTimeUnixNano": str(start * 1_000_000),
        "endTimeUnixNano": str((start + 5) * 1_000_000),
        "attributes": [{"key": k, "value": typed(v)} for k, v in attributes.items()],
        **extra,
    }


def document(*spans: dict[str, Any]) -> str:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]})


def read(tmp_path: Path, *lines: str) -> tuple[RecordedEpisode, ...]:
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(lines))
    traces = import_traces(path)
    assert traces.format == "otlp"
    return traces.episodes


ASKED = [{"role": "user", "parts": [{"type": "text", "content": "Where is A1?"}]}]
CALLED = [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "get", "arguments": {"id": "A1"}}]}]
ANSWERED = [{"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": {"at": "dock"}}]}]
TOLD = [{"role": "assistant", "parts": [{"type": "text", "content": "At the dock."}], "finish_reason": "stop"}]


def chat(number: int, start: int, given: Any, made: Any, **extra: Any) -> dict[str, Any]:
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": given, "gen_ai.output.messages": made}
    return span(number, start, attributes | extra)


def tool(number: int, start: int, **attributes: Any) -> dict[str, Any]:
    base = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get", "gen_ai.tool.call.id": "c1"}
    return span(number, start, base | {k.replace("__", "."): v for k, v in attributes.items()})


class TestDialects:
    @pytest.mark.parametrize("encode", [json.dumps, lambda value: value], ids=["json text", "structured values"])
    def test_messages_in_attributes(self, tmp_path: Path, encode: Any) -> None:
        system = encode([{"type": "text", "content": "Be brief."}])
        (episode,) = read(
            tmp_path,
            document(
                chat(3, 20, encode(ASKED + CALLED + ANSWERED), encode(TOLD), **{"gen_ai.system_instructions": system}),
                tool(2, 10, gen_ai__tool__call__arguments='{"id": "A1"}', gen_ai__tool__call__result='{"at": "dock"}'),
                chat(1, 0, encode(ASKED), encode(CALLED), **{"gen_ai.system_instructions": system}),
            ),
        )
        assert [m.role for m in episode.messages] == ["system", "user", "assistant", "tool", "assistant"]
        (call,) = episode.calls
        assert (call.id, call.name, call.arguments, call.value) == ("c1", "get", {"id": "A1"}, {"at": "dock"})
        assert (call.start_ms, call.end_ms) == (10.0, 15.0)
        assert call.complete
        assert episode.issues == ()

    def test_numbered_attributes(self, tmp_path: Path) -> None:
        attributes = {
            "gen_ai.system": "openai",
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "Where?",
            "gen_ai.prompt.1.role": "assistant",
            "gen_ai.prompt.1.tool_calls.0.id": "c1",
            "gen_ai.prompt.1.tool_calls.0.name": "get",
            "gen_ai.prompt.1.tool_calls.0.arguments": '{"id": "A1"}',
            "gen_ai.prompt.2.role": "tool",
            "gen_ai.prompt.2.tool_call_id": "c1",
            "gen_ai.prompt.2.content": "dock",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "There.",
        }
        (episode,) = read(tmp_path, document(span(1, 0, attributes)))
        assert [m.content for m in episode.messages] == ["Where?", "", "dock", "There."]
        assert episode.calls[0].arguments == {"id": "A1"}

    def test_span_events(self, tmp_path: Path) -> None:
        def event(name: str, **attributes: Any) -> dict[str, Any]:
            return {"name": name, "attributes": [{"key": k, "value": typed(v)} for k, v in attributes.items()]}

        calls = json.dumps([{"id": "c1", "function": {"name": "get", "arguments": "{}"}}])
        events = [
            event("gen_ai.user.message", content="Where?"),
            event("gen_ai.assistant.message", tool_calls=calls),
            event("gen_ai.tool.message", id="c1", content="dock"),
            event("gen_ai.choice", message=json.dumps({"role": "assistant", "content": "There."})),
        ]
        (episode,) = read(tmp_path, document(span(1, 0, {"gen_ai.operation.name": "chat"}, events=events)))
        assert [m.role for m in episode.messages] == ["user", "assistant", "tool", "assistant"]
        assert episode.calls[0].text == "dock"

    def test_tool_spans_alone_give_calls_in_the_order_of_time(self, tmp_path: Path) -> None:
        late = tool(
            2, 50, gen_ai__tool__call__id="c2", gen_ai__tool__call__arguments="{}", gen_ai__tool__call__result="2"
        )
        early = tool(1, 10, gen_ai__tool__call__arguments="{}", gen_ai__tool__call__result="Error: none")
        early["status"] = {"code": 2}
        (episode,) = read(tmp_path, document(late), document(early))
        assert [(c.id, c.start_ms, c.is_error) for c in episode.calls] == [("c1", 0.0, True), ("c2", 40.0, False)]
        assert "no message content was recorded" in episode.issues[0]

    def test_traces_of_one_conversation_are_one_episode(self, tmp_path: Path) -> None:
        first = chat(1, 0, ASKED, CALLED, **{"gen_ai.conversation.id": "k"})
        second = chat(2, 10, ASKED + CALLED + ANSWERED, TOLD, **{"gen_ai.conversation.id": "k"}) | {"traceId": "t2"}
        (episode,) = read(tmp_path, document(second), document(first))
        assert episode.id == "k"
        assert episode.messages[-1].content == "At the dock."

    def test_a_score_event_is_the_reward(self, tmp_path: Path) -> None:
        score = {"name": "gen_ai.evaluation.result", "attributes": [
            {"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": 1.0}}]}  # fmt: skip
        scored = chat(1, 0, ASKED, TOLD) | {"events": [score]}
        (episode,) = read(tmp_path, document(scored))
        assert (episode.reward, episode.success) == (1.0, True)

    def test_other_spans_and_signals_are_ignored(self, tmp_path: Path) -> None:
        http = span(9, 0, {"http.method": "GET"}) | {"traceId": "t9"}
        (episode,) = read(tmp_path, document(http), document(chat(1, 0, ASKED, TOLD)), '{"resourceLogs": []}')
        assert episode.id == "t1"


class TestMissingAndTruncated:
    def test_a_truncated_message_list_is_named_and_not_used(self, tmp_path: Path) -> None:
        cut = json.dumps(ASKED + CALLED + ANSWERED)[:-30]
        (episode,) = read(tmp_path, document(chat(1, 0, json.dumps(ASKED), json.dumps(CALLED)), chat(2, 9, cut, TOLD)))
        assert "span s2: gen_ai.input.messages is truncated" in episode.issues
        assert [m.role for m in episode.messages] == ["user", "assistant"]

    @pytest.mark.parametrize("marker", ["...[truncated]", "<truncated 300 characters>", "… truncated"])
    def test_a_truncated_result_is_incomplete(self, tmp_path: Path, marker: str) -> None:
        answered = [{"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "abc" + marker}]}]
        (episode,) = read(tmp_path, document(chat(1, 0, ASKED + CALLED + answered, TOLD)))
        assert not episode.calls[0].complete
        assert "the result of call c1 is truncated" in episode.issues

    def test_calls_without_content_are_incomplete(self, tmp_path: Path) -> None:
        (episode,) = read(tmp_path, document(tool(1, 0)))
        assert not episode.calls[0].complete
        assert "call c1 is recorded without its whole content" in episode.issues

    def test_an_answer_that_only_the_tool_span_has_is_taken_from_there(self, tmp_path: Path) -> None:
        (episode,) = read(
            tmp_path, document(chat(1, 0, ASKED, CALLED), tool(2, 10, gen_ai__tool__call__result='{"at": "dock"}'))
        )
        assert episode.calls[0].value == {"at": "dock"}
        assert episode.messages[-1].role == "tool"

    def test_orphans_dropped_attributes_and_other_histories_are_named(self, tmp_path: Path) -> None:
        other = [{"role": "user", "parts": [{"type": "text", "content": "Sub-task"}]}]
        spans = [
            chat(1, 0, ASKED + CALLED + ANSWERED, TOLD) | {"parentSpanId": "gone", "droppedAttributesCount": 2},
            chat(2, 1, other, TOLD),
        ]
        (episode,) = read(tmp_path, document(*spans))
        text = " | ".join(episode.issues)
        assert "span s1 is an orphan" in text
        assert "span s1: attributes were dropped" in text
        assert "span s2 has another history" in text
        assert episode.instruction == "Where is A1?"


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "word"),
        [
            ('{"resourceSpans": 1}', "no spans"),
            ('{"resourceSpans": [1]}', "no object"),
            ('{"resourceSpans": [{"scopeSpans": [{"spans": [1]}]}]}', "no list of objects"),
            (document({"name": "x"}), "no traceId"),
            (document(span(1, 0, {}) | {"startTimeUnixNano": "soon"}), "no time"),
            (document(span(1, 0, {}) | {"attributes": {"a": 1}}), "attributes"),
            (document(span(1, 0, {}) | {"attributes": [{"key": "a", "value": {"odd": 1}}]}), "odd"),
            (document(span(1, 0, {}) | {"attributes": [{"key": "a", "value": {"intValue": "x"}}]}), "intValue"),
            (document(span(1, 0, {"http.method": "GET"})), "GenAI"),
            (document(chat(1, 0, ANSWERED, TOLD)), "answers no call"),
        ],
    )
    def test_names_file_and_line(self, tmp_path: Path, text: str, word: str) -> None:
        path = tmp_path / "t.jsonl"
        path.write_text(text)
        with pytest.raises(TraceError) as caught:
            import_traces(path)
        assert word in caught.value.what
        assert "t.jsonl" in caught.value.where
        assert caught.value.expected
        assert caught.value.mend
