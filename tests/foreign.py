"""Tiny folders of architectures that our own transformer does not know; transformers makes them at random."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

WIDE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 256}
FOREIGN: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 256}),
    "gpt_neox": ("GPTNeoXConfig", {**WIDE, "intermediate_size": 64}),
    "opt": ("OPTConfig", {**WIDE, "ffn_dim": 64, "word_embed_proj_dim": 16}),
    "bloom": ("BloomConfig", {"hidden_size": 32, "n_layer": 2, "n_head": 2}),
    "gemma2": (
        "Gemma2Config",
        {
            **WIDE,
            "intermediate_size": 64,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "sliding_window": 8,
            "final_logit_softcapping": 2.0,
        },
    ),
    "cohere": ("CohereConfig", {**WIDE, "intermediate_size": 64}),
    "mamba": ("MambaConfig", {"hidden_size": 32, "state_size": 4, "num_hidden_layers": 2}),
    "qwen3_moe": (
        "Qwen3MoeConfig",
        {
            **WIDE,
            "intermediate_size": 32,
            "moe_intermediate_size": 16,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "num_experts": 4,
            "num_experts_per_tok": 2,
        },
    ),
}


def foreign_folder(name: str, tokenizer: Path, folder: Path, vocab: int = 300, end: int = 257) -> Path:
    """A model folder of an architecture, with random weights large enough to be of some opinion.

    Args:
        name: of ``FOREIGN``.
        tokenizer: folder with tokenizer.json.
        folder: to write.
        vocab: rows of the output.
        end: id that ends a turn, by default that of ``tiny_folder``.
    """
    import torch
    import transformers

    torch.manual_seed(0)
    kind, sizes = FOREIGN[name]
    config = getattr(transformers, kind)(
        vocab_size=vocab, pad_token_id=0, bos_token_id=1, eos_token_id=end, initializer_range=0.2, **sizes
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases too, so that none of them can be forgotten unseen
            parameter.add_(0.02 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    for file in tokenizer.glob("tokenizer*.json"):
        shutil.copy(file, folder / file.name)
    return folder
