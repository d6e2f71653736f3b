"""A tiny random model and a tiny byte-level tokenizer, both made here: no downloads, no transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers.pre_tokenizers import ByteLevel

from flightschool.engines.architecture import TransformerConfig
from flightschool.engines.folders import LoadedModel
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
    }
    return TransformerConfig(**(sizes | changes))


def _make_loaded(seed: int = 0, **changes: Any) -> LoadedModel:
    config = _make_config(**changes)
    model = Transformer(config).initialise(seed, std=0.3)
    return LoadedModel(model=model, tokenizer=_make_tokenizer(), config=config, digest="sha256:tiny", path=Path("tiny"))


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
def loaded() -> LoadedModel:
    return _make_loaded()
