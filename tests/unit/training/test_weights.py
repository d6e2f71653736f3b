"""Low-rank change, bf16 masters and layers computed again: equal gradients, exact merges, small checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.unit.training.test_trainer import random_group, trainer
from torch import Tensor, nn

from flightschool.engines import CausalAttention, load_model
from flightschool.engines.transformer import Linear
from flightschool.errors import StoreError
from flightschool.training.lora import adapt, merge
from flightschool.training.messages import Manifest
from flightschool.training.publisher import WeightsReader
from flightschool.training.trainer import TorchTrainer


def gradients(station: TorchTrainer) -> list[Tensor]:
    return [tensor.grad.clone() for tensor in station._weights.trained if tensor.grad is not None]


def test_the_factors_get_the_gradient_of_the_usual_adapter() -> None:
    generator = torch.Generator().manual_seed(0)
    layer = Linear(12, 7)
    base = layer.weight.detach().clone()
    (adapter,) = adapt({"w": layer}, rank=3, alpha=6.0, seed=1).values()
    with torch.no_grad():
        adapter.b_OR.copy_(torch.randn(7, 3, generator=generator))
    layer.weight.requires_grad_(False)
    merge({"w": layer}, {"w": adapter}, {"w": base}.__getitem__)
    x = torch.randn(5, 12, generator=generator, requires_grad=True)
    pull = torch.randn(5, 7, generator=generator)
    (layer(x) * pull).sum().backward()
    found = [x.grad, adapter.a_RI.grad, adapter.b_OR.grad]

    a, b, y = (t.detach().clone().requires_grad_(True) for t in (adapter.a_RI, adapter.b_OR, x))
    plain = nn.functional.linear(y, base, layer.bias) + 2.0 * (y @ a.T) @ b.T
    torch.testing.assert_close(layer(x), plain, atol=1e-5, rtol=1e-5)
    (plain * pull).sum().backward()  # type: ignore[no-untyped-call]
    for mine, theirs in zip(found, (y.grad, a.grad, b.grad), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)
    assert layer.weight.grad is None


def test_low_rank_training_moves_only_linear_layers_and_serves_what_it_trains(
    tiny_folder: Path, tmp_path: Path
) -> None:
    station = trainer(tiny_folder, tmp_path, lora_rank=4)
    before = {name: value.detach().clone() for name, value in station.model.named_parameters()}
    station.accumulate(random_group())
    first = station._sums.loss
    stepped = station.step()
    assert stepped.version is not None
    moved = {name for name, value in station.model.named_parameters() if not torch.equal(value, before[name])}
    assert moved == {n for n in before if n.startswith("model.layers.") and n.endswith("_proj.weight")}
    change = (
        station.model.get_parameter("model.layers.0.mlp.up_proj.weight") - before["model.layers.0.mlp.up_proj.weight"]
    )
    assert int(torch.linalg.matrix_rank(change, atol=1e-6)) <= 4
    with WeightsReader(tmp_path / "weights") as reader:
        served = reader.read(stepped.version)
        assert all(torch.equal(served[name], p) for name, p in station.model.named_parameters())
    station.accumulate(random_group())
    assert station._sums.loss < first


def test_a_low_rank_checkpoint_is_small_and_goes_on_bit_by_bit(tiny_folder: Path, tmp_path: Path) -> None:
    manifest = Manifest(run="r", incarnation=1, step=1, lineage=((1, 1),), consumed=("g",))
    station = trainer(tiny_folder, tmp_path, lora_rank=2)
    station.accumulate(random_group(1))
    station.step()
    checkpoint = tmp_path / "checkpoints" / "step-000001"
    station.save(checkpoint, manifest)
    kept = load_file(checkpoint / "model.safetensors")
    assert all(".lora_A." in name or ".lora_B." in name for name in kept)
    assert sum(t.numel() for t in kept.values()) < station.num_parameters / 4
    other = trainer(tiny_folder, tmp_path, checkpoint, step=1, lora_rank=2)
    for each in (station, other):
        each.accumulate(random_group(2))
        each.step()
    assert all(torch.equal(a, b) for a, b in zip(station.model.parameters(), other.model.parameters(), strict=True))
    with pytest.raises(StoreError, match="does not fit"):
        trainer(tiny_folder, tmp_path, checkpoint, step=1)


def test_the_merged_export_gives_the_logits_that_were_trained(tiny_folder: Path, tmp_path: Path) -> None:
    station = trainer(tiny_folder, tmp_path, lora_rank=4)
    station.accumulate(random_group())
    station.step()
    station.export(tmp_path / "model")
    loaded = load_model(tmp_path / "model").model
    tokens = torch.arange(20)
    outs = [m.logits(m(tokens, tokens, CausalAttention([20]))) for m in (station.model, loaded)]
    assert torch.equal(*outs)


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_layers_computed_again_give_the_same_gradient_and_keep_less(
    tiny_folder: Path, tmp_path: Path, lora_rank: int
) -> None:
    kept: dict[bool, int] = {}
    found: dict[bool, list[Tensor]] = {}
    for spare in (False, True):
        folder = tmp_path / str(spare)
        folder.mkdir()
        station = trainer(tiny_folder, folder, gradient_checkpointing=spare, lora_rank=lora_rank)

        weights = {p.data_ptr() for p in station.model.parameters()}
        sizes: list[int] = []

        def keep(tensor: Tensor, known: set[int] = weights, sizes: list[int] = sizes) -> Tensor:
            if tensor.data_ptr() not in known:
                sizes.append(tensor.numel() * tensor.element_size())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            station.accumulate(random_group())
        kept[spare], found[spare] = sum(sizes), gradients(station)
    for a, b in zip(*found.values(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
    assert kept[True] < kept[False]


def test_bf16_steps_that_a_weight_would_round_away_add_up_in_the_masters(tiny_folder: Path, tmp_path: Path) -> None:
    station = trainer(tiny_folder, tmp_path, dtype="bfloat16", learning_rate=2e-5, mismatch_floor=10.0)
    parameter = station.model.get_parameter("model.layers.0.mlp.up_proj.weight")
    assert parameter.dtype is torch.bfloat16
    masters = {name: tensor.clone() for name, tensor in station._weights.state().items()}
    assert masters["model.layers.0.mlp.up_proj.weight"].dtype is torch.float32
    before = parameter.detach().clone()
    for seed in range(12):
        station.accumulate(random_group(seed))
        assert station.step().version is not None
        station.step_number = 0
    after = station._weights.state()["model.layers.0.mlp.up_proj.weight"]
    assert float((after - masters["model.layers.0.mlp.up_proj.weight"]).abs().mean()) > 2e-5
    assert torch.equal(after.to(torch.bfloat16), parameter)
    assert not torch.equal(before, parameter)


def test_bf16_gradients_are_those_of_float32_to_its_precision(tiny_folder: Path, tmp_path: Path) -> None:
    found = []
    for dtype in ("float32", "bfloat16"):
        (tmp_path / dtype).mkdir()
        station = trainer(tiny_folder, tmp_path / dtype, dtype=dtype)
        station.accumulate(random_group())
        found.append(torch.cat([g.flatten() for g in gradients(station)]))
    assert found[1].dtype is torch.float32
    assert float(torch.nn.functional.cosine_similarity(found[0], found[1], dim=0)) > 0.98
