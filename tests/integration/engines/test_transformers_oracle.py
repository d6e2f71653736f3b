"""Our transformer against an independent implementation, both ways, on tiny random models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from flightschool.engines import CausalAttention, load_model, save_model

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]

SIZES = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "initializer_range": 0.3,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "llama with biases": ("LlamaConfig", {"attention_bias": True, "tie_word_embeddings": True}),
    "llama 3": ("LlamaConfig", {"rope_scaling": LLAMA3}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 16}),
}


def write_tokenizer(folder: Path) -> None:
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate([*specials, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(specials)
    tokenizer.save(str(folder / "tokenizer.json"))


def our_logits(folder: Path, tokens: torch.Tensor) -> torch.Tensor:
    model = load_model(folder).model
    with torch.no_grad():
        return model.logits(model(tokens, torch.arange(len(tokens)), CausalAttention([len(tokens)])))


def their_logits(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(tokens[None]).logits[0]
    return logits


@pytest.mark.parametrize("name", MODELS)
def test_logits_agree_and_folders_go_both_ways(name: str, tmp_path: Path) -> None:
    kind, changes = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**(SIZES | changes))
    theirs = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter_name, parameter in theirs.named_parameters():
            if parameter.ndim == 1:  # norms and biases would otherwise be ones and zeros
                parameter.add_(torch.randn_like(parameter) * 0.3)
            assert parameter_name
    theirs.save_pretrained(tmp_path / "theirs")
    write_tokenizer(tmp_path / "theirs")
    tokens = torch.randint(0, 300, (150,))
    expected = their_logits(theirs, tokens)
    torch.testing.assert_close(our_logits(tmp_path / "theirs", tokens), expected, atol=1e-4, rtol=1e-4)

    save_model(load_model(tmp_path / "theirs"), tmp_path / "ours")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
    torch.testing.assert_close(their_logits(again, tokens), expected, atol=1e-5, rtol=1e-5)


def test_sharded_folders_of_transformers_load(tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**SIZES)).eval()
    theirs.save_pretrained(tmp_path / "m", max_shard_size="40KB")
    write_tokenizer(tmp_path / "m")
    index = json.loads((tmp_path / "m" / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 1
    tokens = torch.arange(60)
    torch.testing.assert_close(our_logits(tmp_path / "m", tokens), their_logits(theirs, tokens), atol=1e-4, rtol=1e-4)
    shutil.rmtree(tmp_path / "m")
