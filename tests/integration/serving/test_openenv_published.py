"""openenv 0.10 as published, in an environment of its own: its clients, its validator, its servers.

Installing it takes minutes: ``pytest -m slow``. An interpreter that has it may be named in
``FLIGHTSCHOOL_OPENENV_PYTHON``.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flightschool.bench import openenv_steps as bench
from flightschool.cli import main
from flightschool.environments.foreign import ForeignEnvironment
from flightschool.environments.openenv import import_openenv
from flightschool.environments.openenv.importing import ImportSettings
from flightschool.environments.registry import load_environment
from flightschool.records import ToolCall

pytestmark = [pytest.mark.integration, pytest.mark.slow]
PEER = Path(__file__).with_name("peer_openenv.py")
TOKEN = "a-secret"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("FLIGHTSCHOOL_OPENENV_PYTHON")
    return Path(named) if named else bench._install(tmp_path_factory.mktemp("openenv"), lambda _: None)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The desk, in two processes, behind a token."""
    port = bench._free_port()
    command = [
        sys.executable,
        "-m",
        "flightschool.cli",
        "serve",
        "env",
        "desk",
        "--port",
        str(port),
        "--processes",
        "2",
    ]
    process = subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "FLIGHTSCHOOL_TOKEN": TOKEN}, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while True:
        try:
            asyncio.run(_connect(port))
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait(10)


async def _connect(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()


def test_the_published_clients_work_unchanged(python: Path, served: str) -> None:
    desk = load_environment("desk")
    chosen = {task.stratum: task for task in desk.tasks()}.values()  # one of each stratum
    oracles: dict[str, Any] = {}
    for task in chosen:
        reference = desk.reference(task.id)
        calls = [(call.name, call.arguments) for call in reference.oracle]
        oracles[task.id] = {"calls": calls, "answer": reference.oracle_answer}
    done = subprocess.run(
        [str(python), str(PEER), served, TOKEN, json.dumps(oracles)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert all(reward > 0.9 for reward in told["rewards"])
    assert len(told["rewards"]) == len(oracles)
    assert told["mcp_reward"] > 0.9
    assert told["num_tasks"] == 24


def test_the_validator_accepts_the_package_and_the_running_server(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "env", "desk", "--write", "package"]) == 0
    validate = [str(python.with_name("openenv")), "validate"]
    found = subprocess.run(
        [*validate, "package", "--level", "static", "--json"], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-2000:]
    assert '"FAIL"' not in found.stdout.upper() or '"verdict": "pass"' in found.stdout
    port = bench._free_port()
    with bench._running([str(sys.executable), "-m", "server.app"], port, tmp_path / "package", PORT=str(port)) as (
        url,
        _,
    ):
        live = subprocess.run([*validate, "--url", url, "--json"], capture_output=True, text=True, check=False)
        assert live.returncode == 0, live.stdout[-2000:]
        assert json.loads(live.stdout)["passed"] is True
    # the same application behind the peers' own runtime
    command = [str(python), "-m", "uvicorn", "server.app:app", "--host", "127.0.0.1", "--port", str(port)]
    paths = os.pathsep.join(path for path in sys.path if path)
    with bench._running(command, port, tmp_path / "package", PYTHONPATH=paths) as (url, _):
        oracle = json.dumps(_one_oracle())
        done = subprocess.run([str(python), str(PEER), url, "", oracle], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]


def _one_oracle() -> dict[str, Any]:
    desk = load_environment("desk")
    task = desk.tasks()[0]
    reference = desk.reference(task.id)
    return {task.id: {"calls": [(c.name, c.arguments) for c in reference.oracle], "answer": reference.oracle_answer}}


def test_a_published_server_becomes_an_environment(python: Path, tmp_path: Path) -> None:
    port = bench._free_port()
    script = Path(bench.__file__).with_name("openenv_reference.py")
    with bench._running([str(python), str(script), str(port)], port, tmp_path) as (url, _):
        imported = import_openenv(url, ImportSettings(num_tasks=2))
        world = ForeignEnvironment("echo", imported.content)
        assert [spec.name for spec in world.tools()] == ["echo_message"]
        far = world.open(world.tasks()[0])
        for text in ("one", "two", "three"):
            reply = far.execute(ToolCall(id="1", name="echo_message", arguments={"message": text}))
            assert reply.value == text
            assert not reply.is_error
        far.close()
    template = bench._template(tmp_path, python)
    port = bench._free_port()
    command = [str(python), "-m", "uvicorn", "server.app:app", "--host", "127.0.0.1", "--port", str(port)]
    with bench._running(command, port, template) as (url, _):
        imported = import_openenv(url, ImportSettings(num_tasks=2))
        world = ForeignEnvironment("plain", imported.content)
        assert [spec.name for spec in world.tools()] == ["act"]
        far = world.open(world.tasks()[0])
        reply = far.execute(ToolCall(id="1", name="act", arguments={"message": "Hello"}))
        assert reply.value == {"echoed_message": "Hello", "message_length": 5}
        assert json.loads(far.snapshot())["reward"] == 0.5
        far.close()
