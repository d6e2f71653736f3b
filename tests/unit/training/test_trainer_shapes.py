"""The trainer with shapes beyond the default: one scale for the step, a reference model; and what it refuses to
train."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from flightschool.engines import CausalAttention, Transformer, load_model
from flightschool.errors import TokenContractError
from flightschool.records import SpanKind, TokenSpan, VersionRun
from flightschool.training.messages import TrainerSpec, TrainGroup, TrainMember
from flightschool.training.settings import TrainingSettings
from flightschool.training.trainer import TorchTrainer

PROMPT = (9, 20, 30, 41)


def station(folder: Path, run_dir: Path, step: int = 0, **settings: object) -> TorchTrainer:
    full = TrainingSettings.model_validate({"learning_rate": 1e-2, "max_new_tokens": 8, **settings})
    return TorchTrainer(
        TrainerSpec(
            run="r",
            incarnation=0,
            step=step,
            model=str(folder),
            run_dir=str(run_dir),
            weights="",
            settings=full.model_dump_json(),
        )
    )


def sampled_by(
    model: Transformer, seed: int, *, version: int, advantages: Sequence[float], length: int = 6
) -> TrainGroup:
    """Random tokens with the log-probabilities that ``model`` gives them, said to be of ``version``."""
    generator = torch.Generator().manual_seed(seed)
    members = []
    for index, advantage in enumerate(advantages):
        tokens = torch.randint(0, 300, (length,), generator=generator).tolist()
        ids = torch.tensor([*PROMPT, *tokens])
        with torch.no_grad():
            hidden = model(ids, torch.arange(len(ids)), CausalAttention([len(ids)]))
            rows = model.logits(hidden[:-1]).log_softmax(-1).gather(1, ids[1:, None]).squeeze(1)
        spans = (
            TokenSpan(id=0, parent=None, kind=SpanKind.PROMPT, token_ids_T=PROMPT),
            TokenSpan(
                id=1,
                parent=0,
                kind=SpanKind.COMPLETION,
                token_ids_T=tuple(tokens),
                logprobs_T=tuple(rows[len(PROMPT) - 1 :].tolist()),
                versions=(VersionRun(step=version, count=length),),
                kv_step=version,
            ),
        )
        members.append(TrainMember(attempt=f"a{index}", advantage=advantage, spans=spans))
    return TrainGroup(id=f"g{seed}", members=tuple(members))


def gradients(trainer: TorchTrainer) -> list[torch.Tensor]:
    return [p.grad.clone() for p in trainer.model.parameters() if p.grad is not None]


def test_reinforce_pp_divides_the_step_by_the_spread_of_all_its_advantages(tiny_folder: Path, tmp_path: Path) -> None:
    model = load_model(tiny_folder).model
    rows = [[0.75, -0.25, -0.25, -0.25], [0.5, -0.5]]
    groups = [sampled_by(model, seed, version=0, advantages=row) for seed, row in enumerate(rows)]
    scale = math.sqrt(sum(a * a for a in itertools.chain.from_iterable(rows)) / 6)
    norms = {}
    for name in ("grpo", "reinforce_pp"):
        trainer = station(tiny_folder, tmp_path, algorithm=name)
        for group in groups:
            trainer.accumulate(group)
        norms[name] = trainer.step().stats
    assert norms["reinforce_pp"].advantage_scale == pytest.approx(scale)
    assert norms["reinforce_pp"].grad_norm == pytest.approx(norms["grpo"].grad_norm / scale, rel=1e-4)
    assert norms["reinforce_pp"].loss == pytest.approx(norms["grpo"].loss / scale, abs=1e-6)


def test_a_sequence_mean_is_divided_by_members(tiny_folder: Path, tmp_path: Path) -> None:
    group = sampled_by(load_model(tiny_folder).model, 1, version=0, advantages=[1.0, -0.5, 0.25])
    trainer = station(tiny_folder, tmp_path, algorithm="gspo")
    trainer.accumulate(group)
    assert trainer.step().stats.loss == pytest.approx(-(1.0 - 0.5 + 0.25) / 3, abs=1e-5)  # on policy every ratio is 1


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_the_divergence_from_the_start_pulls_back(tiny_folder: Path, tmp_path: Path, estimator: str) -> None:
    start = load_model(tiny_folder).model
    group = sampled_by(start, 2, version=0, advantages=[1.0, -1.0])
    pulled = station(tiny_folder, tmp_path, kl_weight=5.0, kl_estimator=estimator, max_staleness=16)
    free = station(tiny_folder, tmp_path, max_staleness=16)
    for trainer in (pulled, free):
        trainer.accumulate(group)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(gradients(pulled), gradients(free), strict=True))
    assert pulled.step().stats.kl == pytest.approx(0.0, abs=1e-5)  # nothing has moved yet
    free.step()
    for _ in range(6):
        for trainer in (pulled, free):
            trainer.accumulate(group)
            trainer.step()
    away = [distance(trainer.model, start, group) for trainer in (pulled, free)]
    assert 0.0 <= away[0] < 0.5 * away[1]


def distance(model: Transformer, start: Transformer, group: TrainGroup) -> float:
    """Mean k3 on the group's tokens."""
    values = []
    for member in group.members:
        ids = torch.tensor([*PROMPT, *member.spans[1].token_ids_T])
        with torch.no_grad():
            rows = [
                m.logits(m(ids, torch.arange(len(ids)), CausalAttention([len(ids)]))[:-1])
                .log_softmax(-1)
                .gather(1, ids[1:, None])[len(PROMPT) - 1 :]
                for m in (model, start)
            ]
        d = rows[0] - rows[1]
        values.append(float((torch.expm1(-d) + d).mean()))
    return sum(values) / len(values)


# -------------------------------------------------------------------------------------------- self-tests of asynchrony


def test_a_group_beyond_the_bound_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    group = sampled_by(load_model(tiny_folder).model, 3, version=2, advantages=[1.0, -1.0])
    station(tiny_folder, tmp_path, step=3).accumulate(group)
    with pytest.raises(TokenContractError, match="version 2 would train at version 4"):
        station(tiny_folder, tmp_path, step=4).accumulate(group)


def test_tokens_of_old_weights_that_are_called_new_stop_the_run(tiny_folder: Path, tmp_path: Path) -> None:
    """A lost publication: the engine goes on under the first weights and tags its tokens with the second version."""
    start = load_model(tiny_folder).model
    advantages = [1.0, -1.0] * 4
    for said, stops in ((0, False), (1, True)):
        trainer = station(tiny_folder, tmp_path)
        trainer.accumulate(sampled_by(start, 4, version=0, advantages=advantages, length=40))
        first = trainer.step().stats
        assert first.fresh_mismatch < 1e-4
        trainer.accumulate(sampled_by(start, 5, version=said, advantages=advantages, length=40))
        if stops:
            with pytest.raises(TokenContractError, match="said to be of the newest weights"):
                trainer.step()
        else:
            second = trainer.step().stats
            assert second.stale_mismatch > 0.12
            assert second.fresh_mismatch == 0.0


def test_switching_the_correction_off_changes_the_step(tiny_folder: Path, tmp_path: Path) -> None:
    start = load_model(tiny_folder).model
    made = {}
    for correction in ("tis", "none"):
        trainer = station(tiny_folder, tmp_path, correction=correction)
        for seed in (6, 7):  # the second group is one version old when it trains
            trainer.accumulate(sampled_by(start, seed, version=0, advantages=[1.0, -1.0] * 3, length=20))
            made[correction] = torch.cat([g.flatten() for g in gradients(trainer)])
            if seed == 6:
                trainer.step()
    gap = float((made["tis"] - made["none"]).norm() / made["none"].norm())
    assert gap > 0.05
