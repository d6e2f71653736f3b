from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.engines.architecture import RopeScaling, TransformerConfig
from flightschool.engines.opening import local_kind
from flightschool.engines.transformer import CausalAttention, Transformer, _inverse_frequencies
from flightschool.errors import InputError, ModelFolderError

CONFIG = TransformerConfig(
    vocab=50, hidden=16, intermediate=24, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=4, max_context=64
)
MODEL = Transformer(CONFIG).initialise(0, std=0.3)


def run(model: Transformer, lengths: list[int], tokens: torch.Tensor) -> torch.Tensor:
    positions = torch.cat([torch.arange(length) for length in lengths])
    hidden: torch.Tensor = model(tokens, positions, CausalAttention(lengths))
    return hidden


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_a_pack_computes_what_each_sequence_computes_alone(lengths: list[int], seed: int) -> None:
    tokens = torch.randint(0, 50, (sum(lengths),), generator=torch.Generator().manual_seed(seed))
    packed = run(MODEL, lengths, tokens)
    alone = torch.cat([run(MODEL, [len(part)], part) for part in torch.split(tokens, lengths)])
    torch.testing.assert_close(packed, alone, atol=1e-5, rtol=1e-5)


def test_tokens_see_only_the_past() -> None:
    tokens = torch.arange(10)
    changed = tokens.clone()
    changed[6] = 40
    one, two = run(MODEL, [10], tokens), run(MODEL, [10], changed)
    torch.testing.assert_close(one[:6], two[:6])
    assert (one[6:] - two[6:]).abs().amin(dim=0).max() > 1e-4


def test_only_distances_matter() -> None:
    tokens = torch.arange(8)
    near = MODEL(tokens, torch.arange(8), CausalAttention([8]))
    far = MODEL(tokens, torch.arange(8) + 20, CausalAttention([8]))
    torch.testing.assert_close(near, far, atol=1e-4, rtol=1e-4)


def test_gradients_reach_every_parameter() -> None:
    model = Transformer(CONFIG).initialise(1, std=0.3)
    tokens = torch.arange(9)
    model.logits(run(model, [4, 5], tokens)).log_softmax(-1)[torch.arange(9), tokens].sum().backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_empty_sequences_are_refused() -> None:
    with pytest.raises(InputError, match="empty sequence"):
        CausalAttention([3, 0])


def test_parameters_have_hugging_face_names() -> None:
    names = set(MODEL.state_dict())
    assert "lm_head.weight" not in names  # tied
    assert {"model.embed_tokens.weight", "model.norm.weight", "model.layers.1.self_attn.k_proj.weight"} <= names
    assert {"model.layers.0.mlp.down_proj.weight", "model.layers.0.post_attention_layernorm.weight"} <= names


def test_llama_3_scaling_keeps_high_and_stretches_low_frequencies(
    make_config: Callable[..., TransformerConfig],
) -> None:
    scaling = RopeScaling(factor=8.0, low=1.0, high=4.0, original_context=8192)
    config = make_config(head_dim=64, rope_theta=500000.0, rope_scaling=scaling)
    plain = [500000.0 ** (-i / 32) for i in range(32)]
    got = _inverse_frequencies(config).tolist()
    for frequency, scaled in zip(plain, got, strict=True):
        wavelength = 2 * math.pi / frequency
        if wavelength < 8192 / 4:
            assert scaled == pytest.approx(frequency, rel=1e-5)
        elif wavelength > 8192:
            assert scaled == pytest.approx(frequency / 8, rel=1e-5)
        else:
            assert frequency / 8 < scaled < frequency


# ------------------------------------------------------------------------------------------------ configuration


@pytest.mark.parametrize(
    "changes",
    [
        {"eos_token_ids": (2,), "bos_token_id": 1},
        {"model_type": "qwen2", "attention_bias": True, "tied_embeddings": False},
        {"model_type": "qwen3", "qk_norm": True, "eos_token_ids": (4, 5)},
        {"rope_scaling": RopeScaling(factor=8.0, low=1.0, high=4.0, original_context=8192)},
    ],
)
def test_configuration_survives_writing_and_reading(
    make_config: Callable[..., TransformerConfig], changes: dict[str, object]
) -> None:
    config = make_config(**changes)
    assert TransformerConfig.from_hf(config.to_hf()) == config


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"model_type": "mamba"}, "unsupported model type 'mamba'"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope scaling 'yarn'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ],
)
def test_what_would_be_computed_wrongly_is_refused(
    make_config: Callable[..., TransformerConfig], changes: dict[str, object], what: str
) -> None:
    with pytest.raises(ModelFolderError, match=what) as caught:
        TransformerConfig.from_hf(make_config().to_hf() | changes, where="x/config.json")
    assert caught.value.where == "x/config.json"
    assert "Qwen3" in caught.value.mend


def test_a_missing_key_is_named(make_config: Callable[..., TransformerConfig]) -> None:
    table = make_config().to_hf()
    del table["num_hidden_layers"]
    with pytest.raises(ModelFolderError, match="'num_hidden_layers' is missing"):
        TransformerConfig.from_hf(table)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("hidden_size", "abc", "whole number of 1 or more"),
        ("hidden_size", None, "a value"),
        ("hidden_size", 32.0, "whole number"),
        ("num_hidden_layers", True, "whole number"),
        ("num_attention_heads", 0, "whole number of 1 or more"),
        ("num_key_value_heads", 3, "divisor of num_attention_heads = 4"),
        ("head_dim", 7, "even number"),
        ("eos_token_id", "x", "token id"),
        ("eos_token_id", [2, "a"], "token id"),
        ("eos_token_id", -1, "token id"),
        ("bos_token_id", "x", "token id"),
        ("rope_scaling", "linear", "an object"),
        ("rope_parameters", {"rope_theta": "1e4"}, "number above 0"),
        ("rope_theta", float("nan"), "number above 0"),
        ("rms_norm_eps", "small", "number above 0"),
        ("tie_word_embeddings", "false", "true or false"),
        ("max_position_embeddings", -5, "whole number"),
        ("hidden_act", ["silu"], "a text"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(
    make_config: Callable[..., TransformerConfig], name: str, value: object, expected: str
) -> None:
    with pytest.raises(ModelFolderError) as caught:
        TransformerConfig.from_hf(make_config().to_hf() | {name: value}, where="x/config.json")
    error = caught.value
    key, shown = next(iter(value.items())) if isinstance(value, dict) else (name, value)
    assert f"{key} = {shown!r}" in error.what
    assert error.where == "x/config.json"
    assert expected in error.expected


def test_what_no_engine_could_read_is_not_handed_to_another_engine(
    make_config: Callable[..., TransformerConfig], tmp_path: Path
) -> None:
    def kind(changes: dict[str, object]) -> str:
        (tmp_path / "config.json").write_text(json.dumps(make_config().to_hf() | changes))
        return local_kind(tmp_path)

    assert kind({}) == "torch"
    assert kind({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}) == "hf"
    with pytest.raises(ModelFolderError, match="hidden_size = 'abc'"):
        kind({"hidden_size": "abc"})
