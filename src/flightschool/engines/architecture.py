"""The shape of a model: read from and written as a Hugging Face ``config.json``. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flightschool.errors import ModelFolderError
from flightschool.records import Record

__all__ = ["RopeScaling", "TransformerConfig"]

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
}
_MEND = "name a folder of a dense Llama, SmolLM2, Qwen2, Qwen2.5 or Qwen3 model, or of GLM-4.5's mixture of experts"


class RopeScaling(Record, frozen=True, kw_only=True):
    """Llama 3's stretching of the rotary embedding."""

    factor: float
    low: float
    high: float
    original_context: int


class TransformerConfig(Record, frozen=True, kw_only=True):
    """Sizes and switches of one decoder."""

    model_type: str = "llama"
    """``llama``, ``qwen2``, ``qwen3`` or ``glm4_moe``: what the configuration is written back as."""
    vocab: int
    """Rows of the embedding; may exceed the tokenizer's size (padding)."""
    hidden: int
    intermediate: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    rms_eps: float = 1e-5
    tied_embeddings: bool = True
    attention_bias: bool = False
    """Biases on query, key and value."""
    output_bias: bool = False
    """Bias on the output projection of the attention."""
    qk_norm: bool = False
    """Norms on the query and key heads (Qwen3)."""
    rotary_share: float = 1.0
    """Share of each head that the rotary embedding turns."""
    num_experts: int = 0
    """Routed experts of a layer; 0: a dense model."""
    experts_per_token: int = 0
    expert_intermediate: int = 0
    """Inner size of one expert."""
    num_shared_experts: int = 0
    """Experts that see every token, as one of so many times the inner size."""
    num_dense_layers: int = 0
    """First layers that have no experts."""
    routed_scaling: float = 1.0
    """What the routed experts' sum is multiplied by."""
    normalised_routing: bool = True
    """Whether the weights of a token's experts sum to 1."""
    max_context: int = 2048
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    @classmethod
    def from_hf(cls, table: Mapping[str, Any], where: str = "config.json") -> TransformerConfig:
        """Read a Hugging Face configuration.

        Raises:
            ModelFolderError: the architecture, or an option of it, is none that this engine runs.
        """
        kind = str(table.get("model_type", ""))
        if kind not in _ARCHITECTURES:
            known = ", ".join(_ARCHITECTURES)
            raise ModelFolderError(f"unsupported model type {kind!r}", where=where, expected=known, mend=_MEND)
        _refuse_options(table, where)
        try:
            return cls._read(kind, table, where)
        except KeyError as error:
            raise ModelFolderError(
                f"{error.args[0]!r} is missing", where=where, expected="a complete configuration", mend=_MEND
            ) from None

    @classmethod
    def _read(cls, kind: str, table: Mapping[str, Any], where: str) -> TransformerConfig:
        heads = int(table["num_attention_heads"])
        rope = {**(table.get("rope_scaling") or {}), **(table.get("rope_parameters") or {})}
        bias = bool(table.get("attention_bias", kind == "qwen2"))
        experts = _read_experts(table, where) if kind == "glm4_moe" else {}
        eos = table.get("eos_token_id")
        return cls(
            model_type=kind,
            vocab=int(table["vocab_size"]),
            hidden=int(table["hidden_size"]),
            intermediate=int(table["intermediate_size"]),
            num_layers=int(table["num_hidden_layers"]),
            num_heads=heads,
            num_kv_heads=int(table.get("num_key_value_heads") or heads),
            head_dim=int(table.get("head_dim") or int(table["hidden_size"]) // heads),
            rope_theta=float(rope.get("rope_theta") or table.get("rope_theta") or 10000.0),
            rope_scaling=_read_scaling(rope, where),
            rms_eps=float(table.get("rms_norm_eps", 1e-6)),
            tied_embeddings=bool(table.get("tie_word_embeddings", False)),
            attention_bias=bias,
            output_bias=bias and kind not in {"qwen2", "glm4_moe"},
            qk_norm=bool(table.get("use_qk_norm")) if kind == "glm4_moe" else kind == "qwen3",
            rotary_share=float(_rotary_share(table)),
            max_context=int(table.get("max_position_embeddings", 2048)),
            bos_token_id=table.get("bos_token_id"),
            eos_token_ids=() if eos is None else tuple(eos) if isinstance(eos, list) else (int(eos),),
            **experts,
        )

    def to_hf(self) -> dict[str, Any]:
        """The same shape as a ``config.json`` that other libraries read."""
        rope: dict[str, Any] = {"rope_theta": self.rope_theta, "rope_type": "default"}
        if self.rope_scaling is not None:
            rope |= {
                "rope_type": "llama3",
                "factor": self.rope_scaling.factor,
                "low_freq_factor": self.rope_scaling.low,
                "high_freq_factor": self.rope_scaling.high,
                "original_max_position_embeddings": self.rope_scaling.original_context,
            }
        eos: Any = self.eos_token_ids[0] if len(self.eos_token_ids) == 1 else list(self.eos_token_ids) or None
        table = {
            "architectures": [_ARCHITECTURES[self.model_type]],
            "model_type": self.model_type,
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "rope_theta": self.rope_theta,
            "rope_scaling": None if self.rope_scaling is None else rope,
            "rms_norm_eps": self.rms_eps,
            "tie_word_embeddings": self.tied_embeddings,
            "max_position_embeddings": self.max_context,
            "bos_token_id": self.bos_token_id,
            "eos_token_id": eos,
            "torch_dtype": "float32",
        }
        if self.model_type == "glm4_moe":
            table |= self._experts_to_hf()
        return table if self.model_type == "qwen2" else table | {"attention_bias": self.attention_bias}

    def _experts_to_hf(self) -> dict[str, Any]:
        return {
            "n_routed_experts": self.num_experts,
            "num_experts_per_tok": self.experts_per_token,
            "moe_intermediate_size": self.expert_intermediate,
            "n_shared_experts": self.num_shared_experts,
            "first_k_dense_replace": self.num_dense_layers,
            "routed_scaling_factor": self.routed_scaling,
            "norm_topk_prob": self.normalised_routing,
            "n_group": 1,
            "topk_group": 1,
            "use_qk_norm": self.qk_norm,
            "partial_rotary_factor": self.rotary_share,
            "rope_parameters": {
                "rope_theta": self.rope_theta,
                "rope_type": "default",
                "partial_rotary_factor": self.rotary_share,
            },
        }


def _refuse_options(table: Mapping[str, Any], where: str) -> None:
    """Options that would change the mathematics must not be overlooked."""
    wrong = {
        "hidden_act": table.get("hidden_act", "silu") not in {"silu", "swish"},
        "mlp_bias": bool(table.get("mlp_bias")),
        "use_sliding_window": bool(table.get("use_sliding_window")),
        "partial_rotary_factor": _rotary_share(table) != 1.0 and table.get("model_type") != "glm4_moe",
        "quantization_config": bool(table.get("quantization_config")),
    }
    for name, refused in wrong.items():
        if refused:
            found = f" = {table[name]!r}" if name in table else ""
            raise ModelFolderError(f"{name}{found} is not supported", where=where, expected=f"no {name}", mend=_MEND)


def _rotary_share(table: Mapping[str, Any]) -> float:
    nested = table.get("rope_parameters") or {}
    return float(nested.get("partial_rotary_factor") or table.get("partial_rotary_factor") or 1.0)


def _read_experts(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    if int(table.get("n_group") or 1) != 1 or int(table.get("topk_group") or 1) != 1:
        raise ModelFolderError("experts in groups are not supported", where=where, expected="n_group = 1", mend=_MEND)
    return {
        "num_experts": int(table["n_routed_experts"]),
        "experts_per_token": int(table["num_experts_per_tok"]),
        "expert_intermediate": int(table["moe_intermediate_size"]),
        "num_shared_experts": int(table.get("n_shared_experts") or 0),
        "num_dense_layers": int(table.get("first_k_dense_replace") or 0),
        "routed_scaling": float(table.get("routed_scaling_factor") or 1.0),
        "normalised_routing": bool(table.get("norm_topk_prob", True)),
    }


def _read_scaling(rope: Mapping[str, Any], where: str) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise ModelFolderError(
            f"rope scaling {kind!r} is not supported", where=where, expected="default or llama3", mend=_MEND
        )
    return RopeScaling(
        factor=float(rope["factor"]),
        low=float(rope["low_freq_factor"]),
        high=float(rope["high_freq_factor"]),
        original_context=int(rope["original_max_position_embeddings"]),
    )
