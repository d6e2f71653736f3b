"""Whole runs with a tiny random model, our engine, a real trainer process and published weights."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from tests.integration.training.bandit import BanditRunner

from flightschool.engines import CausalAttention, load_model
from flightschool.errors import ConfigError, FlightschoolError, InfrastructureError, InputError
from flightschool.records import (
    Attempt,
    Effect,
    EpisodeGroup,
    GroupState,
    Message,
    Milestone,
    MilestoneCheck,
    SpanKind,
    Task,
    ToolCall,
    ToolEvent,
    ToolResult,
)
from flightschool.rollouts import EpisodeEndError, Policy
from flightschool.training import PoolSource, TaskNotes, TrainingSettings, TrainResult, resume, train
from flightschool.training.credits import read_credits
from flightschool.training.folders import RunFolder, shared_path
from flightschool.training.journal import Finished, read_journal
from flightschool.training.model_export import export_model
from flightschool.training.progress import StepProgress, read_metrics

pytestmark = [pytest.mark.integration, pytest.mark.long]
TASKS = [Task(id=f"t{i}", family=f"f{i}", stratum="s", instruction=f"go {i}", initial_state="") for i in range(3)]


def settings(**fields: Any) -> TrainingSettings:
    base = {"learning_rate": 3e-3, "max_new_tokens": 8, "groups_per_step": 2, "num_steps": 6, "max_inflight_groups": 3}
    return TrainingSettings.model_validate(base | fields)


def run(
    folder: Path, model: Path, fields: dict[str, Any], runner: BanditRunner | None = None
) -> tuple[TrainResult, list[StepProgress]]:
    rows: list[StepProgress] = []
    result = train(
        settings(**fields),
        model=model,
        run_dir=folder,
        source=PoolSource(TASKS),
        runner=runner or BanditRunner(),
        progress=rows.append,
        unaudited="a test",
    )
    return result, rows


def groups_of(folder: Path) -> Sequence[EpisodeGroup]:
    return [entry.group for entry in read_journal(RunFolder(folder).journal) if isinstance(entry, Finished)]


def test_an_asynchronous_run_learns_within_its_staleness_bound(tiny_folder: Path, tmp_path: Path) -> None:
    result, rows = run(tmp_path / "run", tiny_folder, {"num_steps": 25})
    assert result.stopped == "steps done"
    assert [row.step for row in rows] == list(range(1, 26))
    assert max(row.staleness_max for row in rows) == result.max_staleness <= 1
    first, last = (sum(row.reward_outcome for row in part) / 5 for part in (rows[:5], rows[-5:]))
    assert last > first + 0.15
    assert {r.step for g in groups_of(tmp_path / "run") for m in g.members for s in m.spans for r in s.versions} > {
        0,
        5,
    }
    lines = (tmp_path / "run" / "metrics.jsonl").read_bytes().splitlines()
    assert msgspec.json.decode(lines[-1], type=StepProgress) == rows[-1]
    assert load_model(Path(result.model)).digest == result.model_digest
    fresh = [row for row in rows if row.staleness_max == 0]
    assert fresh
    assert max(row.stats.max_abs_mismatch for row in fresh) < 1e-4


@pytest.mark.parametrize("separate", [True, False])
def test_two_synchronous_runs_are_equal_byte_for_byte(tiny_folder: Path, tmp_path: Path, separate: bool) -> None:
    fields = {"mode": "sync", "separate_process": separate, "num_steps": 3}
    results = [run(tmp_path / name, tiny_folder, fields) for name in ("a", "b")]
    (first, rows_a), (second, rows_b) = results
    encoded = [[msgspec.json.encode(g) for g in groups_of(tmp_path / name)] for name in ("a", "b")]
    assert encoded[0] == [line.replace(b"run:b", b"run:a") for line in encoded[1]]
    assert [(r.stats.loss, r.stats.grad_norm) for r in rows_a] == [(r.stats.loss, r.stats.grad_norm) for r in rows_b]
    assert first.model_digest == second.model_digest
    assert max(row.staleness_max for row in rows_a) == 0
    assert max(row.stats.max_abs_mismatch for row in rows_a) < 1e-4


def test_a_failed_run_says_why_and_goes_on(tiny_folder: Path, tmp_path: Path) -> None:
    fields = {"mode": "sync", "checkpoint_every": 1, "max_restarts": 0}
    with pytest.raises(InfrastructureError, match="the world broke"):
        run(tmp_path / "run", tiny_folder, fields, BanditRunner(die_after=5))
    with pytest.raises(InputError, match="exists"):
        run(tmp_path / "run", tiny_folder, fields)
    result = resume(tmp_path / "run", source=PoolSource(TASKS), runner=BanditRunner())
    ordinals = [int(name[1:].split(".")[0]) for name in result.manifest.consumed]
    assert result.manifest.step == 6
    assert result.manifest.incarnation == 1
    assert sorted(ordinals) == list(range(len(ordinals)))
    assert resume(tmp_path / "run", source=PoolSource(TASKS), runner=BanditRunner()) == result


class TooLargeRunner(BanditRunner):
    """Outcomes whose gradient no float32 can hold."""

    async def _attempt(self, task: Task, policy: Policy, group: str, index: int, seed: int) -> Attempt:
        attempt = await super()._attempt(task, policy, group, index, seed)
        assert attempt.reward is not None
        huge = msgspec.structs.replace(attempt.reward, outcome=attempt.reward.outcome * 3e38)
        return msgspec.structs.replace(attempt, reward=huge)


def test_a_run_stops_after_three_steps_that_are_not_finite(tiny_folder: Path, tmp_path: Path) -> None:
    """The model is left as it was, the batches are kept, and the run's figures can still be read."""
    fields = {"mode": "sync", "separate_process": False, "algorithm": "dr_grpo", "max_restarts": 0}
    with pytest.raises(FlightschoolError, match="3 steps in a row were skipped: loss or gradient not finite"):
        run(tmp_path / "run", tiny_folder, fields, TooLargeRunner())
    kept = [msgspec.msgpack.decode(path.read_bytes()) for path in sorted((tmp_path / "run" / "kept").iterdir())]
    assert [len(groups) for groups in kept] == [2, 2, 2]
    rows = read_metrics(RunFolder(tmp_path / "run").metrics)
    assert [(row.step, row.skipped) for row in rows] == [(0, True)] * 3
    assert not RunFolder(tmp_path / "run").model.exists()


def test_a_reward_that_is_no_number_is_named(tiny_folder: Path, tmp_path: Path) -> None:
    fields = {"mode": "sync", "separate_process": False}
    with pytest.raises(FlightschoolError, match="a reward is not a finite number") as caught:
        run(tmp_path / "run", tiny_folder, fields, BanditRunner(bonus=math.nan))
    assert caught.value.where.startswith("g00000")


def test_the_temperature_rises_with_success_and_the_trainer_scores_under_the_same(
    tiny_folder: Path, tmp_path: Path
) -> None:
    fields = {"mode": "sync", "num_steps": 4, "initial_temperature": 0.5, "temperature_rise": 0.25}
    _, rows = run(tmp_path / "run", tiny_folder, fields, BanditRunner(bonus=1.0))
    sampled = {
        group.admitted_step: {s.temperature for m in group.members for s in m.spans if s.kind is SpanKind.COMPLETION}
        for group in groups_of(tmp_path / "run")
    }
    assert sampled == {0: {0.5}, 1: {0.75}, 2: {1.0}, 3: {1.0}}
    assert [row.temperature for row in rows] == [0.5, 0.75, 1.0, 1.0]
    assert max(row.stats.max_abs_mismatch for row in rows) < 1e-4


class WalkRunner(BanditRunner):
    """Two turns; a turn whose first sampled token is even calls the tool that the next milestone asks for."""

    RULE = MilestoneCheck(
        milestones=(Milestone(id="first", tool="step"), Milestone(id="second", tool="step", after=("first",)))
    )

    async def _attempt(self, task: Task, policy: Policy, group: str, index: int, seed: int) -> Attempt:
        attempt = await super()._attempt(task, policy, group, index, seed)
        endpoint = policy.endpoint(task, seed + index, group)
        said = [Message(role="user", content=task.instruction)]
        for turn in range(2):
            with contextlib.suppress(EpisodeEndError):
                said.append(await endpoint.complete(said, ()))
            said.append(Message(role="user", content=f"and {turn}"))
        spans = endpoint.spans()
        endpoint.close()
        firsts = {span.turn: span.token_ids_T[0] for span in spans if span.kind is SpanKind.COMPLETION}
        events = tuple(
            ToolEvent(
                index=turn,
                turn=turn,
                call=ToolCall(id=f"c{turn}", name="step" if token % 2 == 0 else "stray", arguments={}),
                result=ToolResult(call_id=f"c{turn}", content="{}"),
                effect=Effect.READ,
                start_ms=0.0,
                end_ms=1.0,
            )
            for turn, token in sorted(firsts.items())
        )
        return msgspec.structs.replace(attempt, spans=spans, events=events)


def test_progress_towards_milestones_trains_single_turns_and_every_term_is_kept(
    tiny_folder: Path, tmp_path: Path
) -> None:
    """Process credits reach the loss: the same groups with and without them end in other weights."""
    fields = {"mode": "sync", "separate_process": False, "num_steps": 3, "max_new_tokens": 4}
    notes = TaskNotes(milestones_of=lambda task: [(1.0, WalkRunner.RULE)])
    made: dict[str, str] = {}
    for name, weight in (("plain", 0.0), ("shaped", 0.5)):
        more = {"turn_weight": weight, "turn_quality": "milestones"}
        result = train(
            settings(**fields, **more),
            model=tiny_folder,
            run_dir=tmp_path / name,
            source=PoolSource(TASKS),
            runner=WalkRunner(),
            notes=notes,
            unaudited="a test",
        )
        made[name] = result.model_digest
    assert made["plain"] != made["shaped"]
    plain, shaped = (read_credits(RunFolder(tmp_path / name).credits) for name in ("plain", "shaped"))
    assert {row.group for row in shaped} >= set(result.manifest.consumed)
    turns = {n: [row.reward_turns for row in read_metrics(RunFolder(tmp_path / n).metrics)] for n in made}
    assert set(turns["plain"]) == {0.0}  # not judged
    assert all(-1.0 <= value < 0.0 for value in turns["shaped"])
    first, again = plain[0], shaped[0]
    assert [m.advantage for m in first.members] == [m.advantage for m in again.members]
    assert not any(member.turns for member in first.members)
    assert any(0.0 < abs(value) <= 0.5 for member in again.members for value in member.turns.values())
    for row in shaped:
        for member in row.members:
            assert sum(member.terms.values()) == pytest.approx(member.advantage)
            told = {turn: member.advantage + value for turn, value in member.turns.items()}
            assert sorted(told.values()) == pytest.approx(sorted(member.spans.values()))


def test_milestones_that_no_one_declared_are_refused(tiny_folder: Path, tmp_path: Path) -> None:
    fields = {"mode": "sync", "separate_process": False, "turn_weight": 0.5, "turn_quality": "milestones"}
    with pytest.raises(ConfigError, match="no milestones of tasks are known"):
        run(tmp_path / "run", tiny_folder, fields)


def test_watched_groups_are_consumed_and_teach_nothing(tiny_folder: Path, tmp_path: Path) -> None:
    fields = {"mode": "sync", "separate_process": False, "num_steps": 2}
    train(
        settings(**fields),
        model=tiny_folder,
        run_dir=tmp_path / "run",
        source=PoolSource(TASKS),
        runner=BanditRunner(),
        notes=TaskNotes(untrained=frozenset({"t1"})),
        unaudited="a test",
    )
    rows = read_credits(RunFolder(tmp_path / "run").credits)
    states = {row.task: row.state for row in rows}
    assert states["t1"] is GroupState.ZERO_ADVANTAGE
    assert {states["t0"], states["t2"]} == {GroupState.COMPLETE}


def test_a_low_rank_run_in_bf16_serves_what_it_trained_and_exports_it(tiny_folder: Path, tmp_path: Path) -> None:
    fields = {"mode": "sync", "num_steps": 3, "lora_rank": 4, "dtype": "bfloat16", "checkpoint_every": 1}
    _, rows = run(tmp_path / "run", tiny_folder, fields)
    assert max(row.stats.fresh_mismatch for row in rows) < 0.03
    for step in (None, 2):
        folder = tmp_path / f"model-{step}"
        export_model(tmp_path / "run", folder, step)
        loaded = load_model(folder, dtype=torch.bfloat16).model
        before = load_model(tiny_folder, dtype=torch.bfloat16).model
        moved = [not torch.equal(a, b) for a, b in zip(loaded.parameters(), before.parameters(), strict=True)]
        assert any(moved)
        assert not all(moved)
    final = load_model(tmp_path / "run" / "model")
    assert final.digest == load_model(tmp_path / "model-None").digest


@pytest.mark.parametrize("rank", [0, 2], ids=["full", "lora"])
def test_an_exported_model_has_the_same_logits_elsewhere(tiny_folder: Path, tmp_path: Path, rank: int) -> None:
    import transformers

    run(tmp_path / "run", tiny_folder, {"mode": "sync", "num_steps": 2, "lora_rank": rank})
    export_model(tmp_path / "run", tmp_path / "served")
    before = dict(load_model(tiny_folder).model.named_parameters())
    after = load_model(tmp_path / "served").model.named_parameters()
    assert any(not torch.equal(tensor, before[name]) for name, tensor in after)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "served", dtype=torch.float32).eval()
    ours = load_model(tmp_path / "served").model
    tokens = torch.randint(0, 256, (25,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        mine = ours.logits(ours(tokens, torch.arange(25), CausalAttention([25])))
        torch.testing.assert_close(mine, theirs(tokens[None]).logits[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("publication", ["safetensors", "broadcast"])
def test_a_run_publishes_in_other_ways(tiny_folder: Path, tmp_path: Path, publication: str) -> None:
    _, rows = run(tmp_path / "run", tiny_folder, {"mode": "sync", "num_steps": 2, "publication": publication})
    assert max(row.stats.max_abs_mismatch for row in rows) < 1e-4
    weights = shared_path(tmp_path / "run", 0)
    assert list(weights.parent.glob(f"*{weights.stem}*")) == []
