"""NeMo Gym 0.7 as published: a resources server of its own played from here, and its own agent at a server of ours.

Its package asks for Python 3.13; its servers and its agent run under 3.11 too, started here without its launcher.
Installing takes minutes: ``pytest -m slow``. An interpreter that has it may be named: ``FLIGHTSCHOOL_NEMO_GYM_PYTHON``.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flightschool.environments.foreign import ForeignEnvironment
from flightschool.environments.nemo_gym import import_nemo_gym
from flightschool.records import ToolCall
from flightschool.rollouts import EpisodeRunner, MessagesPolicy, NoopPolicy, run_attempts, scripted_turns
from flightschool.serving import Offer, TaskDesk
from flightschool.serving.nemo_gym import NemoGymServer, rows
from flightschool.testing.miniature import MiniatureEnvironment
from flightschool.verification import OutcomeReward

pytestmark = [pytest.mark.integration, pytest.mark.slow]
PEER = Path(__file__).with_name("peer_nemo_gym.py")
NEEDED = (
    "openai==2.44.0", "fastapi", "uvicorn", "httptools", "uvloop", "hydra-core", "omegaconf", "rich", "aiohttp>=3.14",
    "anyio>=4.15", "itsdangerous", "orjson>=3.11.6", "requests", "psutil", "yappi", "devtools", "jinja2",
    "mcp>=1.28.1,<2", "python-multipart", "tqdm", "packaging", "PyJWT", "GitPython", "anthropic<=0.109.2", "ray>=2.58",
    "scipy", "datasets", "sqlparse", "pandas", "pydot", "wandb",
)  # fmt: skip


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    named = os.environ.get("FLIGHTSCHOOL_NEMO_GYM_PYTHON")
    if named:
        return named
    home = tmp_path_factory.mktemp("nemo")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    made = str(home / "bin" / "python")
    pip = [made, "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--ignore-requires-python", "nemo-gym==0.7.0"], check=True)
    subprocess.run([*pip, *NEEDED], check=True)
    return made


@pytest.fixture
def counter(python: str) -> Iterator[str]:
    """Its example of a server with a session: a counter."""
    command = [python, str(PEER), "resources", "example_session_state_mgmt"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def published_rows(python: str) -> Path:
    code = "import resources_servers.example_session_state_mgmt as m; print(list(m.__path__)[0])"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return Path(found.stdout.strip()) / "data" / "example.jsonl"


def test_its_rows_are_played_at_its_own_server(python: str, counter: str) -> None:
    content, guessed = import_nemo_gym(counter, published_rows(python), num_tasks=5, threshold=1.0, max_turns=8)
    assert set(guessed) == {"increment_counter", "get_counter_value"}
    world = ForeignEnvironment("counter", content)
    assert len(world.tasks()) == 5
    runner = EpisodeRunner(world, OutcomeReward(), run="r")
    turns = {}
    for task in world.tasks():
        row = content.starts[task.id].start
        missing = row["expected_count"] - row["initial_count"]
        calls = [
            ToolCall(id="a", name="increment_counter", arguments={"count": missing}),
            ToolCall(id="b", name="get_counter_value", arguments={}),
            ToolCall(id="c", name="final_answer", arguments={"answer": "Done."}),
        ]
        turns[task.id] = scripted_turns(calls, "")
    solved = run_attempts(runner, world.tasks(), MessagesPolicy(turns, "p"), seed=0)
    assert [attempt.reward is not None and attempt.reward.success for attempt in solved] == [True] * 5
    first = json.loads(solved[0].events[1].result.content)
    assert first == {"count": content.starts[solved[0].task].start["expected_count"]}
    idle = run_attempts(runner, world.tasks(), NoopPolicy(), seed=0)
    assert [attempt.reward is not None and attempt.reward.success for attempt in idle] == [False] * 5


def test_its_own_agent_plays_a_row_at_our_server(python: str) -> None:
    miniature = MiniatureEnvironment()
    desk = TaskDesk(miniature)
    (row,) = [one for one in rows(desk) if one["task_id"] == miniature.tasks()[0].id]
    oracle = miniature.reference(miniature.tasks()[0].id).oracle

    def called(call: ToolCall) -> dict[str, Any]:
        return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": json.dumps(call.arguments)}

    part = {"type": "output_text", "text": "Done.", "annotations": []}
    said = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}

    async def played(turns: list[list[dict[str, Any]]]) -> dict[str, Any]:
        async with NemoGymServer(Offer(miniature), desk) as server:
            command = [python, str(PEER), "agent", server.url, json.dumps(row), json.dumps(turns)]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[-3000:]
            told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            return told

    right = asyncio.run(played([*([called(call)] for call in oracle), [said]]))
    assert right["reward"] > 0.9
    assert right["mask_sample"] is False
    assert right["reward_components"]["outcome"] == 1.0
    outputs = [item for item in right["response"]["output"] if item["type"] == "function_call_output"]
    assert len(outputs) == len(oracle)
    idle = asyncio.run(played([[said]]))
    assert idle["reward"] < 0.5
