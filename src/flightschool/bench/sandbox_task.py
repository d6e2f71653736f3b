"""Terminal tasks: how fast folders are read, and how long one small task takes from the command to its verdict."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from flightschool.errors import InfrastructureError

__all__ = ["light_task_s", "parse_rate"]

_RUN_S = 120.0
_TEST = '#!/bin/bash\nif [ "$(cat /app/total)" = 60 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n'
_TASK = {
    "task.toml": 'schema_version = "1.4"\n[agent]\ntimeout_sec = 20\n[verifier]\ntimeout_sec = 20\n',
    "instruction.md": "Sum the numbers of /app/rows into /app/total.\n",
    "environment/Dockerfile": "FROM debian:12\nWORKDIR /app\nCOPY rows .\n",
    "environment/rows": "10\n20\n30\n",
    "tests/test.sh": _TEST,
    "solution/solve.sh": "#!/bin/sh\ns=0; while read -r n; do s=$((s + n)); done < rows; echo $s > total\n",
}


def parse_rate(folder: Path, count: int) -> float:
    """Task folders of the Harbor format read a second; ``count`` of them are written to ``folder`` first."""
    from flightschool.environments.terminal import measure_read_speed, write_sample_tasks

    write_sample_tasks(folder, count)
    return measure_read_speed(folder).tasks_per_s


def light_task_s(folder: Path, rounds: int) -> float | None:
    """Seconds from the start of ``flightschool rollout`` to the verdict of a task of a shell; median, its image built.

    Args:
        folder: an empty one, for the task and its image.
        rounds: how often it is run.

    Returns:
        None where this user may not start the Python that runs this (it lies in another user's home).

    Raises:
        InfrastructureError: it cannot be run here.
    """
    if not os.access(sys.executable, os.X_OK):
        return None
    for name, text in _TASK.items():
        place = folder / "sum" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    _once(folder)
    return statistics.median(_once(folder) for _ in range(rounds))


def _once(folder: Path) -> float:
    words = [sys.executable, "-m", "flightschool.cli", "rollout", "./sum", "--policy", "oracle", "-n", "1", "--json"]
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    began = time.perf_counter()
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=_RUN_S, check=False)
    took = time.perf_counter() - began
    rewards = [] if done.returncode else [one["reward"] for one in json.loads(done.stdout)["episodes"]]
    if [reward and reward["total"] for reward in rewards] != [1.0]:
        raise InfrastructureError(
            f"the small task was not solved: {(done.stdout + done.stderr)[-400:]}",
            where="bench sandbox",
            expected="reward 1",
            mend="run `flightschool rollout` on a task folder by hand",
        )
    return took
