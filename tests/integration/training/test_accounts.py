"""What a whole run reports of steps that were skipped or made again and of tokens that were lost, with a tiny
random model."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.training.bandit import BanditRunner

from flightschool.cli import main
from flightschool.errors import FlightschoolError, InfrastructureError
from flightschool.records import Attempt, EpisodeGroup, Task
from flightschool.rollouts import Policy
from flightschool.training import PoolSource, TrainingSettings, resume, train
from flightschool.training.folders import RunFolder
from flightschool.training.journal import Discarded, Finished, read_journal
from flightschool.training.progress import StepProgress, read_metrics
from flightschool.training.trackers import read_events

pytestmark = [pytest.mark.integration, pytest.mark.long]
TASKS = [Task(id=f"t{i}", family=f"f{i}", stratum="s", instruction=f"go {i}", initial_state="") for i in range(4)]


def settings(**fields: Any) -> TrainingSettings:
    base = {"mode": "sync", "separate_process": False, "max_new_tokens": 8, "group_size": 3, "learning_rate": 3e-3}
    extra = {"restart_pause_s": 0.0, "max_restarts": 0, "algorithm": "dr_grpo", "groups_per_step": 1}
    return TrainingSettings.model_validate(base | extra | fields)


def fly(folder: Path, runner: BanditRunner, **fields: Any) -> list[StepProgress]:
    train(
        settings(**fields),
        model=folder.parent / "model",
        run_dir=folder,
        source=PoolSource(TASKS),
        runner=runner,
        unaudited="a test",
    )
    return read_metrics(RunFolder(folder).metrics)


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    (tmp_path / "model").symlink_to(tiny_folder)
    return tmp_path / "run"


class SometimesTooLarge(BanditRunner):
    """Some groups have outcomes whose gradient no float32 can hold."""

    def __init__(self, ordinals: set[int], die_after: int = 1 << 30) -> None:
        super().__init__(die_after)
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


def test_every_row_leads_to_its_episodes(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Step 1 is made, step 2 skipped twice, made, undone by a crash and made again."""
    assert main(["init", str(tmp_path / "agent")]) == 0
    monkeypatch.chdir(tmp_path / "agent")
    folder = tmp_path / "agent" / ".flightschool" / "runs" / "r1"
    folder.parent.mkdir()
    folder.parent.joinpath("model").symlink_to(tiny_folder)
    with pytest.raises(InfrastructureError, match="the world broke"):
        fly(folder, SometimesTooLarge({1, 2}, die_after=4), num_steps=3, checkpoint_every=100)
    resume(folder, source=PoolSource(TASKS), runner=SometimesTooLarge(set()))
    rows = read_metrics(RunFolder(folder).metrics)
    assert [row.number for row in rows] == list(range(1, len(rows) + 1))

    def told(*words: str) -> Any:  # Any: one JSON object
        capsys.readouterr()
        assert main(["runs", "show", "r1", *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    behind = told("--step", "1")
    first = [(row["incarnation"], row["attempt"], row["skipped"], row["rolled_back"]) for row in behind["rows"]]
    assert first == [(0, 1, False, True), (0, 1, True, True), (0, 2, True, True), (1, 2, False, False)]
    assert [tuple(row["groups"]) for row in behind["rows"]] == [row.groups for row in rows if row.step == 1]
    assert {episode["group"] for episode in behind["episodes"]} == {g for row in behind["rows"] for g in row["groups"]}
    assert [(row["step"], row["attempt"]) for row in told()["steps"] if not row["skipped"]][-3:] == [
        (1, 2),
        (2, 4),
        (3, 1),
    ]
    assert main(["runs", "show", "r1", "--step", "1"]) == 0
    assert "row 3, step 2 skipped, attempt 2, rolled back" in " ".join(capsys.readouterr().err.split())

    points = [point for path in sorted((folder / "tensorboard").iterdir()) for point in read_events(path)]
    assert [number for number, _ in points] == [row.number for row in rows]  # none hides another
    assert [figures["step"] for _, figures in points] == [row.step for row in rows]


class SometimesSlow(BanditRunner):
    """The first try at every third group samples, then waits for a tool that never answers."""

    def __init__(self, die_after: int = 1 << 30) -> None:
        super().__init__(die_after)
        self.lost = 0

    async def _attempt(self, task: Task, policy: Policy, group: str, index: int, seed: int) -> Attempt:
        attempt = await super()._attempt(task, policy, group, index, seed)
        if int(group[1:7]) % 3 == 0 and "-" not in group:
            self.lost += attempt.num_completion_tokens
            await asyncio.sleep(3600)
        return attempt


def test_what_stragglers_sampled_is_waste(folder: Path) -> None:
    runner = SometimesSlow()
    rows = fly(folder, runner, num_steps=4, group_limit_s=0.5, max_restarts=2)
    groups = [e.group for e in read_journal(RunFolder(folder).journal) if isinstance(e, Finished)]
    made = sum(member.num_completion_tokens for group in groups for member in group.members)
    assert runner.lost > 0
    assert rows[-1].waste == pytest.approx(runner.lost / (runner.lost + made))


def test_waste_and_bias_go_on_after_a_resume(folder: Path) -> None:
    """They cover all that the journal knows, and not only the last start."""
    runner = SometimesSlow(die_after=9)
    with pytest.raises(InfrastructureError, match="the world broke"):
        fly(folder, runner, num_steps=9, checkpoint_every=4, group_limit_s=0.5, max_restarts=1)
    resume(folder, source=PoolSource(TASKS), runner=BanditRunner())
    files = RunFolder(folder)
    rows = read_metrics(files.metrics)
    entries = list(read_journal(files.journal))
    assert sum(e.num_tokens for e in entries if isinstance(e, Discarded)) == runner.lost
    manifest = json.loads(files.result.read_bytes())["manifest"]
    tokens = {
        m.id: (m.num_completion_tokens, e.group.id in manifest["consumed"])
        for e in entries
        if isinstance(e, Finished)
        for m in e.group.members
    }
    consumed = [n for n, used in tokens.values() if used]
    dropped = [n for n, used in tokens.values() if not used]
    assert dropped  # of the steps that the crash undid
    lost = sum(dropped) + runner.lost
    assert rows[-1].waste == pytest.approx(lost / (lost + sum(consumed)))
    means = sum(consumed) / len(consumed), (sum(consumed) + sum(dropped)) / len(tokens)
    assert rows[-1].length_bias == pytest.approx(abs(means[0] / means[1] - 1))
