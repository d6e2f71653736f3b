"""``runs show`` of trainings: their last step, and with ``--kept`` what was skipped since it was not finite."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.training.test_kept import member

from flightschool.store import Workspace
from flightschool.training import RunStart
from flightschool.training.folders import RunFolder
from flightschool.training.kept import keep_batch
from flightschool.training.messages import TrainGroup


@pytest.fixture
def folder(space: Path) -> RunFolder:
    with Workspace.find(space) as opened:
        made = RunFolder(opened.run_dir("job-1"))
    made.root.mkdir(parents=True, exist_ok=True)
    start = RunStart(run="job-1", model="m", settings="{}", unaudited="an experiment")
    made.start.write_bytes(msgspec.json.encode(start))
    return made


def test_what_was_kept_is_listed_with_what_is_not_finite(folder: RunFolder, run: Any) -> None:
    assert run("runs", "show", "job-1", "--kept", "--json").json["kept"] == []
    group = TrainGroup(id="g", members=(member("g:0"), member("g:1", advantage=math.nan)))
    keep_batch(folder.kept, [group], incarnation=0, step=7)
    (batch,) = run("runs", "show", "job-1", "--kept", "--json").json["kept"]
    assert (batch["step"], [row["attempt"] for row in batch["members"]]) == (7, ["g:1", "g:0"])
    assert batch["members"][0]["not_finite"] == ["advantage"]
    told = run("runs", "show", "job-1", "--kept").err
    assert "skipped at step 7" in told
    assert "advantage" in told


def test_a_training_without_an_audit_says_so(folder: RunFolder, run: Any) -> None:
    assert folder.start.is_file()
    assert "trained on unaudited tasks: “an experiment”" in run("runs", "show", "job-1").err


@pytest.mark.parametrize(("result", "step"), [(b'{"stopped": "time limit", "manifest": {"step": 12}}', 12), (b"{}", 0)])
def test_a_finished_training_tells_its_last_step(folder: RunFolder, run: Any, result: bytes, step: int) -> None:
    folder.result.write_bytes(result)  # its checkpoints were removed when it finished
    assert run("runs", "show", "job-1", "--json").json["run"]["step"] == step
    told = "finished (time limit), step 12" if step else "finished, step 0"
    assert told in run("runs", "show", "job-1").err
    (row,) = run("runs", "list", "--json").json["trainings"]
    assert (row["state"], row["step"]) == ("finished", step)


@pytest.mark.parametrize("more", [(), ("--step", "1"), ("--kept",)])
def test_an_unknown_run_is_told_with_the_nearest_of_either_kind(
    folder: RunFolder, run: Any, more: tuple[str, ...]
) -> None:
    assert folder.start.is_file()
    spoken = run("runs", "show", "job-2", *more, "--json")
    assert spoken.code == 2
    assert spoken.error["what"] == "no run is named 'job-2'"
    assert spoken.error["mend"] == "did you mean 'job-1'?"
