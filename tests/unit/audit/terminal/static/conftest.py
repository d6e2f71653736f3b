"""Builders of small labelled task folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path

import pytest

from flightschool.audit.terminal.static import StaticPass, examine_static
from flightschool.environments.terminal import TerminalTask, read_folder

Files = dict[str, str | bytes]
Look = Callable[[Mapping[str, str | bytes]], StaticPass]

TOML = 'schema_version = "1.4"\n[agent]\ntimeout_sec = 20\n[verifier]\ntimeout_sec = 20\n'
DOCKERFILE = "FROM debian:12\nWORKDIR /app\nCOPY data/ /app/data/\n"
REWARD = "/logs/verifier/reward.txt"


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.fixture
def place(tmp_path: Path) -> Callable[[Mapping[str, str | bytes]], TerminalTask]:
    """Writes a task and reads it."""
    numbers = count()
    return lambda files: read_folder(write_files(tmp_path / f"task{next(numbers)}", files))


@pytest.fixture
def look(place: Callable[[Mapping[str, str | bytes]], TerminalTask]) -> Look:
    """Writes a task and runs the static pass."""
    return lambda files: examine_static(place(files))


def harbor(test: str, **more: str | bytes) -> Files:
    """A Harbor task; ``__`` in a name stands for ``/``, ``_DOT_`` for a dot."""
    files: Files = {
        "task.toml": TOML,
        "instruction.md": "Add the numbers in /app/data/rows.csv and write the sum to /app/total.txt.\n",
        "environment/Dockerfile": DOCKERFILE,
        "environment/data/rows.csv": "a,10\nb,20\nc,30\n",
        "tests/test.sh": "#!/bin/bash\nmkdir -p /logs/verifier\n" + test,
        "solution/solve.sh": "#!/bin/bash\nawk -F, '{ s += $2 } END { print s }' /app/data/rows.csv > /app/total.txt\n",
    }
    return files | {name.replace("__", "/").replace("_DOT_", "."): content for name, content in more.items()}


def judge(condition: str) -> str:
    return f"if {condition}; then echo 1; else echo 0; fi > {REWARD}\n"


def python_task(body: str, command: str = "cd /tests && pytest -q test_outputs.py", **more: str | bytes) -> Files:
    return harbor(judge(f"({command})"), tests__test_outputs_DOT_py=body, **more)


@pytest.fixture
def kit() -> Kit:
    return Kit()


class Kit:
    """Builders in one place, since test folders are no packages."""

    harbor = staticmethod(harbor)
    judge = staticmethod(judge)
    python_task = staticmethod(python_task)
    write_files = staticmethod(write_files)
    toml = TOML
    dockerfile = DOCKERFILE
    reward = REWARD
