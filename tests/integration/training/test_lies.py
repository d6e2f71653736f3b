"""Self-tests of asynchrony on whole runs: tags shuffled, a lag that is told and one that is not, end the run by name.

Each of the three checks ends a run of its own: impossible tags (``check_tags``, torch-free), true tags beyond the bound
(``check_bound``) and possible tags that are not true (``check_fresh``), the latter two before a real trainer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.integration.training.bandit import BanditRunner

from flightschool.errors import TokenContractError
from flightschool.records import EpisodeGroup, Task, WeightsVersion
from flightschool.training import PoolSource, RunStart, TrainingSettings, run_supervised
from flightschool.training.dispatcher import Part
from flightschool.training.generation import LocalGeneration
from flightschool.training.messages import TrainerSpec
from flightschool.training.progress import read_metrics

pytestmark = pytest.mark.integration
HERE = Path(__file__).parent


def run(run_dir: Path, fault: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / "fake_run.py"), str(run_dir), "60", "async", "0.003", fault]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(("fault", "words"), [("shuffle", "follows one of version"), ("lag", "follows one of version")])
def test_a_lying_generation_is_noticed(tmp_path: Path, fault: str, words: str) -> None:
    done = run(tmp_path / "run", fault)
    assert done.returncode == 1
    assert "TokenContractError" in done.stderr
    assert words in done.stderr
    assert "span" in done.stderr


def test_an_honest_one_ends_well_and_publishes_its_figures(tmp_path: Path) -> None:
    done = run(tmp_path / "run", "")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows
    assert {row["expired_token_share"] for row in rows} == {0.0}
    assert {row["waste"] for row in rows} == {0.0}
    assert all(0.0 <= row["generation_idle"] <= 1.0 for row in rows)
    assert rows[-1]["length_bias"] < 0.5
    assert max(row["staleness_max"] for row in rows) == 1  # asynchronous in fact, and within the bound
    assert any(sum(row["term_shares"].values()) == pytest.approx(1.0) for row in rows)


class LateGeneration(LocalGeneration):
    """Takes every third version only; tags and admissions say truly which one it samples under."""

    taken = 0

    async def apply_weights(self, version: WeightsVersion) -> None:
        if version.step % 3 == 0:
            await super().apply_weights(version)
            self.taken = version.step

    async def make_group(
        self, task: Task, group: str, admitted_step: int, seed: int, temperature: float, part: Part
    ) -> EpisodeGroup:
        del admitted_step
        return await super().make_group(task, group, self.taken, seed, temperature, part)


class DeafGeneration(LocalGeneration):
    """Samples under the first weights for ever, and tags its tokens with every version that is published."""

    async def apply_weights(self, version: WeightsVersion) -> None:
        if version.step == 0:
            await super().apply_weights(version)
            assert self._opened.model is not None
            self.first = {name: value.detach().clone() for name, value in self._opened.model.named_parameters()}
        else:
            await self.engine.load_weights(version, self.first, keep_cache=True)


def fly(run_dir: Path, model: Path, kind: type[LocalGeneration]) -> None:
    """Four steps of a real trainer, each on 256 tokens."""
    settings = TrainingSettings(
        mode="sync",
        num_steps=4,
        learning_rate=1e-2,
        group_size=16,
        groups_per_step=2,
        max_inflight_groups=2,
        max_new_tokens=8,
        max_restarts=0,
        trackers=(),
    )
    run_dir.mkdir()
    start = RunStart(run="lies", model=str(model), settings=settings.model_dump_json())
    (run_dir / "run.json").write_bytes(msgspec.json.encode(start))

    def station(settings: TrainingSettings, spec: TrainerSpec) -> LocalGeneration:
        return kind(settings, model=model, runner=BanditRunner(), run=spec.run, weights=Path(spec.weights))

    tasks = [Task(id=f"t{i}", family=f"f{i}", stratum="s", instruction=f"go {i}", initial_state="") for i in range(3)]
    run_supervised(start, run_dir, source=PoolSource(tasks), make_station=station)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "words", "num_steps"),
    [
        (LateGeneration, "a token of version 0 would train at version 2", 2),
        (DeafGeneration, "tokens said to be of the newest weights differ from them by", None),
    ],
)
def test_an_engine_that_lags_ends_the_run(
    tiny_folder: Path, tmp_path: Path, kind: type[LocalGeneration], words: str, num_steps: int | None
) -> None:
    with pytest.raises(TokenContractError, match=words):
        fly(tmp_path / "run", tiny_folder, kind)
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert max(row.staleness_max for row in rows) <= 1  # nothing too old was applied before
    assert len(rows) == num_steps or num_steps is None


@pytest.mark.long
def test_an_engine_that_does_not_lag_is_not_accused(tiny_folder: Path, tmp_path: Path) -> None:
    fly(tmp_path / "run", tiny_folder, LocalGeneration)
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row.step for row in rows] == [1, 2, 3, 4]
    assert max(row.stats.fresh_mismatch for row in rows) < 1e-3
