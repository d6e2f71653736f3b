"""The generic trainer against plain torch, sequence by sequence, and against our own trainer."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import transformers
from tests.foreign import FOREIGN, foreign_folder
from tests.trained import trainer_spec
from tests.unit.training.test_trainer import SHAPES, random_group
from tests.unit.training.test_trainer import trainer as own_trainer
from torch import Tensor

from flightschool.engines.hf_folders import load_hf_model
from flightschool.engines.plain_pass import PlainPass, layers_of, trained_parameters
from flightschool.records import SpanKind
from flightschool.training.algorithms import LossShape
from flightschool.training.generic import GenericTrainer
from flightschool.training.loss import Members, policy_loss
from flightschool.training.messages import Manifest, TrainGroup
from flightschool.training.publisher import WeightsReader

MakeFolder = Callable[[str], Path]


@pytest.fixture(scope="module")
def make_folder(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> MakeFolder:
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = foreign_folder(name, tiny_folder, tmp_path_factory.mktemp(name) / "model")
        return made[name]

    return make


def generic(
    folder: Path, run_dir: Path, checkpoint: Path | None = None, step: int = 0, **settings: object
) -> GenericTrainer:
    run_dir.mkdir(exist_ok=True)
    return GenericTrainer(trainer_spec(folder, run_dir, checkpoint, step, **settings))


def tempered(group: TrainGroup, temperature: float) -> TrainGroup:
    """The group with completions that were sampled at a temperature, its third member without an advantage."""
    members = [
        msgspec.structs.replace(
            member,
            advantage=0.0 if place == 3 else member.advantage,
            spans=tuple(msgspec.structs.replace(span, temperature=temperature) for span in member.spans),
        )
        for place, member in enumerate(group.members)
    ]
    return msgspec.structs.replace(group, members=tuple(members))


def plain_losses(model: Any, groups: list[TrainGroup], shape: LossShape) -> Tensor:
    """The naive way: ``model(ids).logits`` of each root-leaf path, spans counted once, member by member."""
    total = torch.zeros(())
    for member in (member for group in groups for member in group.members):
        by_id = {span.id: span for span in member.spans}
        parents = {span.parent for span in member.spans}
        sampled: dict[int, Tensor] = {}
        for leaf in (span for span in member.spans if span.id not in parents):
            path = [leaf]
            while path[-1].parent is not None:
                path.append(by_id[path[-1].parent])
            path.reverse()
            ids = torch.tensor(list(itertools.chain.from_iterable(span.token_ids_T for span in path)))
            logits_TV = model(input_ids=ids[None]).logits[0, :-1]
            place = 0
            for span in path:
                size = len(span.token_ids_T)
                if span.kind is SpanKind.COMPLETION and span.id not in sampled:
                    scaled = logits_TV[place - 1 : place - 1 + size] / span.temperature
                    chosen = torch.tensor(span.token_ids_T)[:, None]
                    sampled[span.id] = scaled.log_softmax(-1).gather(1, chosen).squeeze(1)
                place += size
        mine = torch.cat(list(sampled.values()))
        behaviour = torch.cat([torch.tensor(by_id[id_].logprobs_T) for id_ in sampled])
        one = Members(torch.zeros(len(mine), dtype=torch.long))
        advantages = torch.full_like(mine, member.advantage)
        total = total + policy_loss(mine, mine, behaviour, advantages, shape, members=one)[0]
    return total


@pytest.mark.parametrize(
    ("name", "shape", "max_tokens"),
    [*((name, "grpo", 1280) for name in FOREIGN), ("gpt2", "gspo", 30), ("gemma2", "sequence", 30)],
)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_losses_and_gradients_are_those_of_plain_sequences(
    make_folder: MakeFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    shape: str,
    max_tokens: int,
    temperature: float,
) -> None:
    monkeypatch.setattr("flightschool.training.head.HEAD_CHUNK", 7)
    station = generic(make_folder(name), tmp_path / "run", max_pack_tokens=max_tokens)
    station._algorithm = dataclasses.replace(station._algorithm, shape=SHAPES[shape])
    groups = [tempered(random_group(seed), temperature) for seed in (0, 1)]
    plain = transformers.AutoModelForCausalLM.from_pretrained(make_folder(name)).eval()
    expected = plain_losses(plain, groups, SHAPES[shape])
    expected.backward()  # type: ignore[no-untyped-call]

    done = station.accumulate(*groups)
    spans = [span for group in groups for member in group.members for span in member.spans]
    sampled = sum(len(span.token_ids_T) for span in spans if span.kind is SpanKind.COMPLETION)
    assert done.num_trained_tokens == sampled  # a shared span once, whatever paths go through it
    assert station._sums.loss == pytest.approx(float(expected.detach()), abs=1e-5, rel=2e-6)
    wanted = {key: parameter.grad for key, parameter in plain.named_parameters()}
    for key, parameter in station.model.named_parameters():
        found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        like = wanted[key]
        scale = 1.0 if like is None else max(1.0, float(like.abs().max()))
        torch.testing.assert_close(
            found, torch.zeros_like(found) if like is None else like, atol=1e-5 * scale, rtol=1e-4
        )


@pytest.mark.parametrize("name", list(FOREIGN))
def test_the_head_is_cut_off_without_changing_a_logit(make_folder: MakeFolder, name: str) -> None:
    model = load_hf_model(make_folder(name)).model
    plain = PlainPass(model)
    assert plain.way == ("embedding" if name == "opt" else "own")
    tokens = torch.arange(40, 70)
    with torch.no_grad():
        torch.testing.assert_close(
            plain.logits(plain.hidden(tokens)[5:9]), model(input_ids=tokens[None]).logits[0, 5:9], atol=2e-5, rtol=1e-5
        )


def test_a_head_that_cannot_be_cut_off_is_run_whole(
    make_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = generic(make_folder("gpt2"), tmp_path / "cut")
    monkeypatch.setattr("flightschool.engines.plain_pass._alike", lambda make, wanted: False)
    whole = generic(make_folder("gpt2"), tmp_path / "whole")
    assert (cut._pass.way, whole._pass.way) == ("own", "whole")
    for station in (cut, whole):
        station.accumulate(random_group())
    assert whole._sums.loss == pytest.approx(cut._sums.loss, rel=1e-5)
    for mine, theirs in zip(whole.model.parameters(), cut.model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("settings", [{}, {"lora_rank": 4}, {"trained_layers": 1}, {"kl_weight": 0.3}])
def test_it_makes_the_steps_of_our_own_trainer(tiny_folder: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    (tmp_path / "own").mkdir()
    ours = own_trainer(tiny_folder, tmp_path / "own", **settings)
    theirs = generic(tiny_folder, tmp_path / "generic", **settings)
    for seed in range(2):
        stats = []
        for station in (ours, theirs):
            station.accumulate(random_group(seed))
            row = msgspec.to_builtins(station.step().stats)
            del row["seconds"], row["num_forward_tokens"]
            stats.append(row)
        assert stats[1] == pytest.approx(stats[0], abs=2e-5, rel=1e-4)
    named = dict(ours.model.named_parameters())
    for name, parameter in theirs.model.named_parameters():
        torch.testing.assert_close(parameter, named[name], atol=5e-5, rtol=1e-3)


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox"])
def test_a_low_rank_change_is_merged_into_what_is_served(make_folder: MakeFolder, tmp_path: Path, name: str) -> None:
    station = generic(make_folder(name), tmp_path / "run", lora_rank=4)
    before = {key: value.detach().clone() for key, value in station.model.named_parameters()}
    station.accumulate(random_group())
    first = station._sums.loss
    stepped = station.step()
    assert stepped.version is not None
    moved = {key for key, value in station.model.named_parameters() if not torch.equal(value, before[key])}
    layers, _ = layers_of(station.model) or ("", 0)
    assert moved == {key for key in before if key.startswith(layers) and before[key].dim() == 2}
    key = min(moved)
    assert int(torch.linalg.matrix_rank(station.model.get_parameter(key) - before[key], atol=1e-6)) <= 4
    with WeightsReader(tmp_path / "run" / "weights") as reader:
        served = reader.read(stepped.version)
        assert all(torch.equal(served[key], value) for key, value in station.model.named_parameters())
    station.accumulate(random_group())
    assert station._sums.loss < first


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox"])
def test_the_factors_get_the_gradient_of_the_usual_adapter(make_folder: MakeFolder, tmp_path: Path, name: str) -> None:
    full, low = (generic(make_folder(name), tmp_path / str(rank), lora_rank=rank) for rank in (0, 3))
    for station in (full, low):
        station.accumulate(random_group())
    parameters = dict(full.model.named_parameters())
    for key, adapter in low._weights._adapters.items():  # type: ignore[attr-defined]
        grad = parameters[key].grad
        assert grad is not None
        grad_OI = grad.T if name == "gpt2" else grad
        torch.testing.assert_close(adapter.b_OR.grad, adapter.scale * grad_OI @ adapter.a_RI.T, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("name", ["gpt2", "opt", "mamba"])
@pytest.mark.parametrize("lora_rank", [0, 4])
def test_layers_computed_again_drop_nothing_and_give_the_same_gradient(
    make_folder: MakeFolder, tmp_path: Path, name: str, lora_rank: int
) -> None:
    found: list[list[Tensor]] = []
    kept: list[int] = []
    for spare in (False, True):
        station = generic(make_folder(name), tmp_path / str(spare), gradient_checkpointing=spare, lora_rank=lora_rank)
        weights = {parameter.data_ptr() for parameter in station.model.parameters()}
        sizes: list[int] = []

        def keep(tensor: Tensor, known: set[int] = weights, sizes: list[int] = sizes) -> Tensor:
            if tensor.data_ptr() not in known:
                sizes.append(tensor.numel() * tensor.element_size())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            station.accumulate(random_group())
        kept.append(sum(sizes))
        found.append([tensor.grad.clone() for tensor in station._weights.trained if tensor.grad is not None])
    assert kept[1] < kept[0]
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


def test_bf16_steps_add_up_in_float32_masters(make_folder: MakeFolder, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"dtype": "bfloat16", "learning_rate": 2e-5, "mismatch_floor": 10.0, "max_staleness": 3}
    station = generic(make_folder("gpt2"), tmp_path / "run", **settings)
    key = "transformer.h.0.mlp.c_fc.weight"
    before = station._weights.state()[key].clone()
    for _ in range(3):
        station.accumulate(random_group())
        assert station.step().version is not None
    after = station._weights.state()[key]
    assert after.dtype == torch.float32
    assert int((after != before).sum()) > 0.9 * after.numel()
    assert station.model.get_parameter(key).dtype == torch.bfloat16
    assert torch.equal(station.model.get_parameter(key), after.bfloat16())


@pytest.mark.parametrize("settings", [{}, {"lora_rank": 2}, {"dtype": "bfloat16", "mismatch_floor": 10.0}])
def test_a_checkpoint_goes_on_bit_by_bit(make_folder: MakeFolder, tmp_path: Path, settings: dict[str, Any]) -> None:
    manifest = Manifest(run="r", incarnation=1, step=1, lineage=((1, 1),), consumed=("g",))
    station = generic(make_folder("gpt2"), tmp_path / "run", **settings)
    station.accumulate(random_group(1))
    station.step()
    checkpoint = tmp_path / "run" / "checkpoints" / "step-000001"
    station.save(checkpoint, manifest)
    other = generic(make_folder("gpt2"), tmp_path / "run", checkpoint, step=1, **settings)
    for each in (station, other):
        each.accumulate(random_group(2))
        each.step()
    assert all(torch.equal(a, b) for a, b in zip(station.model.parameters(), other.model.parameters(), strict=True))


@pytest.mark.parametrize("name", list(FOREIGN))
@pytest.mark.parametrize("lora_rank", [0, 2])
def test_an_export_is_read_by_transformers_and_by_us(
    make_folder: MakeFolder, tmp_path: Path, name: str, lora_rank: int
) -> None:
    station = generic(make_folder(name), tmp_path / "run", lora_rank=lora_rank)
    station.accumulate(random_group())
    station.step()
    digest = station.export(tmp_path / "model")
    tokens = torch.arange(30)[None]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    again = load_hf_model(tmp_path / "model")
    assert again.digest == digest
    before = load_hf_model(make_folder(name)).model
    with torch.no_grad():
        wanted, found, unmoved = (model(input_ids=tokens).logits for model in (station.model, theirs, before))
    torch.testing.assert_close(found, wanted, atol=0.0, rtol=0.0)
    assert not torch.equal(unmoved, wanted)
    published = dict(again.model.named_parameters())
    assert published.keys() == dict(station.model.named_parameters()).keys()


def test_the_topmost_layers_and_the_last_norm_train_alone(make_folder: MakeFolder) -> None:
    tops = {
        "gpt2": ("transformer.h.1.", "transformer.ln_f."),
        "opt": ("model.decoder.layers.1.", "model.decoder.final_layer_norm."),
        "bloom": ("transformer.h.1.", "transformer.ln_f."),
        "mamba": ("backbone.layers.1.", "backbone.norm_f."),
    }
    for name, starts in tops.items():
        model = load_hf_model(make_folder(name)).model
        names = [key for key, _ in model.named_parameters()]
        assert trained_parameters(model, 1) == [key for key in names if key.startswith(starts)]
        assert trained_parameters(model, None) == trained_parameters(model, 5) == names
