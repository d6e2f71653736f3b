"""MCP servers made with the official SDK, its versions 1 and 2, over standard input and output and streamable HTTP.

The two versions cannot share an interpreter, so each has its own. Installing them takes minutes: ``pytest -m slow``.
Interpreters that have them may be named: ``FLIGHTSCHOOL_MCP1_PYTHON``, ``FLIGHTSCHOOL_MCP2_PYTHON``.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flightschool.environments.foreign import ForeignEnvironment
from flightschool.environments.mcp import McpSettings, import_mcp
from flightschool.records import Effect
from flightschool.rollouts import EpisodeRunner, NoopPolicy, OraclePolicy, run_attempts
from flightschool.verification import OutcomeReward

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SERVER = '''
"""A note book: the class is FastMCP in version 1 of the SDK, MCPServer in version 2."""

import sys

try:
    from mcp.server.fastmcp import FastMCP as Server
    old = True
except ImportError:
    from mcp.server.mcpserver import MCPServer as Server
    old = False
from mcp.types import ToolAnnotations

how, port = sys.argv[1], int(sys.argv[2])
book = Server("notes", host="127.0.0.1", port=port) if old else Server("notes")
notes: dict[str, str] = {}


def hints(**given: bool) -> ToolAnnotations:
    return ToolAnnotations(**given)


@book.tool(annotations=hints(readOnlyHint=True) if old else hints(read_only_hint=True))
def read_note(key: str) -> str:
    """Read a note."""
    if key not in notes:
        raise ValueError(f"no note {key!r}")
    return notes[key]


@book.tool(
    annotations=hints(destructiveHint=False, openWorldHint=False)
    if old
    else hints(destructive_hint=False, open_world_hint=False)
)
def write_note(key: str, text: str) -> dict[str, str]:
    """Write a note."""
    notes[key] = text
    return {"key": key, "text": text}


@book.tool()
def wipe() -> str:
    """Forget everything."""
    notes.clear()
    return "gone"


if how == "stdio":
    book.run()
elif old:
    book.run(transport="streamable-http")
else:
    book.run(transport="streamable-http", host="127.0.0.1", port=port)
'''

TASK = {
    "id": "note",
    "instruction": "Write down that the pump leaks, under the key pump.",
    "checks": [
        {"id": "written", "kind": "functional", "rule": {"type": "calls", "tool": "write_note", "least": 1}},
        {"id": "not-wiped", "kind": "constraint", "rule": {"type": "calls", "tool": "wipe", "least": 0, "most": 0}},
    ],
    "oracle": [
        {"name": "read_note", "arguments": {"key": "pump"}},
        {"name": "write_note", "arguments": {"key": "pump", "text": "leaks"}},
        {"name": "read_note", "arguments": {"key": "pump"}},
    ],
}


@pytest.fixture(scope="module", params=["1", "2"])
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    named = os.environ.get(f"FLIGHTSCHOOL_MCP{request.param}_PYTHON")
    if named:
        return named
    home = tmp_path_factory.mktemp(f"mcp{request.param}")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    made = str(home / "bin" / "python")
    package = {"1": "mcp>=1.28,<2", "2": "mcp==2.0.0"}[request.param]
    subprocess.run([made, "-m", "pip", "install", "--quiet", package], check=True)
    return made


@pytest.fixture(params=["stdio", "http"])
def address(request: pytest.FixtureRequest, python: str, tmp_path: Path) -> Iterator[str]:
    script = tmp_path / "notes.py"
    script.write_text(SERVER, encoding="utf-8")
    if request.param == "stdio":
        yield shlex.join([python, str(script), "stdio", "0"])
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([python, str(script), "http", str(port)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(10)


def test_a_server_of_the_sdk_is_an_environment(address: str, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps(TASK) + "\n", encoding="utf-8")
    doubtful, guessed = import_mcp(address, McpSettings(tasks=tasks))
    assert {spec.name: spec.effect for spec in doubtful.tools} == {
        "read_note": Effect.READ,
        "write_note": Effect.WRITE,
        "wipe": Effect.DESTROY,
    }
    assert doubtful.allowed == ("read_note",)
    assert set(guessed) == {"read_note", "write_note", "wipe"}
    content, _ = import_mcp(address, McpSettings(tasks=tasks, confirm_effects=True))
    (write,) = (spec for spec in content.tools if spec.name == "write_note")
    assert set(write.parameters["required"]) == {"key", "text"}
    world = ForeignEnvironment("notes", content)
    runner = EpisodeRunner(world, OutcomeReward(), run="r")
    (solved,) = run_attempts(runner, world.tasks(), OraclePolicy(world), seed=0)
    assert solved.reward is not None
    assert solved.reward.success
    first, wrote, second = solved.events
    assert (wrote.result.is_error, second.result.is_error) == (False, False)
    assert "leaks" in second.result.content
    if address.startswith("http"):
        assert not first.result.is_error or "no note" in first.result.content
    else:  # a program of its own each time: nothing is there before it is written
        assert first.result.is_error
        assert "no note 'pump'" in first.result.content
    (idle,) = run_attempts(runner, world.tasks(), NoopPolicy(), seed=0)
    assert idle.reward is not None
    assert not idle.reward.success
