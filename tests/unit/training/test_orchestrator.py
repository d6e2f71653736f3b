"""What the coordinator tells the trainer, and what it makes of the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from tests.integration.training.fake_trainer import NO_STATS

from flightschool.records import EpisodeGroup, SpanKind, Task, TokenSpan, VersionRun, WeightsVersion
from flightschool.training import PoolSource, TrainingSettings
from flightschool.training.dispatcher import Part
from flightschool.training.incidents import read_incidents
from flightschool.training.messages import (
    Accumulate,
    Accumulated,
    Command,
    Done,
    Ready,
    Reply,
    Step,
    Stepped,
    StepStats,
    TrainerSpec,
)
from flightschool.training.orchestrator import Orchestrator

MakeGroup = Callable[..., EpisodeGroup]
STATS = msgspec.structs.replace(NO_STATS, num_trained_tokens=9, num_forward_tokens=9)


class Listening:
    """A trainer that does nothing but answer."""

    def __init__(self, stats: StepStats = STATS) -> None:
        self.steps: list[Step] = []
        self._stats = stats

    async def ask(self, command: Command) -> Reply:
        match command:
            case Step():
                self.steps.append(command)
                version = WeightsVersion(run="r", incarnation=0, step=len(self.steps))
                return Stepped(version=version, stats=self._stats)
            case Accumulate():
                return Accumulated(num_forward_tokens=1, num_trained_tokens=1, seconds=0.0)
            case _:
                started = Ready(version=WeightsVersion(run="r", incarnation=0, step=0))
                return Done() if self.steps else started

    async def close(self) -> None:
        pass


def sampled_under(step: int) -> tuple[TokenSpan, ...]:
    runs = (VersionRun(step=step, count=2),)
    prompt = TokenSpan(id=0, parent=None, kind=SpanKind.PROMPT, token_ids_T=(1, 2, 3))
    return prompt, TokenSpan(
        id=1, parent=0, kind=SpanKind.COMPLETION, token_ids_T=(4, 5), logprobs_T=(-0.5, -0.5), versions=runs
    )


async def run(
    make_group: MakeGroup, folder: Path, rewards: Sequence[Sequence[float | None]], trainer: Listening, **fields: object
) -> None:
    """A synchronous run whose groups have these rewards, one after the other."""
    waiting = list(rewards)

    async def generated(
        task: Task, group: str, admitted_step: int, seed: int, temperature: float, part: Part
    ) -> EpisodeGroup:
        outcomes = waiting.pop(0)
        spans = [sampled_under(admitted_step)] * len(outcomes)
        made = make_group(outcomes, spans, name=group, admitted_step=admitted_step)
        return msgspec.structs.replace(made, task=task.id)

    table = {"mode": "sync", "max_inflight_groups": 1, "algorithm": "dr_grpo", "num_steps": 1} | fields
    tasks = [Task(id=f"t{i}", family="f", stratum="s", instruction="x", initial_state="y") for i in range(len(rewards))]
    settings = TrainingSettings.model_validate(table)
    spec = TrainerSpec(
        run="r", incarnation=0, step=0, model="", run_dir=str(folder), weights="", settings=settings.model_dump_json()
    )
    source = PoolSource(tasks, num_rounds=1)
    await Orchestrator(settings, spec, source=source, make_group=generated, link=trainer).run()


FLAT, TOLD, LOST = [1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, None, None]


@pytest.mark.parametrize(("counts", "expected"), [(True, 6), (False, 0)])
async def test_members_of_flat_groups_are_told_where_they_count(
    make_group: MakeGroup, tmp_path: Path, counts: bool, expected: int
) -> None:
    trainer = Listening()
    fields = {"count_zero_advantage": counts, "groups_per_step": 4 if counts else 1}
    await run(make_group, tmp_path, [FLAT, LOST, FLAT, TOLD], trainer, **fields)
    assert [step.num_flat_members for step in trainer.steps] == [expected]


async def test_they_count_for_one_step_only(make_group: MakeGroup, tmp_path: Path) -> None:
    trainer = Listening()
    fields = {"count_zero_advantage": True, "groups_per_step": 2, "num_steps": 2}
    await run(make_group, tmp_path, [FLAT, TOLD, TOLD, TOLD], trainer, **fields)
    assert [step.num_flat_members for step in trainer.steps] == [3, 0]


@pytest.mark.parametrize("share", [1.0, 0.5])
async def test_a_step_that_rejects_everything_is_told(make_group: MakeGroup, tmp_path: Path, share: float) -> None:
    trainer = Listening(msgspec.structs.replace(STATS, reject_share=share))
    await run(make_group, tmp_path, [TOLD], trainer, groups_per_step=1, correction="geometric")
    incidents = read_incidents(tmp_path / "incidents.jsonl")
    assert [incident.kind for incident in incidents] == (["rejected"] if share == 1.0 else [])
    if incidents:
        assert "step 0 → 1: all 9 tokens were rejected by correction 'geometric'" in incidents[0].what
