"""The shapes that a configuration promises are those of the module, architecture by architecture."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flightschool.engines.architecture import TransformerConfig
from flightschool.engines.transformer import Transformer
from flightschool.engines.weight_files import tensor_shapes

SIZES: dict[str, Any] = {
    "vocab": 40,
    "hidden": 24,
    "intermediate": 36,
    "num_layers": 3,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 8,
}
KINDS: list[dict[str, Any]] = [
    {},
    {"tied_embeddings": False, "attention_bias": True, "output_bias": True},
    {"model_type": "qwen2", "attention_bias": True},
    {"model_type": "qwen3", "qk_norm": True},
    {
        "model_type": "glm4_moe",
        "num_experts": 4,
        "experts_per_token": 2,
        "expert_intermediate": 12,
        "num_shared_experts": 2,
        "num_dense_layers": 1,
    },
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.get("model_type", "llama")))
def test_promised_shapes_are_the_modules(kind: dict[str, Any]) -> None:
    config = TransformerConfig(**SIZES, **kind)
    with torch.device("meta"):
        state = Transformer(config).state_dict()
    assert dict(tensor_shapes(config)) == {name: tuple(tensor.shape) for name, tensor in state.items()}
