"""Two processes over gloo give the losses, weights and checkpoints of one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import psutil
import pytest
import torch
from tests.integration.training.bandit import BanditRunner
from tests.unit.training.test_trainer import random_group

from flightschool.engines import load_model
from flightschool.errors import TokenContractError
from flightschool.records import Task, WeightsVersion
from flightschool.training import PoolSource, train
from flightschool.training.checking import faults
from flightschool.training.exporting import export_run
from flightschool.training.folders import RunFolder
from flightschool.training.incidents import read_incidents
from flightschool.training.link import ProcessLink, launcher, trainer_command
from flightschool.training.messages import (
    Accumulate,
    Accumulated,
    Done,
    Export,
    Manifest,
    Ready,
    Save,
    Start,
    Step,
    Stepped,
    StepStats,
    TrainerSpec,
)
from flightschool.training.progress import StepProgress
from flightschool.training.publisher import WeightsReader
from flightschool.training.settings import TrainingSettings
from flightschool.training.trainer import TorchTrainer

pytestmark = pytest.mark.integration
MANIFEST = Manifest(run="r", incarnation=0, step=1, lineage=((0, 1),), consumed=("g",))


def spec_of(folder: Path, run_dir: Path, num_trainers: int, checkpoint: str = "") -> TrainerSpec:
    run_dir.mkdir(exist_ok=True)
    settings = TrainingSettings(
        learning_rate=1e-3, max_new_tokens=8, num_trainers=num_trainers, max_pack_tokens=30, mismatch_floor=10.0
    )
    return TrainerSpec(
        run="r",
        incarnation=0,
        step=1 if checkpoint else 0,
        model=str(folder),
        checkpoint=checkpoint,
        run_dir=str(run_dir),
        weights=str(run_dir / "weights"),
        settings=settings.model_dump_json(),
    )


def close(a: StepStats, b: StepStats) -> bool:
    skipped = {"seconds", "num_forward_tokens"}  # a shared prefix stands once in every rank's packs
    rows = [{k: v for k, v in msgspec.to_builtins(stats).items() if k not in skipped} for stats in (a, b)]
    return bool(rows[0] == pytest.approx(rows[1], abs=1e-5, rel=1e-5))


@pytest.mark.long
async def test_two_ranks_train_like_one(tiny_folder: Path, tmp_path: Path) -> None:
    one = TorchTrainer(spec_of(tiny_folder, tmp_path / "one", 1))
    expected = []
    for seed in range(2):
        one.accumulate(random_group(seed, size=5))
        expected.append(one.step().stats)

    run_dir = tmp_path / "two"
    spec = spec_of(tiny_folder, run_dir, 2)
    link = ProcessLink(launcher(trainer_command(), 1), log=run_dir / "trainer.log", hang_s=200)
    try:
        ready = await link.ask(Start(spec=spec))
        assert isinstance(ready, Ready)
        found: list[StepStats] = []
        version: WeightsVersion | None = None
        for seed in range(2):
            told = await link.ask(Accumulate(groups=(random_group(seed, size=5),)))
            assert isinstance(told, Accumulated)
            stepped = await link.ask(Step())
            assert isinstance(stepped, Stepped)
            assert stepped.version is not None
            found.append(stepped.stats)
            version = stepped.version
            assert told.num_trained_tokens == stepped.stats.num_trained_tokens
            if seed == 0:
                await link.ask(Save(directory=str(run_dir / "checkpoint"), manifest=MANIFEST))
        with WeightsReader(run_dir / "weights") as reader:
            assert version is not None
            published = reader.read(version)
            for name, parameter in one.model.named_parameters():
                torch.testing.assert_close(published[name], parameter, atol=1e-5, rtol=1e-4)
        broken = random_group(5, size=2, version=2)
        span = msgspec.structs.replace(broken.members[1].spans[1], logprobs_T=(0.0,) * 4)
        member = msgspec.structs.replace(broken.members[1], spans=(broken.members[1].spans[0], span))
        with pytest.raises(TokenContractError, match="rank 1"):  # found by the second rank, told by both
            await link.ask(Accumulate(groups=(msgspec.structs.replace(broken, members=(broken.members[0], member)),)))
        done = await link.ask(Export(directory=str(run_dir / "model")))
        assert isinstance(done, Done)
    finally:
        await link.close()
    assert all(close(a, b) for a, b in zip(expected, found, strict=True)), (expected, found)
    assert load_model(run_dir / "model").digest == done.digest

    again = TorchTrainer(spec_of(tiny_folder, tmp_path / "again", 1, str(run_dir / "checkpoint")))
    again.accumulate(random_group(1, size=5))
    assert close(again.step().stats, expected[1])  # a sharded checkpoint goes on in one process


@pytest.mark.long
def test_a_rank_that_is_killed_is_named_and_the_run_goes_on(tiny_folder: Path, tmp_path: Path) -> None:
    """By its pid, in the middle of a whole run: the trainer ends, and the supervisor begins anew."""
    killed: list[int] = []

    def kill_once(row: StepProgress) -> None:
        ranks = [p for p in psutil.Process().children(recursive=True) if _is_rank(p)]
        if row.step == 2 and not killed:
            (rank,) = ranks
            rank.kill()
            killed.append(rank.pid)

    settings = TrainingSettings(
        num_trainers=2,
        num_steps=4,
        learning_rate=3e-3,
        max_new_tokens=8,
        group_size=3,
        groups_per_step=1,
        checkpoint_every=1,
        restart_pause_s=0.0,
    )
    tasks = [Task(id=f"t{i}", family=f"f{i}", stratum="s", instruction=f"go {i}", initial_state="") for i in range(2)]
    run_dir = tmp_path / "run"
    result = train(
        settings,
        model=tiny_folder,
        run_dir=run_dir,
        source=PoolSource(tasks),
        runner=BanditRunner(),
        progress=kill_once,
        unaudited="a test",
    )
    assert killed
    assert result.stopped == "steps done"
    assert (result.manifest.incarnation, result.manifest.step) == (1, 4)
    (incident,) = [row for row in read_incidents(RunFolder(run_dir).incidents) if row.kind == "restart"]
    assert "rank 1 of the trainer died with exit code -9" in incident.what
    export_run(run_dir, tmp_path / "exported")
    assert faults(tmp_path / "exported", max_staleness=1) == []


def _is_rank(process: psutil.Process) -> bool:
    try:
        return "flightschool.training.sharded_lead" in process.cmdline()
    except psutil.Error:  # it ended meanwhile
        return False
