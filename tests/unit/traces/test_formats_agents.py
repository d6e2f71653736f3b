"""Dialects of agents, each in the exact shape that its writer gives it: sessions, branches, sub-agents, clocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.traces.conversation import (
    ANSWER,
    ARGUMENTS,
    ASKED,
    CALL,
    FUNCTION,
    TOLD,
    check_conversation,
    read,
    write,
)

from flightschool.errors import TraceError
from flightschool.traces import Usage, import_traces, total_usage

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
        check_conversation(episode, "Help.")
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
        check_conversation(episode)
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
        check_conversation(episode)
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
        check_conversation(episode, "Help.")
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
