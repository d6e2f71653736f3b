"""Formats by name and by sniffing, folders, the workspace, and the numbers of a summary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flightschool.errors import InputError, NotFoundError, TraceError
from flightschool.records import (
    Attempt,
    Effect,
    EndReason,
    Fault,
    Message,
    Outcome,
    Reward,
    Task,
    Timings,
    ToolCall,
    ToolEvent,
    ToolResult,
    ToolSpec,
)
from flightschool.store import SqlStore
from flightschool.traces import (
    effect_by_name,
    episode_from_attempt,
    export,
    import_traces,
    load_traces,
    save_traces,
    summarise,
    trace_names,
)

READ = {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": '{"id": "A1"}'}}
TAU: dict[str, Any] = {
    "task_id": 3,
    "trial": 1,
    "reward": 1.0,
    "info": {
        "task": {
            "instruction": "You want to cancel A1.",
            "actions": [{"name": "cancel_order", "kwargs": {"id": "A1"}}],
            "outputs": ["12"],
        }
    },
    "traj": [
        {"role": "user", "content": "Cancel A1"},
        {"role": "assistant", "content": None, "tool_calls": [READ]},
        {"role": "tool", "tool_call_id": "c1", "name": "get_order", "content": "Error: no such order"},
    ],
}


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def chat(*messages: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {"messages": list(messages), **extra}


def asks(*calls: tuple[str, str]) -> dict[str, Any]:
    made = [{"id": i, "function": {"name": n, "arguments": "{}"}} for i, n in calls]
    return {"role": "assistant", "tool_calls": made}


def answer(call_id: str, content: str = "{}") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


USER = {"role": "user", "content": "x"}


class TestTauBench:
    def test_an_episode(self, tmp_path: Path) -> None:
        traces = import_traces(write(tmp_path / "t.json", [TAU]))
        assert traces.format == "tau-bench"
        (episode,) = traces.episodes
        assert episode.id == "task-3-trial-1"
        assert (episode.hint.id, episode.hint.trial, episode.hint.outputs) == ("task-3", 1, ("12",))
        assert episode.hint.actions == (ToolCall(id="action-0", name="cancel_order", arguments={"id": "A1"}),)
        assert episode.instruction == "You want to cancel A1."
        assert (episode.success, episode.reward) == (True, 1.0)
        assert episode.calls[0].is_error

    @pytest.mark.parametrize("key", ["task_id", "traj", "info"])
    def test_a_missing_key_names_the_element(self, tmp_path: Path, key: str) -> None:
        broken = {k: v for k, v in TAU.items() if k != key}
        path = write(tmp_path / "t.json", [TAU, broken])
        with pytest.raises(TraceError, match="element 1"):
            import_traces(path, "tau-bench")


class TestFiles:
    def test_a_folder_is_read_in_the_order_of_names(self, tmp_path: Path) -> None:
        write(tmp_path / "b.json", [TAU])
        write(tmp_path / "a.jsonl", chat(USER, metadata={"id": "first"}))
        (tmp_path / "notes.txt").write_text("no trace")
        traces = import_traces(tmp_path)
        assert traces.format == "openai-chat+tau-bench"
        assert [e.id for e in traces.episodes] == ["first", "task-3-trial-1"]

    @pytest.mark.parametrize(
        ("make", "word"),
        [
            (lambda p: p / "missing.jsonl", "not found"),
            (lambda p: p, "holds no traces"),
            (lambda p: write(p / "t.json", {"hello": 1}), "format cannot be told"),
        ],
    )
    def test_wrong_paths(self, tmp_path: Path, make: Any, word: str) -> None:
        with pytest.raises(TraceError, match=word):
            import_traces(make(tmp_path))

    def test_an_unknown_format_suggests_the_nearest(self, tmp_path: Path) -> None:
        with pytest.raises(InputError) as caught:
            import_traces(tmp_path, "openai_chat")
        assert "openai-chat" in caught.value.mend

    def test_an_export_that_cannot_be_written_leaves_nothing(self, tmp_path: Path) -> None:
        episodes = import_traces(write(tmp_path / "t.json", [TAU])).episodes
        with pytest.raises(InputError, match="cannot be written"):
            export(episodes, tmp_path / "no" / "x.jsonl", "otlp")
        with pytest.raises(InputError, match="unknown trace format"):
            export(episodes, tmp_path / "x.jsonl", "tau-bench")
        assert [f.name for f in tmp_path.iterdir()] == ["t.json"]


class TestWorkspace:
    def test_a_set_comes_back_the_same(self, tmp_path: Path) -> None:
        traces = import_traces(write(tmp_path / "t.json", [TAU]))
        with SqlStore("sqlite://") as store:
            record = save_traces(store, "mine", traces)
            assert (record.num_episodes, record.num_calls, record.blob) == (1, 1, traces.digest)
            assert load_traces(store, "mine") == traces
            assert trace_names(store) == ("mine",)
            with pytest.raises(NotFoundError):
                load_traces(store, "min")


class TestSummary:
    def test_numbers(self, tmp_path: Path) -> None:
        episode = chat(
            USER,
            asks(("1", "get_order")),
            answer("1"),
            asks(("2", "get_order")),  # could have run beside the first
            answer("2", "Error: none"),
            USER,
            asks(("3", "get_order")),  # the user spoke between: not mergeable
            answer("3"),
            asks(("4", "cancel_order"), ("5", "get_order")),
            answer("4"),
            answer("5"),
            metadata={"success": True, "stratum": "s", "task": "t"},
        )
        failed = chat(USER, metadata={"success": False})
        path = tmp_path / "t.jsonl"
        path.write_text(json.dumps(episode) + "\n" + json.dumps(failed))
        summary = summarise(import_traces(path))
        assert (summary.num_episodes, summary.num_calls, summary.num_tasks) == (2, 5, 1)
        assert summary.error_share == pytest.approx(0.2)
        assert (summary.num_outcomes, summary.success_share) == (2, 0.5)
        assert (summary.num_rounds, summary.mergeable_rounds) == (4, 1)
        assert (summary.mean_turns, summary.max_turns) == (2.0, 4)
        assert summary.strata == {"s": 1}
        assert summary.roles == {"assistant": 4, "tool": 5, "user": 3}
        top = summary.tools[0]
        assert (top.name, top.num_calls, top.num_errors, top.num_episodes, top.effect) == (
            "get_order",
            4,
            1,
            1,
            "read?",
        )


class TestEffects:
    @pytest.mark.parametrize(
        ("name", "effect"),
        [
            ("get_user", Effect.READ),
            ("listAirports", Effect.READ),
            ("crm.search-contacts", Effect.READ),
            ("send_certificate", Effect.SEND),
            ("transfer_to_human_agents", Effect.SEND),
            ("update_order_status", Effect.WRITE),
            ("DeleteUser", Effect.DESTROY),
            ("frobnicate", None),
        ],
    )
    def test_verbs(self, name: str, effect: Effect | None) -> None:
        assert effect_by_name(name)[0] is effect


class TestOwnAttempts:
    def test_faults_times_and_effects_are_kept_and_exported(self, tmp_path: Path) -> None:
        call = ToolCall(id="c1", name="get_order", arguments={"id": "A1"})
        fault = Fault(kind="rate_limit", family="refusal")
        result = ToolResult(call_id="c1", content='{"error": "slow down"}', is_error=True, fault=fault)
        event = ToolEvent(index=0, turn=0, call=call, result=result, effect=Effect.READ, start_ms=3.0004, end_ms=8.0)
        attempt = Attempt(
            id="a", run="r", group="g", index=0, number=0, environment="e", environment_digest="d", task="t",
            task_digest="td", policy="p", seed=0, spans=(), events=(event,), outcome=Outcome.SCORED,
            reason=EndReason.FINISHED, cause="policy", verdict=None, end_state="", timings=Timings(virtual_ms=9.0),
            reward=Reward(outcome=1.0, process=0.0, latency=0.0, gate=1.0, total=0.8),
            messages=(
                Message(role="user", content="x"),
                Message(role="assistant", tool_calls=(call,)),
                Message(role="tool", content=result.content, tool_call_id="c1"),
            ),
        )  # fmt: skip
        task = Task(id="t", family="f", stratum="s", instruction="x", initial_state="i")
        tool = ToolSpec(name="get_order", description="", parameters={"type": "object"})
        episode = episode_from_attempt(attempt, task, [tool], trial=2, metadata={"operator": "bo"})
        assert (episode.calls[0].fault, episode.calls[0].start_ms, episode.calls[0].is_error) == (
            "rate_limit",
            3.0,
            True,
        )
        assert (episode.hint.family, episode.hint.trial, episode.success, episode.reward) == ("f", 2, True, 0.8)
        for format_name in ("openai-chat", "otlp"):
            export([episode], tmp_path / "x.jsonl", format_name)
            (back,) = import_traces(tmp_path / "x.jsonl").episodes
            assert (back.calls, back.tools, back.stated_effects) == (episode.calls, (tool,), ("get_order",))
            assert back.metadata == {"operator": "bo"}
