"""Dialects of tools that observe, each in the exact shape that its writer gives it: spans, runs, logs."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.unit.traces.conversation import (
    ANSWER,
    ARGUMENTS,
    ASKED,
    CALL,
    TOLD,
    check_conversation,
    read,
    write,
)

from flightschool.errors import TraceError
from flightschool.traces import RecordedEpisode, Usage, import_traces, total_usage

OPENINFERENCE = [
    {"openinference.span.kind": "AGENT", "session.id": "s-1"},
    {
        "openinference.span.kind": "LLM",
        "llm.model_name": "m",
        "llm.token_count.prompt": 10,
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": ASKED,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "find_order",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": json.dumps(ARGUMENTS),
    },
    {
        "openinference.span.kind": "TOOL",
        "tool.name": "find_order",
        "input.value": json.dumps(ARGUMENTS),
        "output.value": ANSWER,
    },
    {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.contents.0.message_content.type": "text",
        "llm.input_messages.0.message.contents.0.message_content.text": ASKED,
        "llm.input_messages.1.message.role": "assistant",
        "llm.input_messages.1.message.tool_calls.0.tool_call.id": "c1",
        "llm.input_messages.1.message.tool_calls.0.tool_call.function.name": "find_order",
        "llm.input_messages.1.message.tool_calls.0.tool_call.function.arguments": json.dumps(ARGUMENTS),
        "llm.input_messages.2.message.role": "tool",
        "llm.input_messages.2.message.tool_call_id": "c1",
        "llm.input_messages.2.message.content": ANSWER,
        "llm.output_messages.0.message.content": TOLD,
        "llm.tools.0.tool.json_schema": json.dumps({"function": {"name": "find_order", "parameters": {}}}),
    },
]


class TestOpenInference:
    def test_rows_of_a_span_table(self, tmp_path: Path) -> None:
        rows = [
            {
                "name": "span", "context": {"trace_id": "0xt", "span_id": f"0x{n}"}, "parent_id": "0x0" if n else None,
                "start_time": f"2025-05-01T12:00:0{n}Z", "end_time": f"2025-05-01T12:00:0{n}.500Z", "status_code": "OK",
                "attributes": attributes,
            }
            for n, attributes in enumerate(OPENINFERENCE)
        ]  # fmt: skip
        episode = read(write(tmp_path / "t.jsonl", *reversed(rows)), "openinference")
        check_conversation(episode)
        assert (episode.id, episode.calls[0].start_ms, episode.calls[0].end_ms) == ("s-1", 2000.0, 2500.0)
        assert [t.name for t in episode.tools] == ["find_order"]
        assert total_usage(episode) == Usage(input_tokens=10)
        assert episode.children == ()


LANGFUSE: dict[str, Any] = {
    "id": "T",
    "name": "order",
    "sessionId": "s",
    "timestamp": "2025-05-01T12:00:00.000Z",
    "scores": [{"name": "helpful", "value": 0.5}, {"name": "success", "value": 1, "dataType": "BOOLEAN"}],
    "metadata": {"task": "t", "stratum": "reads"},
    "observations": [
        {
            "id": "g1", "type": "GENERATION", "startTime": "2025-05-01T12:00:00Z", "endTime": "2025-05-01T12:00:01Z",
            "model": "m", "usageDetails": {"input": 5, "output": 2}, "costDetails": {"total": 0.125},
            "input": json.dumps([{"role": "user", "content": ASKED}]),
            "output": {"role": "assistant", "content": None, "tool_calls": [CALL]},
        },
        {
            "id": "t1", "type": "TOOL", "name": "find_order", "input": ARGUMENTS, "output": ANSWER,
            "startTime": "2025-05-01T12:00:01Z", "endTime": "2025-05-01T12:00:03Z",
        },
        {
            "id": "g2", "type": "GENERATION", "startTime": "2025-05-01T12:00:03Z", "endTime": "2025-05-01T12:00:04Z",
            "input": {"messages": [
                {"role": "user", "content": ASKED},
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": ANSWER},
            ], "tools": [{"type": "function", "function": {"name": "find_order"}}]},
            "output": TOLD,
        },
    ],
}  # fmt: skip


class TestLangfuse:
    def test_a_trace_with_its_observations(self, tmp_path: Path) -> None:
        episode = read(write(tmp_path / "trace-T.json", LANGFUSE), "langfuse")
        check_conversation(episode)
        assert (episode.success, episode.reward) == (True, 1.0)
        assert episode.labels == {"helpful": 0.5, "success": True}
        assert (episode.hint.id, episode.hint.stratum) == ("t", "reads")
        assert (episode.calls[0].start_ms, episode.calls[0].end_ms) == (1000.0, 3000.0)
        assert total_usage(episode) == Usage(input_tokens=5, output_tokens=2, cost_usd=0.125)

    def test_scattered_rows_of_the_api(self, tmp_path: Path) -> None:
        rows = [{"traceId": "T", "parentObservationId": None, **row} for row in LANGFUSE["observations"]]
        pages = [{"data": [rows[2]], "meta": {}}, {"data": [rows[0], rows[1]], "meta": {}}]
        check_conversation(read(write(tmp_path / "t.jsonl", *pages), "langfuse"))


def constructor(kind: str, **kwargs: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": kwargs}


HUMAN = constructor("HumanMessage", content=ASKED)
CALLING = constructor("AIMessage", content="", tool_calls=[{"name": "find_order", "args": ARGUMENTS, "id": "c1"}])
TOOL = constructor("ToolMessage", content=ANSWER, tool_call_id="c1", status="success")
RUNS: list[dict[str, Any]] = [
    {
        "id": "R",
        "run_type": "chain",
        "name": "agent",
        "trace_id": "R",
        "start_time": "2025-05-01T12:00:00",
        "inputs": {},
        "feedback_stats": {"correctness": {"n": 2, "avg": 0.5}},
        "reference_example_id": "ex-1",
    },
    {
        "id": "a",
        "run_type": "llm",
        "name": "m",
        "trace_id": "R",
        "parent_run_id": "R",
        "start_time": "2025-05-01T12:00:01",
        "end_time": "2025-05-01T12:00:02",
        "inputs": {"messages": [[HUMAN]]},
        "outputs": {"generations": [[{"text": "", "message": CALLING}]]},
        "prompt_tokens": 6,
        "total_cost": "0.25",
    },
    {
        "id": "b",
        "run_type": "tool",
        "name": "find_order",
        "trace_id": "R",
        "parent_run_id": "R",
        "start_time": "2025-05-01T12:00:02",
        "end_time": "2025-05-01T12:00:04",
        "inputs": {"input": str(ARGUMENTS)},
        "outputs": {"output": TOOL},
    },
    {
        "id": "c",
        "run_type": "llm",
        "name": "m",
        "trace_id": "R",
        "parent_run_id": "R",
        "start_time": "2025-05-01T12:00:05",
        "end_time": "2025-05-01T12:00:06",
        "inputs": {"messages": [[HUMAN, CALLING, TOOL]]},
        "outputs": {"generations": [[{"text": TOLD, "message": constructor("AIMessage", content=TOLD)}]]},
    },
]


class TestLangSmith:
    def test_runs_of_one_trace_in_any_order(self, tmp_path: Path) -> None:
        episode = read(write(tmp_path / "runs.jsonl", *reversed(RUNS)), "langsmith")
        check_conversation(episode)
        assert (episode.id, episode.hint.id, episode.reward, episode.success) == ("R", "ex-1", 0.5, False)
        assert episode.labels == {"correctness": 0.5}
        assert (episode.calls[0].start_ms, episode.calls[0].end_ms) == (2000.0, 4000.0)
        assert total_usage(episode) == Usage(input_tokens=6, cost_usd=0.25)

    def test_nested_runs_and_a_failed_tool(self, tmp_path: Path) -> None:
        failed = {**RUNS[2], "outputs": None, "error": "ValueError: gone"}
        del failed["trace_id"], failed["parent_run_id"]
        whole = {"runs": [{**RUNS[0], "child_runs": [RUNS[1], failed]}]}
        episode = read(write(tmp_path / "runs.json", whole), "langsmith")
        # Without the id of the call in its result, the run is known by its tool and arguments.
        assert [(c.name, c.is_error) for c in episode.calls] == [("find_order", True)]


SAMPLE: dict[str, Any] = {
    "id": "a",
    "epoch": 2,
    "input": ASKED,
    "target": "open",
    "messages": [
        {"id": "1", "role": "system", "content": "Help."},
        {"id": "2", "role": "user", "content": "attachment://h1"},
        {
            "id": "3",
            "role": "assistant",
            "content": [{"type": "reasoning", "reasoning": "look it up"}, {"type": "text", "text": ""}],
            "tool_calls": [{"id": "c1", "function": "find_order", "arguments": ARGUMENTS, "type": "function"}],
        },
        {"id": "4", "role": "tool", "tool_call_id": "c1", "function": "find_order", "content": ANSWER},
        {"id": "5", "role": "assistant", "content": TOLD},
    ],
    "attachments": {"h1": ASKED},
    "scores": {"includes": {"value": "C", "answer": "open"}, "style": {"value": 0.25}},
    "metadata": {"owner": "x"},
    "events": [
        {
            "event": "model",
            "timestamp": "2025-05-01T12:00:00Z",
            "completed": "2025-05-01T12:00:01Z",
            "tools": [{"name": "find_order", "parameters": {}}],
            "output": {
                "model": "m",
                "choices": [{"message": {"id": "3"}}],
                "usage": {"input_tokens": 5, "output_tokens": 2, "input_tokens_cache_read": 1},
            },
        },
        {"event": "tool", "id": "c1", "timestamp": "2025-05-01T12:00:01Z", "completed": "2025-05-01T12:00:03Z"},
    ],
}
LOG = {"version": 2, "status": "success", "eval": {"task": "orders", "model": "m"}, "plan": {}, "samples": [SAMPLE]}


class TestInspect:
    def check(self, episode: RecordedEpisode) -> None:
        check_conversation(episode, "Help.")
        assert (episode.id, episode.hint.id, episode.hint.trial, episode.hint.stratum) == (
            "orders-a-epoch-2",
            "a",
            1,
            "orders",
        )
        assert (episode.success, episode.labels) == (True, {"includes": "C", "style": 0.25})
        assert (episode.calls[0].start_ms, episode.calls[0].end_ms) == (1000.0, 3000.0)
        assert (episode.turns[0].model, episode.turns[0].reasoning) == ("m", "look it up")
        assert total_usage(episode) == Usage(input_tokens=6, output_tokens=2, cached_tokens=1)
        assert [t.name for t in episode.tools] == ["find_order"]

    def test_a_json_log(self, tmp_path: Path) -> None:
        self.check(read(write(tmp_path / "log.json", LOG), "inspect"))

    def test_an_archive(self, tmp_path: Path) -> None:
        path = tmp_path / "log.eval"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("header.json", json.dumps({"eval": LOG["eval"]}))
            archive.writestr("samples/a_epoch_2.json", json.dumps(SAMPLE))
        self.check(read(path, "inspect"))

    def test_a_failed_call_shows_the_message_of_its_error(self, tmp_path: Path) -> None:
        sample = json.loads(json.dumps(SAMPLE))
        sample["messages"][3] |= {"content": "", "error": {"type": "unknown", "message": "no such order"}}
        episode = read(write(tmp_path / "log.json", LOG | {"samples": [sample]}), "inspect")
        assert (episode.calls[0].is_error, episode.calls[0].text) == (True, "no such order")

    def test_a_damaged_archive_and_one_without_samples(self, tmp_path: Path) -> None:
        path = tmp_path / "log.eval"
        path.write_bytes(b"PK\x03\x04 cut off")
        with pytest.raises(TraceError, match="archive cannot be read"):
            import_traces(path)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("header.json", "{}")
        with pytest.raises(TraceError, match="no samples"):
            import_traces(path)


def test_traces_of_another_sub_agent_become_children(tmp_path: Path) -> None:
    """A sub-agent's generations stand below the tool that started it and share no history with the main one."""
    sub = [
        {"id": "ag", "type": "AGENT", "parentObservationId": "t1", "startTime": "2025-05-01T12:00:02Z"},
        {"id": "g3", "type": "GENERATION", "parentObservationId": "ag", "startTime": "2025-05-01T12:00:02Z",
         "input": [{"role": "user", "content": "Count."}], "output": "3"},
    ]  # fmt: skip
    trace = {**LANGFUSE, "observations": [*LANGFUSE["observations"], *sub]}
    episode = read(write(tmp_path / "t.json", trace), "langfuse")
    check_conversation(episode)
    (child,) = episode.children
    assert (child.relation, [m.content for m in child.messages]) == ("sub-agent", ["Count.", "3"])
