"""How fast task folders are read: sample folders and a stopwatch, for ``bench sandbox`` and for whoever doubts it."""

from __future__ import annotations

import time
from pathlib import Path

from flightschool.environments.terminal.building import plan_build
from flightschool.environments.terminal.folders import iter_tasks
from flightschool.environments.terminal.records import TerminalTask
from flightschool.errors import InputError
from flightschool.records import Record

__all__ = ["ReadSpeed", "measure_read_speed", "write_sample_tasks"]

_SETTINGS = """\
schema_version = "1.4"
[metadata]
category = "sample"
tags = ["text", "awk"]
number = {number}
[agent]
timeout_sec = 900
[verifier]
timeout_sec = 120
[environment]
cpus = 1
memory_mb = 1024
"""
_DOCKERFILE = """\
FROM ubuntu:24.04
ARG DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get install -y \\
    gawk \\
    python3 \\
  && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY data/ ./data/
COPY requirements.txt ./
ENV LIMIT={number}
RUN mkdir -p out && chmod 755 out
"""
_TEST = """\
#!/bin/bash
mkdir -p /logs/verifier
if [ "$(cat /app/out/total)" = "{total}" ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
_SOLUTION = """\
#!/bin/bash
awk -F, '{ total += $2 } END { print total }' /app/data/rows.csv > /app/out/total
"""


class ReadSpeed(Record, frozen=True, kw_only=True):
    """One measurement."""

    num_tasks: int
    num_unreadable: int
    seconds: float
    """Wall clock of reading everything, and of planning if that was asked for."""
    with_plan: bool

    @property
    def tasks_per_s(self) -> float:
        """Folders a second, unreadable ones included."""
        return (self.num_tasks + self.num_unreadable) / self.seconds


def write_sample_tasks(parent: Path, count: int) -> None:
    """Write ``count`` small Harbor tasks of eight files each: ``parent/000000`` …"""
    for number in range(count):
        folder = parent / f"{number:06d}"
        for name in ("environment/data", "tests", "solution"):
            (folder / name).mkdir(parents=True)
        rows = [f"row{row},{(number * 7 + row * 13) % 101}" for row in range(40)]
        total = sum(int(row.split(",")[1]) for row in rows)
        files = {
            "task.toml": _SETTINGS.format(number=number),
            "instruction.md": f"Add the second column of data/rows.csv and write the sum to out/total. ({number})\n",
            "environment/Dockerfile": _DOCKERFILE.format(number=number),
            "environment/requirements.txt": "# none\n",
            "environment/data/rows.csv": "\n".join(rows) + "\n",
            "tests/test.sh": _TEST.format(total=total),
            "tests/notes.txt": f"expected {total}\n",
            "solution/solve.sh": _SOLUTION,
        }
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")


def measure_read_speed(parent: Path, *, with_plan: bool = False) -> ReadSpeed:
    """Read every task below ``parent`` (and plan its build); one pass, nothing kept."""
    num_tasks = num_unreadable = 0
    started = time.perf_counter()
    for task in iter_tasks(parent):
        try:
            if with_plan and isinstance(task, TerminalTask):
                plan_build(task)
            num_tasks += isinstance(task, TerminalTask)
            num_unreadable += not isinstance(task, TerminalTask)
        except InputError:
            num_unreadable += 1
    return ReadSpeed(
        num_tasks=num_tasks,
        num_unreadable=num_unreadable,
        seconds=time.perf_counter() - started,
        with_plan=with_plan,
    )
