"""The library call asks how its tasks came there, before anything is read or written."""

from __future__ import annotations

from pathlib import Path

import pytest

from flightschool.errors import GateError, InputError
from flightschool.records import Attempt, EpisodeGroup, Task
from flightschool.training import PoolSource, TrainingSettings, train


class NoRunner:
    """Must not be asked for anything."""

    async def group(self, *_: object, **__: object) -> EpisodeGroup:
        raise AssertionError

    async def attempt(self, *_: object, **__: object) -> Attempt:
        raise AssertionError


def call(tmp_path: Path, *, log_head: str = "", unaudited: str = "") -> None:
    task = Task(id="t", family="f", stratum="s", instruction="go", initial_state="")
    train(
        TrainingSettings(),
        model=tmp_path / "no-model",
        run_dir=tmp_path / "run",
        source=PoolSource([task]),
        runner=NoRunner(),
        log_head=log_head,
        unaudited=unaudited,
    )


@pytest.mark.parametrize("declared", [{}, {"unaudited": " "}])
def test_tasks_of_which_nothing_says_that_they_were_audited_do_not_train(
    tmp_path: Path, declared: dict[str, str]
) -> None:
    with pytest.raises(GateError, match=r"nothing says that the tasks were audited.*unaudited=") as refused:
        call(tmp_path, **declared)
    assert refused.value.exit_code == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("declared", [{"log_head": "sha256:head"}, {"unaudited": "a benchmark"}])
def test_a_log_or_a_reason_lets_it_begin(tmp_path: Path, declared: dict[str, str]) -> None:
    with pytest.raises(InputError, match="no-model"):  # the next thing that is looked at
        call(tmp_path, **declared)
