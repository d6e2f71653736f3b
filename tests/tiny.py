"""A tiny model of random weights for tests of training, small enough to be made anew each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from flightschool.engines import TransformerConfig


@pytest.fixture(scope="session")
def tiny_config() -> TransformerConfig:
    return TransformerConfig(
        vocab=300, hidden=32, intermediate=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8
    )


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory, tiny_config: TransformerConfig) -> Path:
    """A model folder: bytes as tokens, ChatML, random weights."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    from flightschool.engines import ChatTokenizer, Transformer, save_model

    vocabulary = {symbol: i + 3 for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True) for text in ("<|im_start|>", "<|im_end|>")])
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "tokenizer.json").write_text(backend.to_str())
    save_model(
        Transformer(tiny_config).initialise(seed=0, std=0.2),
        folder / "model",
        tokenizer=ChatTokenizer.from_folder(folder),
    )
    return folder / "model"
