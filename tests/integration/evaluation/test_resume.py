"""kill -9 in the middle of an evaluation: what was answered is not asked again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flightschool.cli import main
from flightschool.models import LoopbackServer, Reply, chat_reply
from flightschool.store import Workspace

pytestmark = [pytest.mark.integration, pytest.mark.long]


class Slow:
    """A model that takes its time to say that it is done."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, request: dict[str, Any]) -> Reply:
        time.sleep(0.1)
        self.asked.append(request["messages"][-1]["content"])
        return chat_reply("Done.")


def test_a_killed_evaluation_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "space")]) == 0
    monkeypatch.chdir(tmp_path / "space")
    assert main(["eval", "freeze", "desk", "--name", "ride", "--per-family", "1", "--holdout", "0"]) == 0
    slow = Slow()
    with LoopbackServer(slow) as server:
        words = ["eval", "run", "ride", "--policy", server.reference(), "--concurrency", "1", "--json"]
        flown = subprocess.Popen([sys.executable, "-m", "flightschool.cli", *words], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while len(slow.asked) < 6 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(flown.pid, signal.SIGKILL)
        flown.wait()
        before = len(slow.asked)
        with Workspace.find() as opened:
            kept = len(opened.store.keys("attempt"))
            assert list(opened.store.keys("evaluation")) == []
        assert before >= 6
        assert kept >= before - 1  # one may have been answered and not have ended
        capsys.readouterr()
        assert main(words) in (0, 1)
        told = json.loads(capsys.readouterr().out)
    assert told["infra"]["missing"] == 0
    num_tasks = told["summary"]["num_items"]
    again = len(slow.asked) - before
    assert again <= num_tasks - kept + 1  # one request may have been under way when the process died
    assert num_tasks > kept
