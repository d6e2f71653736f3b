"""A run without torch: ``fake_run.py RUN_DIR NUM_TASKS MODE [SECONDS [FAULT]]``. Groups take random time and tokens.

``FAULT`` makes generation lie: ``shuffle`` reverses the version tags of a completion, ``lag`` samples under the version
before the published one and says so. Or fail: ``straggler`` never ends the group of one task and one
member of another, ``flaky`` breaks the first try at a third.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from flightschool.digest import derive_random
from flightschool.errors import InfrastructureError
from flightschool.records import (
    Attempt,
    EpisodeGroup,
    SpanKind,
    Task,
    TokenSpan,
    VersionRun,
    WeightsVersion,
)
from flightschool.training import (  # numpy comes with the sums: once here, not in every start
    GenerationStation,
    PoolSource,
    RunStart,
    TrainingSettings,
    run_supervised,
    sums,  # noqa: F401
)
from flightschool.training.dispatcher import Part
from flightschool.training.link import Launch, launcher
from flightschool.training.messages import TrainerSpec
from flightschool.training.server import serve as serve_trainer

sys.path[:0] = [str(Path(__file__).parents[3])] if __name__ == "__main__" else []
from tests.integration.training.fake_trainer import ListTrainer  # noqa: E402
from tests.trained import reward_of, scored_attempt  # noqa: E402

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
        self, task: Task, group: str, admitted_step: int, seed: int, temperature: float, part: Part
    ) -> EpisodeGroup:
        chance = derive_random("fake", seed)
        if self._fault == "straggler" and task.id == "t7":
            await asyncio.sleep(3600)
        if self._fault == "flaky" and task.id == "t5" and "-" not in group:
            raise InfrastructureError("the world broke", where="test")
        flat = chance.random() < 0.2
        members = await asyncio.gather(*(self._known_or_made(part, group, index, seed, flat) for index in range(3)))
        return EpisodeGroup(id=group, task=task.id, size=3, members=tuple(members), admitted_step=admitted_step)

    async def _known_or_made(self, part: Part, group: str, index: int, seed: int, flat: bool) -> Attempt:
        if index in part.known:
            return part.known[index]
        if self._fault == "straggler" and group.startswith("g000009") and index == 2:
            await asyncio.sleep(3600)
        attempt = await self._member(group, index, seed, flat)
        part.keep(attempt)
        return attempt

    async def _member(self, group: str, index: int, seed: int, flat: bool) -> Attempt:
        chance = derive_random("member", seed, index)
        steps = []
        for _ in range(max(1, round(chance.lognormvariate(1.0, 0.8)))):
            steps.append(self._step)
            await asyncio.sleep(self._seconds)
        told = reversed(steps) if self._fault == "shuffle" else steps
        runs = tuple(VersionRun(step=step, count=1) for step in told)
        outcome = 0.5 if flat else float(index == 0)
        spans = (
            TokenSpan(id=0, parent=None, kind=SpanKind.PROMPT, token_ids_T=(1,)),
            TokenSpan(
                id=1,
                parent=0,
                kind=SpanKind.COMPLETION,
                token_ids_T=tuple(chance.randrange(2, 1 << 30) for _ in steps),
                logprobs_T=(-1.0,) * len(steps),
                versions=runs,
            ),
        )
        return scored_attempt(group, index, spans, reward_of(outcome), run="fake", seed=seed)


def settings_of(mode: str, num_restarts: int = 1000) -> TrainingSettings:
    return TrainingSettings.model_validate(
        {
            "mode": mode,
            "num_steps": 10_000,
            "groups_per_step": 2,
            "group_size": 3,
            "max_inflight_groups": 4,
            "checkpoint_every": 2,
            "max_staleness": 1,
            "max_restarts": num_restarts,
            "restart_pause_s": 0.0,
        }
    )


def fly(run_dir: Path, arguments: dict[str, Any], launch: Launch) -> dict[str, Any]:
    """The whole run; a folder with a run in it is gone on with."""
    settings = settings_of(arguments.get("mode", "async"), arguments.get("max_restarts", 1000))
    settings = settings.model_copy(update=arguments.get("settings", {}))
    tasks = [
        Task(id=f"t{i}", family=f"f{i}", stratum="s", instruction="x", initial_state="y")
        for i in range(arguments["num_tasks"])
    ]

    def station(settings: TrainingSettings, spec: TrainerSpec) -> GenerationStation:
        return FakeGeneration(arguments.get("seconds", 0.001), arguments.get("fault", ""))

    start = RunStart(run="fake", model="none", settings=settings.model_dump_json())
    (run_dir / "run.json").write_bytes(msgspec.json.encode(start))
    result = run_supervised(
        start,
        run_dir,
        source=PoolSource(tasks, seed=random.Random(0).getrandbits(16), num_rounds=1),
        make_station=station,
        launch=launch,
    )
    return {
        "stopped": result.stopped,
        "consumed": list(result.manifest.consumed),
        "incarnation": result.manifest.incarnation,
        "max_staleness": result.max_staleness,
        "length_bias": result.length_bias,
    }


def serve(connection: Connection) -> None:
    """The fake trainer at the other end."""
    serve_trainer(connection, ListTrainer)


def main(run_dir: Path, num_tasks: int, mode: str, seconds: float, fault: str) -> None:
    run_dir.mkdir(parents=True, exist_ok=True)
    launch = launcher([sys.executable, str(HERE / "fake_trainer.py")], 1)
    arguments = {"num_tasks": num_tasks, "mode": mode, "seconds": seconds, "fault": fault}
    sys.stdout.write(json.dumps(fly(run_dir, arguments, launch)))


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        int(sys.argv[2]),
        sys.argv[3],
        float(sys.argv[4]) if len(sys.argv) > 4 else 0.001,
        sys.argv[5] if len(sys.argv) > 5 else "",
    )
