"""Conditions of grading: what they change of a task and of a policy, and what they leave alone."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests import needs

from flightschool.environments.terminal import TerminalTask, read_folder
from flightschool.errors import InputError
from flightschool.rollouts.terminal import CONDITIONS, SolutionPolicy, condition_of

FILES = {
    "task.toml": "[agent]\ntimeout_sec = 5\n",
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM debian:12\nENV LC_ALL=C.UTF-8\n",
    "tests/test.sh": "#!/bin/bash\n",
    "solution/solve.sh": "#!/bin/bash\n",
}


@pytest.fixture
def task(tmp_path: Path) -> TerminalTask:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return read_folder(tmp_path)


def test_what_the_task_sets_itself_is_left_as_it_is(task: TerminalTask) -> None:
    locale = CONDITIONS["locale-c"]
    assert locale.changed(task) == {"LANG": "C"}
    assert locale.of_task(task).verifier_env == {"LANG": "C"}
    pinned = msgspec.structs.replace(task, verifier_env={"LANG": "C.UTF-8"})
    assert locale.of_task(pinned) == pinned


def test_a_busy_machine_is_one_of_the_tests_alone(task: TerminalTask) -> None:
    busy, policy = CONDITIONS["busy"], SolutionPolicy()
    command = busy.of_task(task).test_command
    assert command[:2] == ("/bin/sh", "-c")
    assert command[4:] == task.test_command
    assert busy.of_policy(policy) is policy


@pytest.mark.parametrize(("name", "whole"), [("later", True), ("graded-later", False)])
def test_another_time_is_everyones_or_the_tests(name: str, whole: bool, task: TerminalTask) -> None:
    condition = CONDITIONS[name]
    if not condition.is_possible:
        needs.skip("a C compiler", "install gcc or clang with this machine's package manager")
    assert "CLOCK_SHIFT_S=34560000" in condition.of_task(task).test_command[2]
    (stage,) = task.stages
    command = condition.of_policy(SolutionPolicy()).move(stage).command
    assert ("CLOCK_SHIFT_S" in " ".join(command)) is whole
    assert command[-len(stage.oracle) :] == stage.oracle


def test_an_unknown_condition_names_those_that_there_are() -> None:
    with pytest.raises(InputError, match="no such condition") as error:
        condition_of("storm")
    assert "time-zone-tokyo" in error.value.expected
