"""Imitation is cross-entropy on the demonstrated tokens and on nothing else."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
import torch
import torch.nn.functional as F

from flightschool.engines import CausalAttention, load_model
from flightschool.errors import InputError, TokenContractError
from flightschool.records import Attempt, EpisodeGroup, SpanKind, TokenSpan
from flightschool.training import ALGORITHMS, TermWeights, TrainingSettings
from flightschool.training.crediting import train_group
from flightschool.training.imitation import ImitationSettings, _batches, _spec, imitate
from flightschool.training.messages import TrainGroup, TrainMember
from flightschool.training.packing import pack_group

MakeGroup = Callable[..., EpisodeGroup]
MakeSpans = Callable[..., tuple[TokenSpan, ...]]


def demonstrated(spans: Sequence[TokenSpan]) -> tuple[TokenSpan, ...]:
    """The same tokens, said by an operator."""
    return tuple(
        TokenSpan(id=s.id, parent=s.parent, kind=SpanKind.DEMONSTRATION, token_ids_T=s.token_ids_T, turn=s.turn)
        if s.kind is SpanKind.COMPLETION
        else s
        for s in spans
    )


@pytest.fixture
def shown(make_group: MakeGroup, make_spans: MakeSpans) -> list[Attempt]:
    rows = [
        make_spans(prompt=(9, 20, 30), turns=(((40, 41, 42), (50, 51)), ((60, 61), ()))),
        make_spans(prompt=(9, 20, 31, 32), turns=(((70,), (52,)), ((44, 45, 46), ()))),
        make_spans(prompt=(8, 21), turns=(((99, 98), (51,)),)),
    ]
    return list(make_group([1.0] * 3, [demonstrated(row) for row in rows]).members)


def test_demonstrated_tokens_are_targets_that_nobody_sampled(make_spans: MakeSpans) -> None:
    member = TrainMember(attempt="a", advantage=1.0, spans=demonstrated(make_spans()))
    [pack] = pack_group(TrainGroup(id="g", members=(member,)), newest_step=0)
    assert [(t.predictor, t.token_id, t.logprob) for t in pack.targets] == [(2, 4, None), (3, 5, None), (5, 7, None)]


def test_one_step_is_one_of_plain_cross_entropy(tiny_folder: Path, tmp_path: Path, shown: list[Attempt]) -> None:
    settings = ImitationSettings(epochs=1, batch_size=3, learning_rate=1e-3)
    result = imitate(
        settings, TrainingSettings(max_grad_norm=1e9), model=tiny_folder, out=tmp_path / "out", demonstrations=shown
    )

    model = load_model(tiny_folder).model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    losses = []
    for attempt in shown:
        ids = torch.tensor(list(itertools.chain.from_iterable(s.token_ids_T for s in attempt.spans)))
        trains = torch.tensor([s.kind is SpanKind.DEMONSTRATION for s in attempt.spans for _ in s.token_ids_T])
        logits = model.logits(model(ids, torch.arange(len(ids)), CausalAttention([len(ids)])))
        losses.append(F.cross_entropy(logits[:-1], ids[1:], reduction="none")[trains[1:]])
    loss = torch.cat(losses)
    assert list(result.surprisals) == pytest.approx([float(loss.detach().mean())], abs=1e-5)
    assert result.num_trained_tokens == loss.numel() == 11
    torch.autograd.backward(loss.mean())
    optimizer.step()

    made = dict(load_model(tmp_path / "out").model.named_parameters())
    for name, expected in model.named_parameters():
        # Adam's first step is the sign of the gradient times the rate, so a gradient near 0 magnifies rounding
        torch.testing.assert_close(made[name], expected, atol=5e-5, rtol=0.0)


def test_imitating_makes_the_demonstrations_likelier(tiny_folder: Path, tmp_path: Path, shown: list[Attempt]) -> None:
    ticks: list[tuple[int, int]] = []
    result = imitate(
        ImitationSettings(epochs=12, batch_size=2, learning_rate=1e-2),
        TrainingSettings(),
        model=tiny_folder,
        out=tmp_path / "out",
        demonstrations=shown,
        progress=lambda number, total, _: ticks.append((number, total)),
    )
    assert ticks == [(number, 24) for number in range(1, 25)]
    assert sum(result.surprisals[-2:]) < 0.5 * sum(result.surprisals[:2])
    assert result.demonstrations == tuple(attempt.digest for attempt in shown)
    assert json.loads((tmp_path / "out" / "imitation.json").read_text())["model_digest"] == result.model_digest
    assert load_model(tmp_path / "out").digest == result.model_digest


def test_a_finished_imitation_is_not_done_again(tiny_folder: Path, tmp_path: Path, shown: list[Attempt]) -> None:
    settings = ImitationSettings(epochs=1)
    first = imitate(settings, TrainingSettings(), model=tiny_folder, out=tmp_path / "out", demonstrations=shown)
    weights = (tmp_path / "out" / "model.safetensors").stat().st_mtime_ns
    again = imitate(settings, TrainingSettings(), model=tiny_folder, out=tmp_path / "out", demonstrations=shown)
    assert again == first
    assert (tmp_path / "out" / "model.safetensors").stat().st_mtime_ns == weights


def test_every_pass_holds_every_demonstration_once(shown: list[Attempt]) -> None:
    batches = list(_batches(shown, ImitationSettings(epochs=3, batch_size=2), seed=5))
    assert [sum(len(group.members) for group in batch) for batch in batches] == [1, 2] * 3
    for number in range(3):
        groups = [group for batch in batches[2 * number : 2 * number + 2] for group in batch]
        seen = [member.attempt for group in groups for member in group.members]
        assert sorted(seen) == sorted(attempt.id for attempt in shown)


def test_demonstrations_that_open_alike_are_one_group(
    shown: list[Attempt], make_group: MakeGroup, make_spans: MakeSpans
) -> None:
    alike = demonstrated(make_spans(prompt=(9, 20, 30, 77), turns=(((47, 48), ()),)))
    kin = msgspec.structs.replace(make_group([1.0], [alike]).members[0], id="kin")
    [[*groups]] = _batches([*shown, kin], ImitationSettings(epochs=1, batch_size=8), seed=5)
    ids = sorted([member.attempt for member in group.members] for group in groups)
    assert ids == [[shown[0].id, shown[1].id, "kin"], [shown[2].id]]


def test_what_failed_or_was_sampled_is_refused(
    tiny_folder: Path, tmp_path: Path, make_group: MakeGroup, shown: list[Attempt]
) -> None:
    def start(*attempts: Attempt) -> None:
        imitate(
            ImitationSettings(epochs=1),
            TrainingSettings(),
            model=tiny_folder,
            out=tmp_path / "o",
            demonstrations=attempts,
        )

    failed = msgspec.structs.replace(shown[0], reward=make_group([0.0, 1.0]).members[0].reward)
    with pytest.raises(InputError, match="did not succeed"):
        start(failed)
    with pytest.raises(InputError, match="demonstrates nothing"):
        start(*make_group([1.0, 1.0]).members)
    with pytest.raises(InputError, match="nothing to imitate"):
        start()
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"kl_weight": 0.1, "kl_reference": "sampling", "kl_estimator": "k1"},
        {"algorithm": "dapo", "overlong_limit": 100},
        {"correction": "icepop", "reject_low": 0.4},
    ],
)
def test_what_reinforcement_adds_has_no_part_in_it(tmp_path: Path, fields: dict[str, object]) -> None:
    training = TrainingSettings.model_validate(fields)
    spec = _spec(ImitationSettings(learning_rate=1e-4), training, tmp_path / "model", tmp_path / "out", 1)
    assert TrainingSettings.model_validate_json(spec.settings) == TrainingSettings(learning_rate=1e-4)


def test_reinforcement_refuses_demonstrations(make_group: MakeGroup, make_spans: MakeSpans) -> None:
    group = make_group([1.0, 0.0], [make_spans(), demonstrated(make_spans())])
    credits_ = ALGORITHMS["grpo"].credits(group, TermWeights())
    assert len(credits_.credits) == 2
    with pytest.raises(TokenContractError, match="demonstrated"):
        train_group(group, credits_, None)
    sampled = make_group([1.0, 0.0])
    assert len(train_group(sampled, credits_, None).members) == 2
