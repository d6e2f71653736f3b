"""Mixture of experts: routing by hand, recorded and replayed; the same numbers as GLM-4.5's own code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from flightschool.engines import CausalAttention, Transformer, TransformerConfig, load_model, save_model
from flightschool.engines.experts import Experts, RecordedRouting, ReplayedRouting, best_experts
from flightschool.engines.folders import LoadedModel
from flightschool.engines.requests import joined
from flightschool.engines.tokenizer import ChatTokenizer
from flightschool.engines.torch_engine import TorchEngine
from flightschool.errors import ModelFolderError, TokenContractError
from flightschool.protocols import Generation, GenerationRequest
from flightschool.records import VersionRun

CONFIG = TransformerConfig(
    model_type="glm4_moe",
    vocab=300,
    hidden=32,
    intermediate=48,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    rotary_share=0.5,
    attention_bias=True,
    qk_norm=True,
    tied_embeddings=False,
    num_experts=8,
    experts_per_token=2,
    expert_intermediate=16,
    num_shared_experts=1,
    num_dense_layers=1,
    routed_scaling=1.5,
    eos_token_ids=(0,),
    max_context=128,
)


def model_of(seed: int = 0) -> Transformer:
    model = Transformer(CONFIG).initialise(seed=seed, std=0.2)
    generator = torch.Generator().manual_seed(seed + 1)
    for name, parameter in model.named_parameters():
        if name.endswith(("e_score_correction_bias", "_proj.bias")):
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.1
    return model


def hidden(model: Transformer, tokens: torch.Tensor, routing: Any = None) -> torch.Tensor:
    out: torch.Tensor = model(tokens, torch.arange(len(tokens)), CausalAttention([len(tokens)]), routing)
    return out


def experts_of(model: Transformer) -> Experts:
    found = model.get_submodule("model.layers.1.mlp")
    assert isinstance(found, Experts)
    return found


def test_configuration_goes_out_and_comes_back() -> None:
    assert TransformerConfig.from_hf(CONFIG.to_hf()) == CONFIG
    with pytest.raises(ModelFolderError, match="in groups"):
        TransformerConfig.from_hf(CONFIG.to_hf() | {"n_group": 4})
    with pytest.raises(ModelFolderError, match="partial_rotary_factor"):
        TransformerConfig.from_hf(CONFIG.to_hf() | {"model_type": "llama"})


def test_one_layer_by_hand() -> None:
    layer = experts_of(model_of())
    x = torch.randn(5, CONFIG.hidden, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        found = layer(x, None)
        scores = torch.sigmoid(x @ layer.gate.weight.T)
        assert layer.shared_experts is not None
        expected = layer.shared_experts(x)
        for row in range(5):
            chosen = (scores[row] + layer.gate.e_score_correction_bias).argsort(descending=True)[:2]
            weights = scores[row, chosen] / scores[row, chosen].sum() * 1.5
            for weight, number in zip(weights, chosen, strict=True):
                expected[row] += weight * layer.experts[int(number)](x[row : row + 1])[0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_a_replay_gives_the_same_numbers_and_another_choice_gives_others() -> None:
    model, tokens = model_of(), torch.arange(20)
    recorded = RecordedRouting()
    with torch.no_grad():
        plain = hidden(model, tokens, recorded)
        rows = recorded.rows()
        assert {len(row) for row in rows} == {2 * 2 * 2}  # two layers with experts, two experts, two bytes
        torch.testing.assert_close(hidden(model, tokens, ReplayedRouting(rows, CONFIG)), plain)
        other = list(rows)
        other[0] = (7).to_bytes(2, "little") * 4
        changed = hidden(model, tokens, ReplayedRouting(other, CONFIG))
        assert not torch.allclose(changed[0], plain[0], atol=1e-3)
        gap = ReplayedRouting([b"", *rows[1:]], CONFIG)
        torch.testing.assert_close(hidden(model, tokens, gap), plain)
    assert gap.num_replayed == 19


def test_records_of_another_model_are_refused() -> None:
    with pytest.raises(TokenContractError, match="do not fit"):
        ReplayedRouting([b"\0\0"], CONFIG)
    with pytest.raises(TokenContractError, match="does not exist"):
        ReplayedRouting([b"\x09\0" * 4], CONFIG)


def test_the_router_learns_under_a_replay() -> None:
    model, tokens = model_of(), torch.arange(12)
    recorded = RecordedRouting()
    with torch.no_grad():
        hidden(model, tokens, recorded)
    hidden(model, tokens, ReplayedRouting(recorded.rows(), CONFIG)).square().sum().backward()  # type: ignore[no-untyped-call]
    gate = experts_of(model).gate
    assert gate.weight.grad is not None
    assert float(gate.weight.grad.abs().sum()) > 0
    assert gate.e_score_correction_bias.grad is None
    assert all(p.grad is not None for p in experts_of(model).experts.parameters())


async def test_the_engine_tells_the_experts_of_prompt_and_completion(
    make_tokenizer: Callable[..., ChatTokenizer],
) -> None:
    model = model_of()
    loaded = LoadedModel(model=model, tokenizer=make_tokenizer(), config=CONFIG, digest="d", path=Path())
    engine = TorchEngine(loaded, max_context=64, max_step_tokens=4)
    context = tuple(range(20, 31))
    first, twin = [
        await engine.generate(
            GenerationRequest(
                session=name, token_ids_T=context, max_new_tokens=6, stop_token_ids=(), seed=1, prefix_length=9
            )
        )
        for name in ("a", "b")
    ]
    recorded = RecordedRouting()
    whole = torch.tensor([*context, *first.token_ids_T])
    with torch.no_grad():
        hidden(model, whole, recorded)
    assert list(first.routing_T) == recorded.rows()[:-1]  # the last token was never computed
    assert twin.routing_T == first.routing_T
    longer = (*context, *first.token_ids_T, 40, 41)
    second = await engine.generate(
        GenerationRequest(session="a", token_ids_T=longer, max_new_tokens=3, stop_token_ids=(), seed=2)
    )
    assert second.routing_T[: len(first.routing_T)] == first.routing_T
    assert len(second.routing_T) == len(longer) + 2
    engine.close()


def test_a_completion_that_was_interrupted_keeps_its_experts() -> None:
    def piece(token: int, routes: tuple[bytes, ...], finish: str) -> Generation:
        runs = (VersionRun(step=0, count=1),)
        return Generation(
            token_ids_T=(token,), logprobs_T=(-1.0,), versions=runs, kv_step=0, finish=finish, routing_T=routes
        )

    first, rest = piece(1, (b"a",), "interrupted"), piece(2, (b"a", b"b"), "stop")
    assert joined(first, rest).routing_T == (b"a", b"b")
    assert joined(first, msgspec.structs.replace(rest, routing_T=())).routing_T == (b"a",)


def test_best_experts_are_the_largest() -> None:
    assert best_experts(torch.tensor([[0.1, 0.9, 0.5]]), 2).tolist() == [[1, 2]]


def test_the_numbers_are_those_of_the_transformers_library(
    tmp_path: Path, make_tokenizer: Callable[..., ChatTokenizer]
) -> None:
    import transformers

    save_model(model_of(), tmp_path / "model", tokenizer=make_tokenizer())
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32).eval()
    ours = load_model(tmp_path / "model").model
    tokens = torch.randint(0, 300, (33,), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        mine = ours.logits(hidden(ours, tokens))
        torch.testing.assert_close(mine, theirs(tokens[None]).logits[0], atol=1e-4, rtol=1e-4)
