from __future__ import annotations

from pathlib import Path

import pytest
from tests import needs

from flightschool.engines import Transformer, TransformerConfig, load_model, save_model
from flightschool.engines.catalogue import cache_root
from flightschool.engines.tokenizer import ChatTokenizer


@pytest.fixture
def tiny_model(tmp_path: Path) -> Path:
    config = TransformerConfig(
        vocab=1024, hidden=16, intermediate=16, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=8
    )
    tokenizer = ChatTokenizer.from_folder(Path(load_model.__code__.co_filename).parent / "tiny")
    save_model(Transformer(config).initialise(0), tmp_path / "model", tokenizer=tokenizer)
    return tmp_path / "model"


@pytest.fixture(scope="module")
def folder() -> Path:
    """SmolLM2, which live servers serve."""
    folder = cache_root() / "models" / "smollm2-135m"
    if not folder.is_dir():
        needs.skip("SmolLM2 in the cache", "`flightschool models get smollm2-135m`")
    return folder
