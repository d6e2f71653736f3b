"""Products by oneDNN give what torch's own give, and gradients land where autograd would put them."""

from __future__ import annotations

import copy

import msgspec
import pytest
import torch

from flightschool.engines.architecture import TransformerConfig
from flightschool.engines.products import accumulate_in_place, has_fast_products, serve_fast
from flightschool.engines.transformer import CausalAttention, Transformer

CONFIG = TransformerConfig(
    vocab=64, hidden=32, intermediate=48, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8, attention_bias=True
)
TOKENS, LENGTHS = torch.randint(64, (19,), generator=torch.Generator().manual_seed(3)), (12, 7)

pytestmark = pytest.mark.skipif(not has_fast_products(torch.zeros(1)), reason="torch has no oneDNN for this processor")


def logits_of(model: Transformer) -> torch.Tensor:
    positions = torch.cat([torch.arange(length) for length in LENGTHS])
    return model.logits(model(TOKENS, positions, CausalAttention(LENGTHS)))


def gradients_of(model: Transformer) -> dict[str, torch.Tensor]:
    for _ in range(2):  # the first makes gradients, the second adds to them
        torch.autograd.backward(logits_of(model).tanh().sum())
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def model(request: pytest.FixtureRequest) -> Transformer:
    config = msgspec.structs.replace(CONFIG, tied_embeddings=request.param)
    return Transformer(config).initialise(seed=1, std=0.3)


@pytest.fixture(params=[True, False], ids=["packed", "direct"])
def packed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_a_serving_model_says_the_same(model: Transformer, packed: bool) -> None:
    with torch.no_grad():
        plain = logits_of(model)
        serve_fast(model, packed=packed)
        torch.testing.assert_close(logits_of(model), plain, atol=1e-5, rtol=1e-5)
    assert {owner.joint is not None for owner in model.joint_layers()} == {packed}


def test_a_layer_that_somebody_else_multiplies_for_is_not_joined(model: Transformer) -> None:
    owner = model.joint_layers()[0]
    layer = owner.joint_inputs()[1]
    layer.adapter = lambda x, weight, bias: torch.nn.functional.linear(x, weight * 2.0, bias)
    with torch.no_grad():
        plain = logits_of(model)
        serve_fast(model, packed=True)
        torch.testing.assert_close(logits_of(model), plain, atol=1e-5, rtol=1e-5)
    assert owner.joint is None
    assert all(other.joint is not None for other in model.joint_layers()[1:])


def test_a_changed_weight_is_never_multiplied_as_it_was(model: Transformer, packed: bool) -> None:
    serve_fast(model, packed=packed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
        expected = logits_of(copy.deepcopy(model))  # nothing that was laid out is copied
        torch.testing.assert_close(logits_of(model), expected)
        serve_fast(model, packed=packed)
        torch.testing.assert_close(logits_of(model), expected, atol=1e-4, rtol=1e-4)


def test_a_serving_model_still_has_gradients(model: Transformer, packed: bool) -> None:
    expected = gradients_of(copy.deepcopy(model))
    serve_fast(model, packed=packed)
    torch.testing.assert_close(gradients_of(model), expected)


@pytest.mark.parametrize("frozen", [(), ("model.layers.0", "model.embed_tokens")], ids=["all", "upper"])
def test_gradients_in_place_equal_autograd(model: Transformer, frozen: tuple[str, ...]) -> None:
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(frozen or "none"))
    expected = gradients_of(copy.deepcopy(model))
    accumulate_in_place(model)
    found = gradients_of(model)
    assert found.keys() == expected.keys()
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_layers_computed_again_give_the_same_gradients(model: Transformer) -> None:
    accumulate_in_place(model)
    again = copy.deepcopy(model)
    again.checkpointing = True
    torch.testing.assert_close(gradients_of(again), gradients_of(model))
    assert [name for name, parameter in again.named_parameters() if parameter.grad is None] == []


def test_other_types_are_left_to_torch() -> None:
    assert not has_fast_products(torch.zeros(1, dtype=torch.bfloat16))
    small = Transformer(CONFIG).to(torch.bfloat16)
    serve_fast(small, packed=True)
    accumulate_in_place(small)
    assert small.output is None
    assert all(layer.adapter is None for layer in small.linear_layers())
