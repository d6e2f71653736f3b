"""Experts chosen in generation are replayed in training: what that does to the mismatch of an engine in bf16."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
import torch
from tests.unit.engines.test_experts import CONFIG, model_of
from tests.unit.training.test_trainer import trainer

from flightschool.engines import ChatTokenizer, TorchEngine, load_model, save_model
from flightschool.records import Message, SpanKind, TokenSpan
from flightschool.rollouts import EpisodeEndError, Sampling
from flightschool.rollouts.session import Session
from flightschool.training.folders import BlobFolder, RunFolder
from flightschool.training.messages import StepStats, TrainGroup, TrainMember


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Path:
    """A model of GLM-4.5's type with random weights."""
    root = tmp_path_factory.mktemp("experts")
    save_model(model_of(), root / "model", tokenizer=ChatTokenizer.from_folder(tiny_folder))
    return root / "model"


def sampled(folder: Path, run_dir: Path, dtype: torch.dtype, size: int = 8) -> TrainGroup:
    """A group of conversations of two turns, sampled by the engine in ``dtype``; experts are kept as in a run."""
    loaded = load_model(folder, dtype=dtype)
    engine = TorchEngine(loaded, max_context=CONFIG.max_context)
    keep = BlobFolder(RunFolder(run_dir).routing).put

    async def member(index: int) -> tuple[TokenSpan, ...]:
        session = Session(str(index), engine, loaded.tokenizer, Sampling(max_new_tokens=12), 10 * index, keep)
        messages = [Message(role="user", content="find the owner")]
        for said in ("and the backup", ""):
            with contextlib.suppress(EpisodeEndError):
                reply = await session.complete(messages, ())
                messages += [reply, Message(role="user", content=said)]
                continue
            text = loaded.tokenizer.decode(session.spans()[-1].token_ids_T)
            messages += [Message(role="assistant", content=text), Message(role="user", content=said)]
        return session.spans()

    async def group() -> list[tuple[TokenSpan, ...]]:
        return list(await asyncio.gather(*(member(index) for index in range(size))))

    spans = asyncio.run(group())
    engine.close()
    members = tuple(
        TrainMember(attempt=f"a{i}", advantage=1.0 if i % 2 else -1.0, spans=rows) for i, rows in enumerate(spans)
    )
    return TrainGroup(id="g", members=members)


def stats_of(folder: Path, run_dir: Path, group: TrainGroup, **settings: object) -> StepStats:
    station = trainer(folder, run_dir, None, 0, mismatch_floor=10.0, max_new_tokens=12, max_context=128, **settings)
    station.accumulate(group)
    return station.step().stats


def test_every_token_that_the_trainer_computes_has_its_experts(folder: Path, tmp_path: Path) -> None:
    group = sampled(folder, tmp_path, torch.float32)
    assert all(span.routing_ref for member in group.members for span in member.spans)
    assert {span.kind for member in group.members for span in member.spans} >= {SpanKind.PROMPT, SpanKind.OBSERVATION}
    stats = stats_of(folder, tmp_path, group)
    assert stats.replayed_share == 1.0
    assert stats.max_abs_mismatch < 1e-4
    assert stats_of(folder, tmp_path, group, routing_replay=False).replayed_share == 0.0


def test_a_replay_takes_the_experts_out_of_the_mismatch(folder: Path, tmp_path: Path) -> None:
    group = sampled(folder, tmp_path, torch.bfloat16)
    with_, without = (stats_of(folder, tmp_path, group, routing_replay=replay) for replay in (True, False))
    assert with_.k3 < 0.8 * without.k3, (with_, without)
    assert with_.fresh_mismatch < without.fresh_mismatch
    assert with_.max_abs_mismatch < without.max_abs_mismatch


def test_layers_computed_again_replay_again(folder: Path, tmp_path: Path) -> None:
    group = sampled(folder, tmp_path, torch.float32, size=3)
    plain, spare = (stats_of(folder, tmp_path, group, gradient_checkpointing=spare) for spare in (False, True))
    assert plain.loss == pytest.approx(spare.loss, abs=1e-6)
    assert plain.grad_norm == pytest.approx(spare.grad_norm, rel=1e-5)
