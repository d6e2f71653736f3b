"""Export as Harbor: what comes back is what was there, and changes are only those that were asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import needs

from flightschool.environments.terminal import (
    CopyStep,
    Readiness,
    RewardNumber,
    TaskFormat,
    TerminalTask,
    VerdictSource,
    VerifierMode,
    amend,
    copy_targets,
    export_harbor,
    plan_build,
    read_folder,
    read_pytest_summary,
    read_reward,
)
from flightschool.environments.terminal.toml_text import toml_text
from flightschool.errors import ConfigError, InputError

Write = Callable[[str, Mapping[str, str]], Path]
Sample = Callable[[str], Path]


def test_every_harbor_sample_comes_back_byte_for_byte(samples: dict[str, Path], tmp_path: Path) -> None:
    num = 0
    for name, folder in samples.items():
        task = read_folder(folder)
        if task.format is not TaskFormat.HARBOR:
            continue
        exported = export_harbor(task, tmp_path / "out" / name)
        assert exported == msgspec.structs.replace(task, folder=str(tmp_path / "out" / name))
        assert read_folder(tmp_path / "out" / name).digest == task.digest
        assert plan_build(exported).digest == plan_build(task).digest
        num += 1
    assert num >= 12
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.name.startswith(".")) == []


def test_links_and_executable_bits_survive(sample: Sample, tmp_path: Path) -> None:
    folder = sample("python_fix")
    (folder / "environment" / "link").symlink_to("src/add.py")
    (folder / "environment" / "out").symlink_to("/usr/bin/python3")
    exported = export_harbor(read_folder(folder), tmp_path / "out")
    assert exported.digest == read_folder(folder).digest
    assert os.readlink(tmp_path / "out" / "environment" / "out") == "/usr/bin/python3"  # noqa: PTH115
    assert os.access(tmp_path / "out" / "tests" / "test.sh", os.X_OK)


def test_changes_are_written_and_nothing_else(sample: Sample, tmp_path: Path) -> None:
    task = read_folder(sample("separate_verifier"))
    changed = amend(task, {"verifier": {"environment_mode": "shared", "timeout_sec": 5}, "agent": {"user": "clerk"}})
    assert (changed.verifier_mode, changed.limits.verifier_s, changed.agent_user) == (VerifierMode.SHARED, 5, "clerk")
    changed = msgspec.structs.replace(changed, instruction="Another text.\n")
    exported = export_harbor(changed, tmp_path / "out")
    assert exported.unplaced == changed.unplaced
    assert exported.settings["extra"] == {"x": [1, 2]}, "unknown keys are kept"
    assert exported.digest != task.digest
    assert (tmp_path / "out" / "README.md").read_text(encoding="utf-8") == "Notes.\n"


def test_steps_are_changed_in_place(sample: Sample, tmp_path: Path) -> None:
    task = read_folder(sample("several_steps"))
    first = msgspec.structs.replace(task.steps[0], instruction="Make it.\n")
    exported = export_harbor(msgspec.structs.replace(task, steps=(first, task.steps[1])), tmp_path / "out")
    assert [step.instruction for step in exported.steps] == ["Make it.\n", "Write its size to /app/size.\n"]
    amended = amend(task, {"agent": {"timeout_sec": 7, "user": "clerk"}})
    assert [(step.agent_user, step.limits.agent_s) for step in amended.steps] == [("clerk", 20), ("clerk", 7)]
    assert amended.digest != task.digest
    assert export_harbor(amended, tmp_path / "amended").unplaced == amended.unplaced
    with pytest.raises(InputError, match="the steps are others"):
        amend(task, {"steps": []})


def test_terminal_bench_1_becomes_harbor(sample: Sample, tmp_path: Path) -> None:
    task = read_folder(sample("bench_one"))
    exported = export_harbor(task, tmp_path / "out")
    assert (exported.format, exported.verdict_source) == (TaskFormat.HARBOR, VerdictSource.REWARD_FILE)
    for name in ("instruction", "limits", "metadata", "environment_env", "verifier_env", "settings", "id"):
        assert getattr(exported, name) == getattr(task, name)
    assert exported.oracle == ("/bin/sh", "/solution/solve.sh")
    context = {path.name for path in (tmp_path / "out" / "environment").rglob("*")}
    assert context == {"Dockerfile", "in.txt"}, "tests and solution are out of the agent's reach"
    plan = plan_build(exported)
    assert plan.readiness is Readiness.REPLAYABLE
    assert [t for s in plan.steps if isinstance(s, CopyStep) for _, _, t in copy_targets(s, lambda _: False)] == [
        "/app/in.txt"
    ]
    again = export_harbor(exported, tmp_path / "again")
    assert again.digest == exported.digest


def test_what_a_dockerfile_names_stays_in_its_context(sample: Sample, tmp_path: Path) -> None:
    folder = sample("bench_one")
    (folder / "tests" / "data").mkdir()
    (folder / "tests" / "data" / "given.csv").write_text("1\n", encoding="utf-8")
    text = "FROM debian:12\nCOPY tests/data /app/data\nCOPY . /all/\n"
    (folder / "Dockerfile").write_text(text, encoding="utf-8")
    exported = export_harbor(read_folder(folder), tmp_path / "out")
    files = {path.relative_to(tmp_path / "out" / "environment").as_posix() for path in exported_files(exported)}
    assert files == {"Dockerfile", "in.txt", "tests/data/given.csv"}
    assert plan_build(exported).readiness is Readiness.REPLAYABLE


def exported_files(task: TerminalTask) -> list[Path]:
    return [path for path in (Path(task.folder) / "environment").rglob("*") if path.is_file()]


OUTPUTS = [
    "=== 3 passed in 0.12s ===\n",
    "x\n=== 1 failed, 2 passed in 61.20s (0:01:01) ===\r\n",
    "\x1b[32m=== \x1b[1m2 passed\x1b[0m, 1 warning in 1.00s ===\x1b[0m\nbye\n",
    "=== 2 passed, 1 error in 1s ===\n",
    "=== 1 passed, 1 xfailed in 1s ===\n",
    "=== 9 passed in 1s ===\n=== 1 failed in 1s ===\n",
    "bash: pytest: command not found\n",
    "=== 4 skipped in 0.01s ===\n",
    "no tests ran in 0.01s\n",
    "3 passed in my opinion\n",
]


@pytest.mark.skipif(
    shutil.which("bash") is None,
    reason=needs.reason("the program bash", "install it with this machine's package manager"),
)
@pytest.mark.parametrize("output", OUTPUTS)
def test_the_written_test_script_judges_as_the_reader_does(sample: Sample, tmp_path: Path, output: str) -> None:
    export_harbor(read_folder(sample("bench_one")), tmp_path / "out")
    script = (tmp_path / "out" / "tests" / "test.sh").read_text(encoding="utf-8")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "output").write_bytes(output.encode())
    (tmp_path / "tests" / "run-tests.sh").write_text(f"cat {tmp_path}/tests/output; exit 1\n", encoding="utf-8")
    moved = script.replace("/logs/", f"{tmp_path}/logs/").replace("/tests/run", f"{tmp_path}/tests/run")
    subprocess.run(["bash", "-c", moved], check=True, capture_output=True)
    reward = tmp_path / "logs" / "verifier" / "reward.txt"
    expected = read_pytest_summary(output)
    if not isinstance(expected, RewardNumber):
        assert not reward.exists(), "a broken grader writes no verdict"
        return
    written = read_reward({"reward.txt": reward.read_bytes()})
    assert isinstance(written, RewardNumber)
    assert written.value == expected.value


def test_what_cannot_be_exported_is_refused_and_leaves_nothing(sample: Sample, write: Write, tmp_path: Path) -> None:
    task = read_folder(sample("awk_sum"))
    full = write("full", {"a": ""})
    with pytest.raises(InputError, match="destination is not empty"):
        export_harbor(task, full)
    with pytest.raises(InputError, match="agent_user was changed"):
        export_harbor(msgspec.structs.replace(task, agent_user="root"), tmp_path / "out")
    with pytest.raises(InputError, match=r"instruction\.md is empty"):
        export_harbor(msgspec.structs.replace(task, instruction=""), tmp_path / "out")
    with pytest.raises(InputError, match="cannot be written as a reward"):
        export_harbor(read_folder(sample("bench_one_other_parser")), tmp_path / "out")
    with pytest.raises(ConfigError, match="timeout_sec"):
        amend(task, {"agent": {"timeout_sec": -1}})
    assert [path.name for path in tmp_path.iterdir()] == ["tasks"]


TEXT = st.text(alphabet="ab Z9_-.=[]{}#,'\"\\\n\t\r\0\x1f\x7f\x85é😀\u2028", max_size=8)
SCALARS = TEXT | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.booleans()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=10
)


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_written_toml_reads_back(table: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text(table)) == table
