"""A run without torch: ``fake_run.py RUN_DIR NUM_TASKS MODE [SECONDS [FAULT]]``. Groups take random time and tokens.

``FAULT`` makes generation lie: ``shuffle`` reverses the version tags of a completion, ``lag`` samples under the version
before the published one and says so.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path

from flightschool.digest import derive_random
from flightschool.records import (
    Attempt,
    EndReason,
    EpisodeGroup,
    Outcome,
    Reward,
    SpanKind,
    Task,
    Timings,
    TokenSpan,
    VersionRun,
    WeightsVersion,
)
from flightschool.training import GenerationStation, PoolSource, RunStart, TrainingSettings, run_incarnation
from flightschool.training.messages import TrainerSpec

HERE = Path(__file__).parent


class FakeGeneration:
    """Members sample token by token under whatever version is in force, with lognormal lengths."""

    def __init__(self, seconds: float, fault: str = "") -> None:
        self._seconds, self._fault = seconds, fault
        self._step = 0

    async def apply_weights(self, version: WeightsVersion) -> None:
        self._step = max(0, version.step - 1) if self._fault == "lag" else version.step

    async def close(self) -> None:
        pass

    async def make_group(
        self, task: Task, group: str, admitted_step: int, seed: int, temperature: float
    ) -> EpisodeGroup:
        chance = derive_random("fake", seed)
        flat = chance.random() < 0.2
        members = await asyncio.gather(*(self._member(group, index, seed, flat) for index in range(3)))
        return EpisodeGroup(id=group, task=task.id, size=3, members=tuple(members), admitted_step=admitted_step)

    async def _member(self, group: str, index: int, seed: int, flat: bool) -> Attempt:
        chance = derive_random("member", seed, index)
        steps = []
        for _ in range(max(1, round(chance.lognormvariate(1.0, 0.8)))):
            steps.append(self._step)
            await asyncio.sleep(self._seconds)
        told = reversed(steps) if self._fault == "shuffle" else steps
        runs = tuple(VersionRun(step=step, count=1) for step in told)
        outcome = 0.5 if flat else float(index == 0)
        return Attempt(
            id=f"{group}:{index}",
            run="fake",
            group=group,
            index=index,
            number=0,
            environment="fake",
            environment_digest="",
            task="",
            task_digest="",
            policy="fake",
            seed=seed,
            spans=(
                TokenSpan(id=0, parent=None, kind=SpanKind.PROMPT, token_ids_T=(1,)),
                TokenSpan(
                    id=1,
                    parent=0,
                    kind=SpanKind.COMPLETION,
                    token_ids_T=(2,) * len(steps),
                    logprobs_T=(-1.0,) * len(steps),
                    versions=runs,
                ),
            ),
            messages=(),
            events=(),
            outcome=Outcome.SCORED,
            reason=EndReason.FINISHED,
            cause="policy",
            verdict=None,
            reward=Reward(outcome=outcome, process=0.0, latency=0.0, gate=1.0, total=outcome),
            end_state="",
            timings=Timings(virtual_ms=0.0),
        )


def main(run_dir: Path, num_tasks: int, mode: str, seconds: float, fault: str) -> None:
    settings = TrainingSettings.model_validate(
        {
            "mode": mode,
            "num_steps": 10_000,
            "groups_per_step": 2,
            "group_size": 3,
            "max_inflight_groups": 4,
            "checkpoint_every": 2,
            "max_staleness": 1,
        }
    )
    tasks = [
        Task(id=f"t{i}", family=f"f{i}", stratum="s", instruction="x", initial_state="y") for i in range(num_tasks)
    ]

    def station(settings: TrainingSettings, spec: TrainerSpec) -> GenerationStation:
        return FakeGeneration(seconds, fault)

    result = run_incarnation(
        RunStart(run="fake", model="none", settings=settings.model_dump_json()),
        run_dir,
        source=PoolSource(tasks, seed=random.Random(0).getrandbits(16), num_rounds=1),
        make_station=station,
        command=[sys.executable, str(HERE / "fake_trainer.py")],
    )
    sys.stdout.write(
        json.dumps(
            {
                "stopped": result.stopped,
                "consumed": list(result.manifest.consumed),
                "incarnation": result.manifest.incarnation,
                "max_staleness": result.max_staleness,
                "length_bias": result.length_bias,
            }
        )
    )


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        int(sys.argv[2]),
        sys.argv[3],
        float(sys.argv[4]) if len(sys.argv) > 4 else 0.001,
        sys.argv[5] if len(sys.argv) > 5 else "",
    )
