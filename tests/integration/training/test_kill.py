"""kill -9 at random moments: nothing is lost, nothing trains twice, nothing too old trains. Without torch."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from flightschool.training.folders import RunFolder
from flightschool.training.journal import Finished, read_journal

HERE = Path(__file__).parent
NUM_TASKS = 40
pytestmark = pytest.mark.integration


def start(run_dir: Path, mode: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "fake_run.py"), str(run_dir), str(NUM_TASKS), mode, "0.003"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_groups(process: subprocess.Popen[str], run_dir: Path, num_bytes: int) -> bool:
    """Until the journal has grown past a size; False if the run ended before."""
    journal = run_dir / "journal.bin"
    while process.poll() is None:
        if journal.exists() and journal.stat().st_size >= num_bytes:
            return True
        time.sleep(0.002)
    return False


def run_with_kills(run_dir: Path, mode: str, seed: int, num_kills: int) -> dict[str, Any]:
    chance = random.Random(seed)
    for kill in range(num_kills):
        process = start(run_dir, mode)
        size = (run_dir / "journal.bin").stat().st_size if (run_dir / "journal.bin").exists() else 0
        if wait_for_groups(process, run_dir, size + chance.randrange(300, 4000)):
            victims = psutil.Process(process.pid).children() if kill % 2 else []
            os.kill(victims[0].pid if victims else process.pid, signal.SIGKILL)
        _, complaint = process.communicate(timeout=30)
        if kill % 2 and process.returncode not in (0, -9):
            assert "died with exit code -9" in complaint
    process = start(run_dir, mode)
    output, complaint = process.communicate(timeout=60)
    assert process.returncode == 0, complaint
    result: dict[str, Any] = json.loads(output)
    return result


@pytest.mark.parametrize(("mode", "seed"), [("async", 1), ("async", 2), ("sync", 3)])
def test_kill_loses_and_doubles_nothing(tmp_path: Path, mode: str, seed: int) -> None:
    result = run_with_kills(tmp_path / "run", mode, seed, num_kills=4)
    folder = RunFolder(tmp_path / "run")
    assert result["incarnation"] >= 2
    ordinals = [int(group[1:].split(".")[0]) for group in result["consumed"]]
    assert sorted(ordinals) == list(range(NUM_TASKS))
    trained = json.loads((folder.model / "weights.json").read_text())
    names = [group for group, _ in trained]
    assert len(set(names)) == len(names)
    assert max(age for _, age in trained) <= 1
    flat = {e.group.id for e in read_journal(folder.journal) if isinstance(e, Finished) and is_flat(e)}
    assert set(names) == set(result["consumed"]) - flat
    assert not list(tmp_path.glob("run/checkpoints/.*"))


def is_flat(entry: Finished) -> bool:
    return len({member.reward.outcome for member in entry.group.members if member.reward}) == 1


def test_the_trainer_ends_itself_when_its_parent_is_killed(tmp_path: Path) -> None:
    process = start(tmp_path / "run", "async")
    assert wait_for_groups(process, tmp_path / "run", 500)
    (trainer,) = psutil.Process(process.pid).children()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert psutil.wait_procs([trainer], timeout=10)[1] == []


def test_every_gradient_is_young_enough_and_lengths_are_unbiased(tmp_path: Path) -> None:
    process = start(tmp_path / "run", "async")
    output, complaint = process.communicate(timeout=60)
    assert process.returncode == 0, complaint
    result = json.loads(output)
    assert result["max_staleness"] <= 1
    assert result["length_bias"] == 0.0
    assert result["stopped"] == "source dry"
