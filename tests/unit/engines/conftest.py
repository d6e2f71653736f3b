"""A tiny random model and a tiny byte-level tokenizer, both made here: no downloads, no transformers."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers.pre_tokenizers import ByteLevel

from flightschool.engines.architecture import TransformerConfig
from flightschool.engines.folders import LoadedModel, save_model
from flightschool.engines.tokenizer import ChatTokenizer
from flightschool.engines.transformer import Transformer

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def _tokenizer_table(special: tuple[str, ...] = SPECIAL) -> dict[str, Any]:
    """A byte-level BPE with 256 byte tokens, a few merges and special tokens."""
    tokens = [*special, *sorted(ByteLevel.alphabet())]
    merges = [["t", "h"], ["th", "e"], ["Ġ", "the"], ["u", "s"], ["us", "e"], ["use", "r"]]
    tokens += ["".join(pair) for pair in merges]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": text, **flags} for index, text in enumerate(special)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": merges,
        },
    }


def _make_tokenizer(special: tuple[str, ...] = SPECIAL) -> ChatTokenizer:
    return ChatTokenizer({"tokenizer.json": json.dumps(_tokenizer_table(special)).encode()})


def _make_config(**changes: Any) -> TransformerConfig:
    sizes: dict[str, Any] = {
        "vocab": 300,
        "hidden": 32,
        "intermediate": 48,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "max_context": 256,
        "eos_token_ids": (2,),
    }
    return TransformerConfig(**(sizes | changes))


def _make_loaded(seed: int = 0, **changes: Any) -> LoadedModel:
    config = _make_config(**changes)
    model = Transformer(config).initialise(seed, std=0.3)
    return LoadedModel(model=model, tokenizer=_make_tokenizer(), config=config, digest="sha256:tiny", path=Path("tiny"))


def _packed(value: Any) -> bytes:
    """A GGUF metadata value with its type."""
    if isinstance(value, str):
        return struct.pack("<I", 8) + _string(value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    inner = [_packed(item) for item in value]
    return struct.pack("<I", 9) + inner[0][:4] + struct.pack("<Q", len(inner)) + b"".join(item[4:] for item in inner)


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "model.layers": "blk",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _write_gguf(loaded: LoadedModel, path: Path) -> None:
    """A GGUF file of a tiny model, float32, with query and key rows interleaved as that format wants them."""
    config = loaded.config
    vocab = json.loads(loaded.tokenizer.files["tokenizer.json"])["model"]
    tokens = [*sorted(vocab["vocab"], key=vocab["vocab"].get), *(f"<unused{i}>" for i in range(config.vocab))]
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": config.num_layers,
        "llama.context_length": config.max_context,
        "llama.embedding_length": config.hidden,
        "llama.feed_forward_length": config.intermediate,
        "llama.attention.head_count": config.num_heads,
        "llama.attention.head_count_kv": config.num_kv_heads,
        "llama.rope.freq_base": config.rope_theta,
        "llama.rope.dimension_count": config.head_dim,
        "llama.attention.layer_norm_rms_epsilon": config.rms_eps,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens[: config.vocab],
        "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (config.vocab - len(SPECIAL)),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in vocab["merges"]],
        "tokenizer.ggml.eos_token_id": 2,
    }
    table, data = b"", b""
    for name, tensor in loaded.model.state_dict().items():
        if "q_proj" in name or "k_proj" in name:
            num_heads = tensor.shape[0] // config.head_dim
            tensor = tensor.view(num_heads, 2, config.head_dim // 2, -1).transpose(1, 2).reshape(tensor.shape)
        for theirs, ours in _GGUF_NAMES.items():
            name = name.replace(theirs, ours)
        shape = tuple(reversed(tensor.shape))
        table += _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += tensor.numpy().tobytes()
        data += bytes(-len(data) % 32)
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(loaded.model.state_dict()), len(metadata))
    header += b"".join(_string(key) + _packed(value) for key, value in metadata.items()) + table
    path.write_bytes(header + bytes(-len(header) % 32) + data)


@pytest.fixture
def write_gguf() -> Callable[[LoadedModel, Path], None]:
    return _write_gguf


@pytest.fixture
def tokenizer_table() -> Callable[..., dict[str, Any]]:
    return _tokenizer_table


@pytest.fixture
def make_tokenizer() -> Callable[..., ChatTokenizer]:
    return _make_tokenizer


@pytest.fixture
def make_config() -> Callable[..., TransformerConfig]:
    return _make_config


@pytest.fixture
def make_loaded() -> Callable[..., LoadedModel]:
    return _make_loaded


@pytest.fixture
def tokenizer() -> ChatTokenizer:
    return _make_tokenizer()


@pytest.fixture
def loaded() -> LoadedModel:
    return _make_loaded()


@pytest.fixture
def folder(tmp_path: Path, make_loaded: Callable[..., LoadedModel]) -> Path:
    """A folder of the tiny model."""
    save_model(make_loaded(), tmp_path / "model")
    return tmp_path / "model"
