"""What a whole run reports of steps that were skipped, with a tiny random model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.training.bandit import BanditRunner

from flightschool.errors import FlightschoolError
from flightschool.records import EpisodeGroup, Task
from flightschool.training import PoolSource, TrainingSettings, train
from flightschool.training.folders import RunFolder
from flightschool.training.progress import StepProgress, read_metrics

pytestmark = [pytest.mark.integration, pytest.mark.long]
TASKS = [Task(id=f"t{i}", family=f"f{i}", stratum="s", instruction=f"go {i}", initial_state="") for i in range(4)]


def settings(**fields: Any) -> TrainingSettings:
    base = {"mode": "sync", "separate_process": False, "max_new_tokens": 8, "group_size": 3, "learning_rate": 3e-3}
    extra = {"restart_pause_s": 0.0, "max_restarts": 0, "algorithm": "dr_grpo", "groups_per_step": 1}
    return TrainingSettings.model_validate(base | extra | fields)


def fly(folder: Path, runner: BanditRunner, **fields: Any) -> list[StepProgress]:
    train(settings(**fields), model=folder.parent / "model", run_dir=folder, source=PoolSource(TASKS), runner=runner)
    return read_metrics(RunFolder(folder).metrics)


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    (tmp_path / "model").symlink_to(tiny_folder)
    return tmp_path / "run"


class SometimesTooLarge(BanditRunner):
    """Some groups have outcomes whose gradient no float32 can hold."""

    def __init__(self, ordinals: set[int]) -> None:
        super().__init__()
        self._ordinals = ordinals

    async def group(self, *args: Any, **kwargs: Any) -> EpisodeGroup:
        made = await super().group(*args, **kwargs)
        if int(made.id[1:7]) not in self._ordinals:
            return made
        members = []
        for member in made.members:
            assert member.reward is not None
            huge = msgspec.structs.replace(member.reward, outcome=member.reward.outcome * 3e38)
            members.append(msgspec.structs.replace(member, reward=huge))
        return msgspec.structs.replace(made, members=tuple(members))


def test_skips_that_an_applied_step_parts_do_not_end_a_run(folder: Path) -> None:
    rows = fly(folder, SometimesTooLarge({1, 3, 5, 6, 8}), num_steps=6)
    skipped = [(row.step, row.groups) for row in rows if row.skipped]
    assert [step for step, _ in skipped] == [1, 2, 3, 3, 4]
    assert rows[-1].step == 6
    assert len(list((folder / "kept").iterdir())) == len(skipped)


def test_three_skips_in_a_row_end_a_run_whatever_came_before(folder: Path) -> None:
    with pytest.raises(FlightschoolError, match="3 steps in a row were skipped: loss or gradient not finite"):
        fly(folder, SometimesTooLarge({1, 3, 4, 5}), num_steps=30)
    rows = read_metrics(RunFolder(folder).metrics)
    assert [row.skipped for row in rows] == [False, True, False, True, True, True]
