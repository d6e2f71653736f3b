"""Thousands of folders, read only: in how much memory, and that a killed run goes on where it stood."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flightschool.environments.terminal import write_sample_tasks

pytestmark = [pytest.mark.integration, pytest.mark.long]

MANY = 4000
MOST_MIB = 400


def started(cwd: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "flightschool.cli", "audit", "./tasks", "--static", "--json", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        env={**os.environ, "XDG_CACHE_HOME": str(cwd / "cache")},
    )


def finished_audits(cwd: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in (cwd / "cache").rglob("*.jsonl"))


def told(process: subprocess.Popen[bytes]) -> list[str]:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    rows = json.loads(out)["tasks"]
    assert {row["verdict"] for row in rows} == {"unaudited"}
    return [row["id"] for row in rows]


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    write_sample_tasks(tmp_path / "tasks", 40)
    first = started(tmp_path)
    while finished_audits(tmp_path) < 5:
        assert first.poll() is None
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    before = finished_audits(tmp_path)
    assert told(started(tmp_path)) == [f"{number:06d}" for number in range(40)]
    assert finished_audits(tmp_path) in (40, 41), "one line may have been cut short"
    assert 5 <= before <= 40


@pytest.mark.slow
def test_thousands_are_read_in_bounded_memory(tmp_path: Path) -> None:
    """How fast is measured by ``python -m flightschool.testing.audit_speed``."""
    write_sample_tasks(tmp_path / "tasks", MANY)
    assert len(told(started(tmp_path))) == MANY
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < MOST_MIB << 10
