"""MCP servers as environments: over standard input and output against a real program, over HTTP against our own."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from flightschool.environments.foreign import ForeignEnvironment, LostSessionError
from flightschool.environments.mcp import (
    HttpTransport,
    McpClient,
    McpSession,
    McpSettings,
    StdioTransport,
    effect_of,
    import_mcp,
)
from flightschool.errors import InfrastructureError, InputError
from flightschool.records import Effect, Outcome, ToolCall
from flightschool.rollouts import EpisodeRunner, MessagesPolicy, OraclePolicy, run_attempts, scripted_turns
from flightschool.serving import Offer, TaskDesk
from flightschool.serving.openenv import OpenEnvServer
from flightschool.testing.miniature import MiniatureEnvironment
from flightschool.verification import OutcomeReward

SERVER = Path(__file__).with_name("server.py")
COMMAND = shlex.join([sys.executable, str(SERVER)])
TASK = {
    "id": "note",
    "instruction": "Write down that the pump leaks, under the key pump.",
    "checks": [
        {"id": "written", "kind": "functional", "rule": {"type": "calls", "tool": "write_note", "least": 1}},
        {"id": "not-wiped", "kind": "constraint", "rule": {"type": "calls", "tool": "wipe", "least": 0, "most": 0}},
    ],
    "oracle": [{"name": "write_note", "arguments": {"key": "pump", "text": "leaks"}}],
}


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(TASK) + "\n\n", encoding="utf-8")
    return path


def defective(defect: str, timeout_s: float = 5.0) -> McpClient:
    return McpClient(StdioTransport((sys.executable, str(SERVER), defect)), timeout_s)


@pytest.mark.parametrize(
    ("hints", "effect"),
    [
        ({"readOnlyHint": True}, Effect.READ),
        ({"readOnlyHint": True, "destructiveHint": True}, Effect.READ),
        ({}, Effect.DESTROY),
        ({"destructiveHint": True}, Effect.DESTROY),
        ({"destructiveHint": False}, Effect.SEND),
        ({"destructiveHint": False, "openWorldHint": False}, Effect.WRITE),
        ({"readOnlyHint": "yes"}, Effect.DESTROY),
    ],
)
def test_effects_are_guessed_on_the_safe_side(hints: dict[str, Any], effect: Effect) -> None:
    assert effect_of(hints) is effect


def test_a_server_with_tasks_is_an_environment(tasks: Path) -> None:
    content, guessed = import_mcp(COMMAND, McpSettings(tasks=tasks, confirm_effects=True))
    assert {spec.name: spec.effect for spec in content.tools} == {
        "read_note": Effect.READ,
        "write_note": Effect.WRITE,
        "wipe": Effect.DESTROY,
    }
    assert set(guessed) == {"read_note", "write_note", "wipe"}
    assert content.policy_text == "Keep notes."
    world = ForeignEnvironment("notes", content)
    runner = EpisodeRunner(world, OutcomeReward(), run="r")
    (attempt,) = run_attempts(runner, world.tasks(), OraclePolicy(world), seed=0)
    assert attempt.outcome is Outcome.SCORED
    assert attempt.reward is not None
    assert attempt.reward.success
    assert json.loads(attempt.events[0].result.content) == {"written": True}


def test_each_attempt_has_a_server_of_its_own(tasks: Path) -> None:
    content, _ = import_mcp(COMMAND, McpSettings(tasks=tasks, confirm_effects=True))
    world = ForeignEnvironment("notes", content)
    first, second = world.open(world.task("note")), world.open(world.task("note"))
    first.execute(ToolCall(id="1", name="write_note", arguments={"key": "pump", "text": "leaks"}))
    assert first.execute(ToolCall(id="2", name="read_note", arguments={"key": "pump"})).value == {"text": "leaks"}
    other = second.execute(ToolCall(id="1", name="read_note", arguments={"key": "pump"}))
    assert other.is_error
    assert other.value == "no such note"
    first.close()
    second.close()


def test_guessed_effects_are_denied_until_somebody_looked(tasks: Path) -> None:
    content, _ = import_mcp(COMMAND, McpSettings(tasks=tasks))
    assert content.allowed == ("read_note",)
    decided, guessed = import_mcp(COMMAND, McpSettings(tasks=tasks, effects={"write_note": "write"}))
    assert decided.allowed == ("read_note", "write_note")
    assert "write_note" not in guessed
    world = ForeignEnvironment("notes", content)
    wrote = ToolCall(id="1", name="write_note", arguments={"key": "pump", "text": "leaks"})
    policy = MessagesPolicy({"note": scripted_turns([wrote], "Done.")}, "p")
    runner = EpisodeRunner(world, OutcomeReward(), run="r")
    (attempt,) = run_attempts(runner, world.tasks(), policy, seed=0)
    assert attempt.events[0].result.permission is not None
    assert not attempt.events[0].result.permission.allowed
    assert attempt.reward is not None
    assert not attempt.reward.success
    with pytest.raises(InputError, match="no tool"):
        import_mcp(COMMAND, McpSettings(tasks=tasks, effects={"fly": "write"}))
    with pytest.raises(InputError, match="no effect"):
        import_mcp(COMMAND, McpSettings(tasks=tasks, effects={"wipe": "maybe"}))


def test_a_chatty_server_is_understood() -> None:
    client = defective("chatty")
    assert client.call("write_note", {"key": "a", "text": "b"})["structuredContent"] == {"written": True}
    assert client.call("wipe", {})["content"][0]["text"] == "gone"
    client.close()


@pytest.mark.parametrize(
    ("defect", "what"),
    [("wrong-id", "under id"), ("dies", "ended"), ("garbage", "no JSON"), ("slow", "in time")],
)
def test_a_defective_server_is_infrastructure_and_never_an_answer(defect: str, what: str) -> None:
    client = defective(defect, timeout_s=1.0)
    with pytest.raises(LostSessionError, match=what):
        client.call("wipe", {})
    with pytest.raises(LostSessionError):
        client.call("wipe", {})
    client.close()


def test_what_was_done_for_real_is_not_done_again(tasks: Path) -> None:
    content, _ = import_mcp(COMMAND, McpSettings(tasks=tasks, confirm_effects=True))
    opened: list[McpSession] = []

    def connect(*_: object) -> McpSession:
        opened.append(McpSession(content.address, ""))
        return opened[-1]

    world = ForeignEnvironment("notes", content, connect)
    far = world.open(world.task("note"))
    far.execute(ToolCall(id="1", name="write_note", arguments={"key": "pump", "text": "leaks"}))
    copy = far.fork()
    with pytest.raises(InfrastructureError, match="cannot be done again"):
        copy.execute(ToolCall(id="2", name="read_note", arguments={"key": "pump"}))
    opened[0].close()
    with pytest.raises((InfrastructureError, AssertionError)):
        far.execute(ToolCall(id="2", name="read_note", arguments={"key": "pump"}))
    assert len(opened) == 1
    far.close()


def test_refused_calls_are_answers() -> None:
    session = McpSession(COMMAND, "")
    session.reset()
    seen = session.act(ToolCall(id="1", name="refused", arguments={}))
    assert seen.is_error
    assert "no such tool" in seen.value["error"]
    session.close()


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "not a task"),
        (json.dumps({**TASK, "checks": []}), "cannot be judged"),
        (json.dumps({**TASK, "surprise": 1}), "surprise"),
        (json.dumps({**TASK, "tools": ["fly"]}), "no tool 'fly'"),
        (json.dumps(TASK) + "\n" + json.dumps(TASK), "twice"),
        ("", "no tasks"),
    ],
)
def test_broken_tasks_are_named_by_line(tmp_path: Path, line: str, what: str) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(line, encoding="utf-8")
    with pytest.raises(InputError, match=what) as caught:
        import_mcp(COMMAND, McpSettings(tasks=path))
    assert str(path) in caught.value.where


def test_programs_that_are_none(tasks: Path) -> None:
    with pytest.raises(InputError, match="cannot be started"):
        import_mcp("/nowhere/at/all", McpSettings(tasks=tasks))
    with pytest.raises(InputError, match="no command"):
        import_mcp("  ", McpSettings(tasks=tasks))
    with pytest.raises(LostSessionError, match="lost"):
        import_mcp(shlex.join([sys.executable, "-c", "import sys; sys.exit('no licence')"]), McpSettings(tasks=tasks))


def test_streamable_http_against_a_server_of_ours() -> None:
    miniature = MiniatureEnvironment()

    async def served() -> None:
        async with OpenEnvServer(Offer(miniature), TaskDesk(miniature)) as server:
            await asyncio.to_thread(_speak, f"{server.url}/mcp")
            assert len(server.sessions) == 0

    asyncio.run(served())


def _speak(url: str) -> None:
    client = McpClient(HttpTransport(url))
    assert client.server["name"] == "miniature"
    assert {row["name"] for row in client.list_tools()} >= {"get_price", "set_price"}
    client.call("set_price", {"item": "bolt", "price": 8})
    result = client.call("get_price", {"item": "bolt"})
    assert result["structuredContent"] == {"item": "bolt", "price": 8}
    assert result["isError"] is False
    other = McpClient(HttpTransport(url))
    assert other.call("get_price", {"item": "bolt"})["structuredContent"]["price"] == 3
    client.close()
    other.close()
