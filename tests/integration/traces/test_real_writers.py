"""Files that the real libraries write and read. Each test needs its library and says so where it is absent.

They pin much, so that they stand in no requirement of ours: install ``inspect_ai``, ``opentelemetry-sdk`` with
``opentelemetry-exporter-otlp-proto-common``, ``openinference-instrumentation``, ``openai`` and ``anthropic`` into an
environment beside this one to run these tests.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pydantic
import pytest
from tests import needs

from flightschool.traces import RecordedEpisode, export, import_traces

pytestmark = pytest.mark.integration

QUESTION = {"role": "user", "content": "State of A1?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "find_order", "arguments": '{"order": "A1"}'}}
CHAT = {
    "messages": [
        {"role": "system", "content": "You help with orders."},
        QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [CALL], "model": "m", "usage": {"input_tokens": 5}},
        {"role": "tool", "tool_call_id": "c1", "content": '{"state": "open"}', "start_ms": 1.0, "end_ms": 4.0},
        {"role": "assistant", "content": "It is open."},
    ],
    "metadata": {"id": "one", "reward": 1.0, "labels": {"helpful": 0.5}},
}


@pytest.fixture
def episode(tmp_path: Path) -> RecordedEpisode:
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps(CHAT))
    return import_traces(path).episodes[0]


def test_inspect_reads_our_export(episode: RecordedEpisode, tmp_path: Path) -> None:
    log = needs.package("inspect_ai.log", "inspect-ai")
    path = tmp_path / "ours.eval"
    export([episode], path, "inspect")
    read = log.read_eval_log(str(path))
    (sample,) = read.samples
    assert read.status == "success"
    assert (sample.id, sample.input, [m.role for m in sample.messages]) == (
        "one", "State of A1?", ["system", "user", "assistant", "tool", "assistant"],
    )  # fmt: skip
    assert sample.messages[2].tool_calls[0].arguments == {"order": "A1"}
    assert {name: score.value for name, score in sample.scores.items()} == {
        "helpful": 0.5,
        "success": "C",
        "reward": 1.0,
    }
    assert log.read_eval_log_sample(str(path), id="one", epoch=1).messages == sample.messages


def test_what_inspect_writes_again_is_read(episode: RecordedEpisode, tmp_path: Path) -> None:
    log = needs.package("inspect_ai.log", "inspect-ai")
    export([episode], tmp_path / "ours.eval", "inspect")
    read = log.read_eval_log(str(tmp_path / "ours.eval"))
    for name in ("again.eval", "again.json"):
        log.write_eval_log(read, str(tmp_path / name))
        (back,) = import_traces(tmp_path / name, "inspect").episodes
        assert (back.messages, back.calls, back.labels, back.turns) == (
            episode.messages, episode.calls, episode.labels, episode.turns,
        )  # fmt: skip


def test_openai_takes_our_messages(episode: RecordedEpisode, tmp_path: Path) -> None:
    chat = needs.package("openai.types.chat")
    export([episode], tmp_path / "x.jsonl", "openai-chat")
    line = json.loads((tmp_path / "x.jsonl").read_text())
    one = pydantic.TypeAdapter(chat.ChatCompletionMessageParam)
    assert all(one.validate_python(message) for message in line["messages"])


def written(spans: Any, path: Path) -> Path:
    """OTLP JSON of finished spans, by the exporter's own encoder (JSON wants ids in hexadecimal)."""
    encoder = needs.package(
        "opentelemetry.exporter.otlp.proto.common.trace_encoder", "opentelemetry-exporter-otlp-proto-common"
    )
    json_format = needs.package("google.protobuf.json_format", "protobuf")

    def hexadecimal(value: Any) -> Any:
        if isinstance(value, list):
            return [hexadecimal(item) for item in value]
        if not isinstance(value, dict):
            return value
        ids = ("traceId", "spanId", "parentSpanId")
        return {k: base64.b64decode(v).hex() if k in ids and v else hexadecimal(v) for k, v in value.items()}

    path.write_text(json.dumps(hexadecimal(json_format.MessageToDict(encoder.encode_spans(spans)))))
    return path


def test_spans_of_the_sdk_with_a_sub_agent(tmp_path: Path) -> None:
    trace = needs.package("opentelemetry.sdk.trace", "opentelemetry-sdk")
    exporting = needs.package("opentelemetry.sdk.trace.export", "opentelemetry-sdk")
    memory = needs.package(
        "opentelemetry.sdk.trace.export.in_memory_span_exporter", "opentelemetry-sdk"
    ).InMemorySpanExporter()
    provider = trace.TracerProvider()
    provider.add_span_processor(exporting.SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("test")

    def span(operation: str, **attributes: Any) -> Any:
        named = {f"gen_ai.{key.replace('__', '.')}": value for key, value in attributes.items()}
        return tracer.start_as_current_span(operation, attributes={"gen_ai.operation.name": operation, **named})

    def said(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
        return {"role": role, "parts": list(parts)}

    asked = [said("user", {"type": "text", "content": "State of A1?"})]
    calls = [said("assistant", {"type": "tool_call", "id": "c1", "name": "find_order", "arguments": {"order": "A1"}})]
    answers = [said("tool", {"type": "tool_call_response", "id": "c1", "response": {"state": "open"}})]
    told = [said("assistant", {"type": "text", "content": "It is open."})]
    with span("invoke_agent", conversation__id="conv"):
        with span("chat", input__messages=json.dumps(asked), output__messages=json.dumps(calls)):
            pass
        with span("execute_tool", tool__name="find_order", tool__call__id="c1"), span("invoke_agent"):
            sub = [said("user", {"type": "text", "content": "Count."})]
            with span("chat", input__messages=json.dumps(sub), output__messages=json.dumps(told)):
                pass
        with span("chat", input__messages=json.dumps(asked + calls + answers), output__messages=json.dumps(told)):
            pass
    (episode,) = import_traces(written(memory.get_finished_spans(), tmp_path / "t.json")).episodes
    assert (episode.id, [m.role for m in episode.messages]) == ("conv", ["user", "assistant", "tool", "assistant"])
    assert episode.calls[0].value == {"state": "open"}
    assert episode.calls[0].end_ms is not None
    (child,) = episode.children
    assert (child.relation, child.parent_call, child.messages[0].content) == ("sub-agent", "c1", "Count.")
    lines = "".join(one.to_json(indent=None) + "\n" for one in memory.get_finished_spans())
    (tmp_path / "console.jsonl").write_text(lines)
    (console,) = import_traces(tmp_path / "console.jsonl").episodes
    assert (console.messages, len(console.children)) == (episode.messages, 1)
