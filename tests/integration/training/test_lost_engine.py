"""An engine that dies in the middle of a run is replaced, its groups are begun anew, and the lineage stays sound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.training.bandit import BanditRunner

from flightschool.engines import TorchEngine
from flightschool.records import EpisodeGroup, Task
from flightschool.rollouts import EnginePolicy, Policy
from flightschool.training import PoolSource, TrainingSettings, train
from flightschool.training.checking import faults, read_rows
from flightschool.training.exporting import export_run
from flightschool.training.folders import RunFolder
from flightschool.training.incidents import read_incidents

pytestmark = [pytest.mark.integration, pytest.mark.long]


class SaboteurRunner(BanditRunner):
    """Breaks the engine during some groups: the next pass raises, as an accelerator that is lost would."""

    def __init__(self, during: set[int]) -> None:
        super().__init__()
        self.engines: list[TorchEngine] = []
        self._during = during

    async def group(self, task: Task, policy: Policy, **more: Any) -> EpisodeGroup:
        assert isinstance(policy, EnginePolicy)
        engine = policy.engine
        assert isinstance(engine, TorchEngine)
        if engine not in self.engines:
            self.engines.append(engine)
        if self.num_groups in self._during:
            self._during.discard(self.num_groups)
            engine.between_steps = self._break
        return await super().group(task, policy, **more)

    @staticmethod
    def _break() -> None:
        raise RuntimeError("an illegal memory access was encountered")


def test_an_engine_that_dies_is_replaced(tiny_folder: Path, tmp_path: Path) -> None:
    runner = SaboteurRunner({4, 11})
    settings = TrainingSettings(
        learning_rate=3e-3,
        max_new_tokens=8,
        group_size=3,
        groups_per_step=2,
        num_steps=8,
        max_inflight_groups=4,
        restart_pause_s=0.0,
    )
    tasks = [Task(id=f"t{i}", family=f"f{i}", stratum="s", instruction=f"go {i}", initial_state="") for i in range(3)]
    run_dir = tmp_path / "run"
    result = train(
        settings, model=tiny_folder, run_dir=run_dir, source=PoolSource(tasks), runner=runner, unaudited="a test"
    )
    assert (result.stopped, result.manifest.incarnation) == ("steps done", 0)  # no process was lost
    assert len(runner.engines) == 3
    assert [bool(engine.died) for engine in runner.engines[:2]] == [True, True]
    incidents = read_incidents(RunFolder(run_dir).incidents)
    assert {incident.kind for incident in incidents} == {"retry"}
    assert any("illegal memory access" in incident.what for incident in incidents)
    export_run(run_dir, tmp_path / "exported")
    assert faults(tmp_path / "exported", max_staleness=1) == []
    versions = {
        v for span in read_rows(tmp_path / "exported" / "spans.jsonl") if any(span["mask"]) for v in span["versions"]
    }
    assert max(versions) >= 6  # the engine that took over was fed as the first one was
