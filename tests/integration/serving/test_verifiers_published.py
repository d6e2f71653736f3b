"""verifiers 0.4 as published: its bridge to NeMo Gym takes a resources server of ours.

Installing it takes minutes: ``pytest -m slow``. An interpreter that has it may be named in
``FLIGHTSCHOOL_VERIFIERS_PYTHON``.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flightschool.serving import Offer, TaskDesk
from flightschool.serving.nemo_gym import NemoGymServer, rows
from flightschool.testing.miniature import MiniatureEnvironment

pytestmark = [pytest.mark.integration, pytest.mark.slow]
PEER = Path(__file__).with_name("peer_verifiers.py")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    named = os.environ.get("FLIGHTSCHOOL_VERIFIERS_PYTHON")
    if named:
        return named
    home = tmp_path_factory.mktemp("verifiers")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    made = str(home / "bin" / "python")
    subprocess.run([made, "-m", "pip", "install", "--quiet", "verifiers==0.4.0"], check=True)
    return made


def test_the_bridge_seeds_calls_and_verifies(python: str, tmp_path: Path) -> None:
    miniature = MiniatureEnvironment()
    desk = TaskDesk(miniature)
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows(desk)), encoding="utf-8")
    calls = [(call.name, call.arguments) for call in miniature.reference(miniature.tasks()[0].id).oracle]

    async def played() -> subprocess.CompletedProcess[str]:
        async with NemoGymServer(Offer(miniature), desk, masks=False) as server:
            command = [python, str(PEER), server.url, str(path), json.dumps(calls)]
            return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)

    done = asyncio.run(played())
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["num_tasks"] == len(miniature.tasks())
    assert told["answers"][-1] == {"ok": True}
    assert told["reward"] > 0.9
    assert told["metrics"]["mask_sample"] == 0.0
