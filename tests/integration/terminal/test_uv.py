"""Tests that fetch their runner with uv: run by what stands in for it, where exactly what they ask for is there."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import needs

from flightschool.environments.terminal.trees.presence import Presence, write_stand_ins
from flightschool.rollouts.terminal import Episode, NotRun

pytestmark = [pytest.mark.integration, pytest.mark.long]
PYTEST = importlib.metadata.version("pytest")
INSTALL = "curl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh\n. $HOME/.local/bin/env\n"


@pytest.fixture
def shell(tmp_path: Path) -> Any:
    """Runs a script of bash with the stand-ins in front of the path, over this Python's packages."""
    packages = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in importlib.metadata.distributions()}
    write_stand_ins(
        tmp_path / "present",
        Presence(apt={"curl": "1"}, pip=packages, python=platform.python_version(), interpreter=sys.executable),
    )
    for name in ("home", "work"):
        (tmp_path / name).mkdir()

    def run(script: str) -> tuple[int, str]:
        env = {"PATH": f"{tmp_path}/present/bin:/usr/bin:/bin", "HOME": str(tmp_path / "home"), "LC_ALL": "C.UTF-8"}
        words = ["bash", "-c", script]
        done = subprocess.run(
            words, env=env, cwd=tmp_path / "work", capture_output=True, text=True, timeout=120, check=False
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_the_usual_test_script_runs(shell: Any, tmp_path: Path) -> None:
    (tmp_path / "work/test_x.py").write_text("import sys\ndef test_x():\n    assert '' not in sys.path[:1]\n")
    line = f"uvx -p {sys.version_info[0]}.{sys.version_info[1]} -w pytest=={PYTEST} pytest -q -p no:cacheprovider"
    code, text = shell(f"set -euo pipefail\n{INSTALL}{line} test_x.py\n")
    assert (code, "1 passed" in text) == (0, True), text
    assert (tmp_path / "home/.local/bin/uvx").is_symlink()
    (tmp_path / "work/test_x.py").write_text("def test_x():\n    assert False\n")
    code, text = shell(f"{line} test_x.py\n")
    assert (code, "1 failed" in text) == (1, True), text


@pytest.mark.parametrize(
    "script",
    [
        f"uv venv .t && . .t/bin/activate && uv pip install pytest=={PYTEST} && pytest --version && uv run pytest -h",
        f"uv init && uv add pytest=={PYTEST} && uv run pytest --version",
        "uv run --no-project --with pytest python -m pytest --version",
        "uv tool run pytest --version && uv --version && uv pip install --system pytest",
    ],
)
def test_other_ways_run_as_well(shell: Any, script: str) -> None:
    code, text = shell(script)
    assert (code, re.search(r"^pytest [0-9]", text, re.MULTILINE) is not None) == (0, True), text


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("uvx -w pytest==0.1 pytest", "pytest==0.1"),
        ("uvx -p 3.1 pytest", "Python 3.1"),
        ("uvx --with nobody-has-this pytest", "nobody-has-this"),
        ("uvx --with-editable . pytest", "--with-editable"),
        ("uv sync", "not stood in for"),
        ("uv run pytest", "nobody-has-this"),
        ("uv add pytest", "No `pyproject.toml`"),
    ],
)
def test_what_is_not_there_is_said(shell: Any, tmp_path: Path, script: str, told: str) -> None:
    if "uv run" in script:
        (tmp_path / "work/pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["nobody-has-this"]\n')
    code, text = shell(script)
    assert (code, told in text) == (2, True), text


def test_other_fetches_go_on_to_the_program_itself(shell: Any, tmp_path: Path) -> None:
    (tmp_path / "work/file").write_text("content")
    code, text = shell("command -v /usr/bin/curl || exit 77; PATH=$HOME/bin:$PATH; curl -s file://$PWD/file")
    if code == 77:
        needs.skip("the program curl", "install it with this machine's package manager")
    assert (code, text.splitlines()[-1]) == (0, "content")


def base_package() -> tuple[str, str, str]:
    """A program that a package of the system's Python brings, that package, and its version."""
    script = (
        "import importlib.metadata as m\nfor d in m.distributions():\n for e in d.entry_points:\n"
        "  if e.group == 'console_scripts': print(e.name, d.metadata['Name'], d.version)"
    )
    try:
        done = subprocess.run(
            ["/usr/bin/python3", "-I", "-c", script], capture_output=True, text=True, timeout=60, check=True, env={}
        )
    except (OSError, subprocess.SubprocessError):
        return "", "", ""
    for line in done.stdout.splitlines():
        name, package, version = line.split()
        if name == package.lower() == "pip" and version.replace(".", "").isdigit():
            return name, package, version
    return "", "", ""


def test_a_task_whose_tests_use_uv_is_graded_here(runs: Any, kit: Any) -> None:
    name, package, version = base_package()
    if not name or not all(map(os.path.exists, ("/usr/bin/dpkg-query", "/usr/bin/curl"))):
        needs.skip("a Python of the system with a program in a package of its own", "run on Debian or Ubuntu with curl")
    ask = f"uvx --from {package}=={version} {name}"
    condition = f"{ask} --version >&2 && [ -e /app/done ]"
    files = kit.harbor("FROM python:3.12\nWORKDIR /app\n", kit.head + INSTALL + kit.judge(condition), "touch done\n")
    task = runs.task(files)
    (oracle,) = runs(task, "oracle")
    assert isinstance(oracle, Episode), oracle
    assert (oracle.attempt.detail, oracle.attempt.reward and oracle.attempt.reward.total) == ("", 1.0)
    assert oracle.details is not None
    assert any(line.startswith("uv: what stands in") for line in oracle.details.stood_in)
    assert any(version in line for line in oracle.details.stood_in)
    (noop,) = runs(task, "noop")
    assert isinstance(noop, Episode)
    assert noop.attempt.reward is not None
    assert noop.attempt.reward.total == 0.0
    forged = "mkdir -p ~/.local/bin; cd ~/.local/bin; for n in uvx uv python3 mkdir; do printf '#!/bin/sh\\n' > $n;"
    forged += " chmod 755 $n; done; cd /app; echo 'PATH=/app:$PATH' > ~/.local/bin/env; cp ~/.local/bin/uv uvx\n"
    (attack,) = runs(task, runs.script(forged))
    assert isinstance(attack, Episode)
    assert attack.attempt.reward is not None
    assert attack.attempt.reward.total == 0.0
    files["tests/test.sh"] = files["tests/test.sh"].replace(f"=={version}", "==0.0.1")
    (other,) = runs(runs.task(files, "other"), "oracle")
    assert isinstance(other, NotRun)
    assert (other.need, "tests/test.sh" in other.reason) == ("network", True)
