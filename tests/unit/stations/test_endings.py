"""A training that ended early says so, with where and the mend."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from flightschool.screening import Funnel
from flightschool.stations import Quiet, fly
from flightschool.stations.endings import ended_early
from flightschool.stations.gates import Admission
from flightschool.store import Workspace
from flightschool.testing.miniature import MiniatureEnvironment
from flightschool.training import TrainingSettings, TrainResult
from flightschool.training.messages import Manifest
from flightschool.verification import OutcomeReward

FUNNEL = Funnel(pool=1, sound=1, screened=1, admitted=1, num_rollouts=1, num_scored=1)


def ended(stopped: str) -> TrainResult:
    manifest = Manifest(run="r", incarnation=0, step=3, lineage=((0, 3),), consumed=(), accounts=(), files=())
    return TrainResult(
        run="r",
        stopped=stopped,
        model="m",
        model_digest="sha256:0",
        manifest=manifest,
        num_groups=70,
        num_zero_advantage=67,
        num_unfinished=0,
        max_staleness=0,
        length_bias=0.0,
        wall_s=1.0,
    )


@pytest.mark.parametrize(
    ("stopped", "words"),
    [
        ("no gradient", "64 groups in a row had no gradient"),
        ("time limit", "its time limit was reached"),
        ("source dry", "no task was left to draw"),
    ],
)
def test_an_early_end_is_told_with_its_step_and_reason(stopped: str, words: str) -> None:
    told = ended_early(ended(stopped), TrainingSettings(num_steps=12, max_flat_groups=64))
    assert told is not None
    assert told.startswith("training ended at step 3 of 12: ")
    assert words in told


def test_a_training_that_made_its_steps_needs_no_word() -> None:
    assert ended_early(ended("steps done"), TrainingSettings(num_steps=3)) is None


def test_the_station_tells_the_person_who_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Heard(Quiet):
        notes: ClassVar[list[str]] = []

        def note(self, text: str) -> None:
            self.notes.append(text)

    monkeypatch.setattr("flightschool.stations.training_station.train", lambda *_, **__: ended("no gradient"))
    environment = MiniatureEnvironment()
    admission = Admission(tasks=tuple(environment.tasks()), weights={}, funnel=FUNNEL)
    with Workspace.create(tmp_path / "space") as space:
        settings = TrainingSettings(num_steps=12)
        fly(space, environment, OutcomeReward(), admission, run="r", model=tmp_path, settings=settings, tell=Heard())
    assert Heard.notes == [ended_early(ended("no gradient"), settings)]
