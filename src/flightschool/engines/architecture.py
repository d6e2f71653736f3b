"""The shape of a model: read from and written as a Hugging Face ``config.json``. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flightschool.engines.config_values import ConfigTable
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
            ConfigValueError: a value is missing, of the wrong type, or impossible beside the others.
        """
        kind = str(table.get("model_type", ""))
        if kind not in _ARCHITECTURES:
            known = ", ".join(_ARCHITECTURES)
            raise ModelFolderError(f"unsupported model type {kind!r}", where=where, expected=known, mend=_MEND)
        values = ConfigTable(table, where)
        _refuse_options(table, values)
        return cls._read(kind, values)

    @classmethod
    def _read(cls, kind: str, values: ConfigTable) -> TransformerConfig:
        rope = ConfigTable({**values.inner("rope_scaling"), **values.inner("rope_parameters")}, values.where, "rope: ")
        bias = values.flag("attention_bias", kind == "qwen2")
        experts = _read_experts(values) if kind == "glm4_moe" else {}
        num_heads, num_kv_heads, head_dim = _read_heads(values)
        return cls(
            model_type=kind,
            vocab=values.size("vocab_size"),
            hidden=values.size("hidden_size"),
            intermediate=values.size("intermediate_size"),
            num_layers=values.size("num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            rope_theta=rope.number("rope_theta", values.number("rope_theta", 10000.0)),
            rope_scaling=_read_scaling(rope),
            rms_eps=values.number("rms_norm_eps", 1e-6),
            tied_embeddings=values.flag("tie_word_embeddings"),
            attention_bias=bias,
            output_bias=bias and kind not in {"qwen2", "glm4_moe"},
            qk_norm=values.flag("use_qk_norm") if kind == "glm4_moe" else kind == "qwen3",
            rotary_share=_rotary_share(values),
            max_context=values.size("max_position_embeddings", 2048),
            bos_token_id=next(iter(values.token_ids("bos_token_id")), None),
            eos_token_ids=values.token_ids("eos_token_id"),
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


def _refuse_options(table: Mapping[str, Any], values: ConfigTable) -> None:
    """Options that would change the mathematics must not be overlooked."""
    wrong = {
        "hidden_act": values.text("hidden_act", "silu") not in {"silu", "swish"},
        "mlp_bias": values.flag("mlp_bias"),
        "use_sliding_window": values.flag("use_sliding_window"),
        "partial_rotary_factor": _rotary_share(values) != 1.0 and table.get("model_type") != "glm4_moe",
        "quantization_config": bool(table.get("quantization_config")),
    }
    for name, refused in wrong.items():
        if refused:
            found = f" = {table[name]!r}" if name in table else ""
            raise ModelFolderError(
                f"{name}{found} is not supported", where=values.where, expected=f"no {name}", mend=_MEND
            )


def _read_heads(values: ConfigTable) -> tuple[int, int, int]:
    """Heads, key and value heads, size of a head."""
    hidden, num_heads = values.size("hidden_size"), values.size("num_attention_heads")
    num_kv_heads = values.size("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise values.wrong("num_key_value_heads", f"a divisor of num_attention_heads = {num_heads}")
    head_dim = values.size("head_dim", hidden // num_heads or 1)
    if head_dim % 2:
        raise values.wrong("head_dim", f"an even number, as pairs are rotated; here {head_dim}")
    return num_heads, num_kv_heads, head_dim


def _rotary_share(values: ConfigTable) -> float:
    nested = ConfigTable(values.inner("rope_parameters"), values.where, "rope_parameters: ")
    return nested.number("partial_rotary_factor", values.number("partial_rotary_factor", 1.0))


def _read_experts(values: ConfigTable) -> dict[str, Any]:
    if values.size("n_group", 1) != 1 or values.size("topk_group", 1) != 1:
        raise ModelFolderError(
            "experts in groups are not supported", where=values.where, expected="n_group = 1", mend=_MEND
        )
    num_experts, chosen = values.size("n_routed_experts"), values.size("num_experts_per_tok")
    if chosen > num_experts:
        raise values.wrong("num_experts_per_tok", f"at most n_routed_experts = {num_experts}")
    return {
        "num_experts": num_experts,
        "experts_per_token": chosen,
        "expert_intermediate": values.size("moe_intermediate_size"),
        "num_shared_experts": values.size("n_shared_experts", 0, least=0),
        "num_dense_layers": values.size("first_k_dense_replace", 0, least=0),
        "routed_scaling": values.number("routed_scaling_factor", 1.0),
        "normalised_routing": values.flag("norm_topk_prob", True),
    }


def _read_scaling(rope: ConfigTable) -> RopeScaling | None:
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise ModelFolderError(
            f"rope scaling {kind!r} is not supported", where=rope.where, expected="default or llama3", mend=_MEND
        )
    return RopeScaling(
        factor=rope.number("factor"),
        low=rope.number("low_freq_factor"),
        high=rope.number("high_freq_factor"),
        original_context=rope.size("original_max_position_embeddings"),
    )
