"""The dialects, each in the exact shape that its writer gives it: found by sniffing, reduced to the same records."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from flightschool.errors import TraceError
from flightschool.traces import IMPORT_FORMATS, RecordedEpisode, Usage, import_traces, total_usage

ASKED = "State of A1?"
ARGUMENTS = {"order": "A1"}
ANSWER = '{"state": "open"}'
TOLD = "It is open."
FUNCTION = {"name": "find_order", "arguments": json.dumps(ARGUMENTS)}
CALL = {"id": "c1", "type": "function", "function": FUNCTION}


def write(path: Path, *values: Any) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def read(path: Path, format_name: str) -> RecordedEpisode:
    traces = import_traces(path)
    assert traces.format == format_name
    (episode,) = traces.episodes
    return episode


def is_the_conversation(episode: RecordedEpisode, system: str = "") -> None:
    """Every dialect below tells this: a question, one call, its answer, the reply."""
    roles = ["user", "assistant", "tool", "assistant"]
    assert [m.role for m in episode.messages] == (["system", *roles] if system else roles)
    assert episode.guidance == system
    assert episode.instruction == ASKED
    (call,) = episode.calls
    assert (call.name, call.arguments, call.value, call.turn) == ("find_order", ARGUMENTS, json.loads(ANSWER), 0)
    assert call.complete
    assert not call.is_error
    assert episode.messages[-1].content == TOLD


def test_there_is_an_importer_for_every_dialect() -> None:
    assert set(IMPORT_FORMATS) == {
        "anthropic-messages", "anthropic-session", "atif", "codex", "inspect", "langfuse", "langsmith", "openai-chat",
        "openai-responses", "openinference", "otlp", "swe-agent", "tau-bench",
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------ providers


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
        is_the_conversation(episode, "Help.")
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
        is_the_conversation(episode, "Help.")
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


# ------------------------------------------------------------------------------------------------ agents


ATIF: dict[str, Any] = {
    "schema_version": "ATIF-v1.7",
    "session_id": "s",
    "trajectory_id": "traj",
    "agent": {"name": "helper", "version": "1", "model_name": "m", "tool_definitions": [{"name": "find_order"}]},
    "steps": [
        {"step_id": 1, "source": "system", "message": "Help."},
        {
            "step_id": 2,
            "source": "user",
            "message": [{"type": "text", "text": ASKED}],
            "timestamp": "2025-05-01T12:00:00Z",
        },
        {
            "step_id": 3,
            "source": "agent",
            "timestamp": "2025-05-01T12:00:02Z",
            "message": "",
            "reasoning_content": "look it up",
            "tool_calls": [{"tool_call_id": "c1", "function_name": "find_order", "arguments": ARGUMENTS}],
            "observation": {
                "results": [
                    {"source_call_id": "c1", "content": ANSWER, "subagent_trajectory_ref": [{"trajectory_id": "sub"}]}
                ]
            },
            "metrics": {"prompt_tokens": 8, "completion_tokens": 2, "cost_usd": 0.01, "completion_token_ids": [1, 2]},
        },
        {"step_id": 4, "source": "agent", "message": TOLD},
    ],
    "final_metrics": {
        "total_prompt_tokens": 20,
        "total_completion_tokens": 4,
        "total_cost_usd": 0.02,
        "total_steps": 4,
    },
    "subagent_trajectories": [
        {
            "schema_version": "ATIF-v1.7",
            "trajectory_id": "sub",
            "agent": {},
            "steps": [{"source": "user", "message": "x"}],
        }
    ],
}


class TestAtif:
    def test_a_trajectory(self, tmp_path: Path) -> None:
        path = tmp_path / "t.json"
        path.write_text(json.dumps(ATIF, indent=2))
        episode = read(path, "atif")
        is_the_conversation(episode, "Help.")
        assert episode.usage == Usage(input_tokens=20, output_tokens=4, cost_usd=0.02)
        assert (episode.turns[0].reasoning, episode.turns[0].end_ms) == ("look it up", 2000.0)
        assert episode.started_at == "2025-05-01T12:00:00.000+00:00"
        assert "token ids and log-probabilities were left out" in episode.issues
        (child,) = episode.children
        assert (child.id, child.relation, child.parent_call) == ("sub", "sub-agent", "c1")

    def test_an_unknown_version_is_named_and_a_broken_step_refused(self, tmp_path: Path) -> None:
        late = read(write(tmp_path / "a.json", ATIF | {"schema_version": "ATIF-v9.0"}), "atif")
        assert "version 'ATIF-v9.0' is unknown; read as ATIF-v1.8" in late.issues
        with pytest.raises(TraceError, match="no source") as caught:
            import_traces(write(tmp_path / "b.json", ATIF | {"steps": [{"message": "x"}]}))
        assert "step 1" in caught.value.where

    def test_an_action_without_a_function_call_is_answered_by_the_world(self, tmp_path: Path) -> None:
        step = {"source": "agent", "message": "ls", "observation": {"results": [{"content": "a.txt"}]}}
        episode = read(write(tmp_path / "t.json", ATIF | {"steps": [step], "subagent_trajectories": []}), "atif")
        assert [(m.role, m.content) for m in episode.messages] == [("assistant", "ls"), ("user", "a.txt")]


class TestSweAgent:
    def test_function_calling_with_durations(self, tmp_path: Path) -> None:
        asked = CALL
        path = write(
            tmp_path / "one.traj",
            {
                "trajectory": [{"action": "find", "observation": ANSWER, "execution_time": 0.25, "state": {}}],
                "history": [
                    {"role": "user", "content": "a worked example", "is_demo": True},
                    {"role": "user", "content": ASKED, "agent": "main"},
                    {"role": "assistant", "content": "", "action": "find", "tool_calls": [asked]},
                    {"role": "tool", "content": ANSWER, "tool_call_ids": ["c1"]},
                    {"role": "assistant", "content": TOLD},
                ],
                "info": {"exit_status": "submitted", "model_stats": {"instance_cost": 0.5, "tokens_sent": 9}},
            },
        )
        episode = read(path, "swe-agent")
        is_the_conversation(episode)
        assert (episode.calls[0].start_ms, episode.calls[0].end_ms) == (0.0, 250.0)
        assert episode.usage == Usage(input_tokens=9, cost_usd=0.5)
        assert (episode.id, episode.metadata) == ("one", {"exit_status": "submitted"})

    def test_text_mode_and_a_file_without_history(self, tmp_path: Path) -> None:
        history = [
            {"role": "user", "content": ASKED},
            {"role": "assistant", "content": "I look.\n```\nls\n```", "action": "ls\n"},
            {"role": "user", "content": "a.txt"},
            {"role": "assistant", "content": "Done.", "action": ""},
        ]
        spoken = read(write(tmp_path / "a.traj", {"history": history, "trajectory": []}), "swe-agent")
        assert [(c.name, c.arguments, c.text) for c in spoken.calls] == [("command", {"text": "ls\n"}, "a.txt")]
        bare = read(write(tmp_path / "b.traj", {"trajectory": [{"action": "ls", "observation": "b"}]}), "swe-agent")
        assert [(c.arguments, c.text) for c in bare.calls] == [({"text": "ls"}, "b")]


def session_line(uuid: str, parent: str | None, role: str, content: Any, second: int, **extra: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": role, "content": content}
    if role == "assistant":
        message |= {"id": extra.pop("id"), "model": "m", "usage": {"input_tokens": 4, "output_tokens": 2}}
    return {
        "type": role, "uuid": uuid, "parentUuid": parent, "sessionId": "S", "cwd": "/w", "isSidechain": False,
        "timestamp": f"2025-05-01T12:00:{second:02d}.000Z", "message": message, **extra,
    }  # fmt: skip


USE = [{"type": "tool_use", "id": "tu1", "name": "find_order", "input": ARGUMENTS}]
RESULT = [{"type": "tool_result", "tool_use_id": "tu1", "content": ANSWER}]
SESSION = [
    {"type": "summary", "summary": "An order", "leafUuid": "4"},
    session_line("1", None, "user", ASKED, 0),
    session_line("2a", "1", "assistant", [{"type": "thinking", "thinking": "look it up"}], 1, id="m1"),
    session_line("2b", "2a", "assistant", USE, 2, id="m1"),
    session_line("3", "2b", "user", RESULT, 5),
    session_line("4", "3", "assistant", [{"type": "text", "text": TOLD}], 6, id="m2"),
]


class TestAnthropicSession:
    def test_lines_of_one_message_are_one_turn(self, tmp_path: Path) -> None:
        episode = read(write(tmp_path / "S.jsonl", *SESSION), "anthropic-session")
        is_the_conversation(episode)
        assert (episode.id, episode.started_at) == ("S", "2025-05-01T12:00:00.000+00:00")
        assert (episode.calls[0].start_ms, episode.calls[0].end_ms) == (2000.0, 5000.0)
        assert [(t.model, t.reasoning, t.end_ms) for t in episode.turns] == [
            ("m", "look it up", 2000.0),
            ("m", "", 6000.0),
        ]
        assert total_usage(episode) == Usage(input_tokens=8, output_tokens=4)
        assert episode.issues == ()

    def test_parallel_calls_are_no_branches(self, tmp_path: Path) -> None:
        second = [{"type": "tool_use", "id": "tu2", "name": "find_order", "input": {}}]
        lines = [
            SESSION[1],
            session_line("2a", "1", "assistant", USE, 1, id="m1"),
            session_line("2b", "2a", "assistant", second, 1, id="m1"),
            session_line("3a", "2a", "user", RESULT, 2),
            session_line("3b", "2b", "user", [{**RESULT[0], "tool_use_id": "tu2"}], 3),
            session_line("4", "3b", "assistant", "Done.", 4, id="m2"),
        ]
        episode = read(write(tmp_path / "S.jsonl", *lines), "anthropic-session")
        assert episode.children == ()
        assert [(c.id, c.turn, c.complete) for c in episode.calls] == [("tu1", 0, True), ("tu2", 0, True)]

    def test_a_question_asked_anew_leaves_a_branch(self, tmp_path: Path) -> None:
        lines = [
            *SESSION,
            session_line("5", "4", "user", "Close it.", 7),
            session_line("6", "5", "assistant", "No.", 8, id="m3"),
            session_line("7", "4", "user", "Thanks.", 9),
            session_line("8", "7", "assistant", "Welcome.", 10, id="m4"),
        ]
        episode = read(write(tmp_path / "S.jsonl", *lines), "anthropic-session")
        assert [m.content for m in episode.messages][-2:] == ["Thanks.", "Welcome."]
        (branch,) = episode.children
        assert branch.relation == "branch"
        assert [m.content for m in branch.messages][-2:] == ["Close it.", "No."]
        assert len(branch.calls) == 1

    @pytest.mark.parametrize("beside", [True, False], ids=["own file", "same file"])
    def test_a_sub_agent_is_a_child_of_its_call(self, tmp_path: Path, beside: bool) -> None:
        task = [{"type": "tool_use", "id": "t9", "name": "Task", "input": {"prompt": "Count."}}]
        lines = [
            SESSION[1],
            session_line("2", "1", "assistant", task, 1, id="m1"),
            session_line("3", "2", "user", [{"type": "tool_result", "tool_use_id": "t9", "content": "3"}], 9),
        ]
        side = [
            session_line("a1", None, "user", "Count.", 2, isSidechain=True, agentId="ag"),
            session_line("a2", "a1", "assistant", "3", 3, id="x1", isSidechain=True, agentId="ag"),
        ]
        if beside:
            (tmp_path / "S" / "subagents").mkdir(parents=True)
            write(tmp_path / "S" / "subagents" / "agent-ag.jsonl", *side)
        path = write(tmp_path / "S.jsonl", *lines, *([] if beside else side))
        episode = read(path, "anthropic-session")
        (child,) = episode.children
        assert (child.relation, child.parent_call) == ("sub-agent", "t9")
        assert [m.content for m in child.messages] == ["Count.", "3"]

    def test_dangling_and_cyclic_parents_twice_used_ids_and_stray_results_are_named(self, tmp_path: Path) -> None:
        lines = [
            session_line("1", "gone", "user", ASKED, 0),
            session_line("2", "3", "assistant", "a", 1, id="m1"),
            session_line("3", "2", "assistant", "b", 2, id="m2"),
            session_line("3", "2", "assistant", "b", 2, id="m2"),
            session_line("4", "3", "user", [{"type": "tool_result", "tool_use_id": "nobody", "content": "x"}], 3),
            session_line("5", "3", "user", "One.", 4),
            session_line("6", "3", "user", "Two.", 5),
        ]
        told = " | ".join(read(write(tmp_path / "S.jsonl", *lines), "anthropic-session").issues)
        for words in (
            "name a parent that is not in the file",
            "its own ancestor",
            "repeats the uuid",
            "answers no call",
        ):
            assert words in told


def item(**payload: Any) -> dict[str, Any]:
    return {"type": "response_item", "payload": payload}


def event(**payload: Any) -> dict[str, Any]:
    return {"type": "event_msg", "payload": payload}


SPENT = {"input_tokens": 9, "cached_input_tokens": 4, "output_tokens": 2}
CODEX: list[dict[str, Any]] = [
    {"type": "session_meta", "payload": {"id": "X", "cwd": "/w", "base_instructions": {"text": "Help."}}},
    {"type": "turn_context", "payload": {"model": "m"}},
    item(type="message", role="user", content=[{"type": "input_text", "text": ASKED}]),
    item(type="reasoning", summary=[{"type": "summary_text", "text": "look it up"}]),
    item(type="function_call", call_id="c1", **FUNCTION),
    event(type="agent_reasoning", text="…"),
    item(type="function_call_output", call_id="c1", output=ANSWER),
    item(type="message", role="assistant", content=[{"type": "output_text", "text": TOLD}]),
    event(type="token_count", info={"total_token_usage": SPENT}),
]


class TestCodex:
    def test_a_session(self, tmp_path: Path) -> None:
        lines = [{"timestamp": f"2025-05-01T12:00:{n:02d}Z", **line} for n, line in enumerate(CODEX)]
        episode = read(write(tmp_path / "rollout-1.jsonl", *lines), "codex")
        is_the_conversation(episode, "Help.")
        assert (episode.id, episode.usage) == ("X", Usage(input_tokens=9, output_tokens=2, cached_tokens=4))
        assert (episode.calls[0].start_ms, episode.calls[0].end_ms) == (4000.0, 6000.0)
        assert (episode.turns[0].model, episode.turns[0].reasoning) == ("m", "look it up")

    def test_an_older_file_of_bare_items_and_the_shells_exit_code(self, tmp_path: Path) -> None:
        output = json.dumps({"output": "no", "metadata": {"exit_code": 2, "duration_seconds": 0.1}})
        path = write(
            tmp_path / "rollout-2.jsonl",
            {"id": "Y", "timestamp": "2025-05-01T12:00:00Z", "instructions": "Help."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
            {"type": "local_shell_call", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}},
            {"type": "function_call_output", "call_id": "c", "output": output},
        )
        episode = read(path, "codex")
        (call,) = episode.calls
        assert (episode.id, call.name, call.is_error) == ("Y", "local_shell", True)


# ------------------------------------------------------------------------------------------------ observability


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
        is_the_conversation(episode)
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
        is_the_conversation(episode)
        assert (episode.success, episode.reward) == (True, 1.0)
        assert episode.labels == {"helpful": 0.5, "success": True}
        assert (episode.hint.id, episode.hint.stratum) == ("t", "reads")
        assert (episode.calls[0].start_ms, episode.calls[0].end_ms) == (1000.0, 3000.0)
        assert total_usage(episode) == Usage(input_tokens=5, output_tokens=2, cost_usd=0.125)

    def test_scattered_rows_of_the_api(self, tmp_path: Path) -> None:
        rows = [{"traceId": "T", "parentObservationId": None, **row} for row in LANGFUSE["observations"]]
        pages = [{"data": [rows[2]], "meta": {}}, {"data": [rows[0], rows[1]], "meta": {}}]
        is_the_conversation(read(write(tmp_path / "t.jsonl", *pages), "langfuse"))


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
        is_the_conversation(episode)
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
        is_the_conversation(episode, "Help.")
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


# ------------------------------------------------------------------------------------------------ whatever the dialect


def test_a_clock_that_goes_back_costs_the_times_and_is_named(tmp_path: Path) -> None:
    lines = [{"timestamp": f"2025-05-01T12:00:{59 - n:02d}Z", **line} for n, line in enumerate(CODEX)]
    episode = read(write(tmp_path / "rollout-1.jsonl", *lines), "codex")
    assert episode.calls[0].start_ms is None
    assert "the clock went back during call c1" in episode.issues


def test_strict_takes_an_issue_for_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", ATIF)
    with pytest.raises(TraceError, match="token ids") as caught:
        import_traces(path, strict=True)
    assert "traj" in caught.value.where


def test_traces_of_another_sub_agent_become_children(tmp_path: Path) -> None:
    """A sub-agent's generations stand below the tool that started it and share no history with the main one."""
    sub = [
        {"id": "ag", "type": "AGENT", "parentObservationId": "t1", "startTime": "2025-05-01T12:00:02Z"},
        {"id": "g3", "type": "GENERATION", "parentObservationId": "ag", "startTime": "2025-05-01T12:00:02Z",
         "input": [{"role": "user", "content": "Count."}], "output": "3"},
    ]  # fmt: skip
    trace = {**LANGFUSE, "observations": [*LANGFUSE["observations"], *sub]}
    episode = read(write(tmp_path / "t.json", trace), "langfuse")
    is_the_conversation(episode)
    (child,) = episode.children
    assert (child.relation, [m.content for m in child.messages]) == ("sub-agent", ["Count.", "3"])
