"""A model folder of next to no size, made here: byte tokens, two layers, random weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers.pre_tokenizers import ByteLevel

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from flightschool.engines import ChatTokenizer, Transformer, TransformerConfig, save_model

    config = TransformerConfig(
        vocab=300,
        hidden=32,
        intermediate=48,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        max_context=8192,
        eos_token_ids=(2,),
    )
    tokenizer = ChatTokenizer({"tokenizer.json": json.dumps(_tokenizer_table()).encode()})
    folder = tmp_path_factory.mktemp("model") / "small"
    save_model(Transformer(config).initialise(0, std=0.3), folder, tokenizer=tokenizer)
    return folder


def _tokenizer_table() -> dict[str, object]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokens = [*SPECIAL, *sorted(ByteLevel.alphabet())]
    return {
        "version": "1.0",
        "added_tokens": [{"id": index, "content": text, **flags} for index, text in enumerate(SPECIAL)],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {token: index for index, token in enumerate(tokens)}, "merges": []},
    }
