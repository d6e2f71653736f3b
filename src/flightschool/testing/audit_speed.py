"""How fast task folders are audited: reading alone, thousands of them, and one small task by running.

``python -m flightschool.testing.audit_speed`` writes sample folders, audits them by the command line as a user would,
and prints a table in Markdown. Numbers of a machine that does other things besides say little.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from flightschool.audit.terminal.static import examine_static
from flightschool.environments.terminal import TerminalTask, iter_tasks, write_sample_tasks
from flightschool.testing.corpus import copy_pytest

__all__ = ["PYTEST_TASK", "SHELL_TASK", "audit_s", "read_rate"]

_TOML: Final = 'schema_version = "1.4"\n[agent]\ntimeout_sec = 20\n[verifier]\ntimeout_sec = 20\n'
_VERDICT: Final = "mkdir -p /logs/verifier\nif {}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
SHELL_TASK: Final[Mapping[str, str]] = {
    "task.toml": _TOML,
    "instruction.md": "Write the sum of the numbers in /app/rows to /app/total.\n",
    "environment/Dockerfile": "FROM debian:12\nWORKDIR /app\nCOPY rows .\n",
    "environment/rows": "10\n20\n30\n",
    "tests/test.sh": "#!/bin/bash\n" + _VERDICT.format('[ "$(cat /app/total)" = 60 ]'),
    "solution/solve.sh": "#!/bin/sh\ns=0; while read -r n; do s=$((s + n)); done < rows; echo $s > total\n",
}
"""A sound task that a shell judges."""
_RUN: Final = (
    "(cd /tests && PYTHONPATH=/tests/lib python3 -P -m pytest -p no:cacheprovider -q /tests/test_total.py"
    " --rootdir /tests -c /dev/null --noconftest) >&2"
)
PYTEST_TASK: Final[Mapping[str, str]] = {
    **SHELL_TASK,
    "tests/test.sh": "#!/bin/bash\n" + _VERDICT.format(_RUN),
    "tests/test_total.py": "def test_total():\n    assert open('/app/total').read().split() == ['60']\n",
}
"""The same, judged by a pytest that it brings along (in ``tests/lib``)."""


def read_rate(folder: Path) -> float:
    """Task folders that the static pass reads and judges in a second of one processor."""
    began, count = time.process_time(), 0
    for task in iter_tasks(folder):
        if isinstance(task, TerminalTask):
            examine_static(task)
            count += 1
    return count / (time.process_time() - began)


def audit_s(folder: Path, *arguments: str) -> tuple[float, float, dict[str, int]]:
    """(seconds by the clock, seconds of processors, verdicts) of ``flightschool audit`` on a folder."""
    words = [sys.executable, "-m", "flightschool.cli", "audit", "./" + folder.name, "--fresh", "--json", *arguments]
    env = {**os.environ, "XDG_CACHE_HOME": str(folder.parent / "cache")}
    before, began = _cpu_s(), time.perf_counter()
    done = subprocess.run(words, cwd=folder.parent, env=env, capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    return took, _cpu_s() - before, json.loads(done.stdout)["summary"]["verdicts"]


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def measure(folder: Path, count: int) -> Iterator[str]:
    """Lines of the table."""
    many = folder / "many"
    write_sample_tasks(many, count)
    yield "| what | figure |"
    yield "|---|---|"
    yield f"| folders read and judged a second of one processor | {read_rate(many):.0f} |"
    took, cpu_s, verdicts = audit_s(many, "--static")
    most_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    told = f"{took:.1f} s ({cpu_s:.1f} s of processors), at most {most_mib:.0f} MiB, {verdicts}"
    yield f"| `audit --static` of {count} folders | {told} |"
    shell, by_pytest = _write(folder / "shell", SHELL_TASK), _write(folder / "pytest", PYTEST_TASK)
    copy_pytest(by_pytest / "tests/lib")
    for name, task in (("a shell", shell), ("pytest", by_pytest)):
        audit_s(task, "--repeats", "2")  # builds the image
        took, cpu_s, verdicts = audit_s(task)
        yield f"| `audit` of a small task judged by {name} | {took:.1f} s ({cpu_s:.1f} s of processors), {verdicts} |"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m flightschool.testing.audit_speed", description=__doc__)
    parser.add_argument("-n", "--num", type=int, default=4000, help="folders that are only read")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for line in measure(Path(folder), chosen.num):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
