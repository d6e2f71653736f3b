"""How what is cached is gone on from, tried before it is believed; and folders that lack weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.foreign import foreign_folder
from tests.tiny import tiny_config, tiny_folder

from flightschool.engines.hf_folders import HfModel, load_hf_model, save_hf_model
from flightschool.engines.plain_pass import extension_of
from flightschool.errors import ModelFolderError

__all__ = ["tiny_config", "tiny_folder"]


@pytest.fixture
def make(tiny_folder: Path, tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: foreign_folder(name, tiny_folder, tmp_path / name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_state_that_takes_several_tokens_for_a_beginning_gets_them_one_by_one(
    make: Callable[[str], Path], dtype: torch.dtype
) -> None:
    for name, way in {"gpt2": "at once", "gemma2": "at once", "bloom": "at once", "mamba": "one by one"}.items():
        assert extension_of(load_hf_model(make(name), dtype=dtype)) == way


def test_a_cache_that_cannot_be_gone_on_from_is_made_anew(
    make: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_hf_model(make("gpt2"))
    feed = HfModel.feed
    monkeypatch.setattr(HfModel, "feed", lambda self, tokens, state=None: feed(self, tokens, None))
    assert extension_of(model) == "anew"


def test_weights_that_are_not_in_the_files_are_not_drawn_at_random(make: Callable[[str], Path]) -> None:
    folder = make("gpt2")
    state = load_file(folder / "model.safetensors")
    del state["transformer.h.1.mlp.c_fc.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelFolderError, match=r"1 weight\(s\) are missing, for instance transformer.h.1.mlp.c_fc"):
        load_hf_model(folder)


def test_a_saved_folder_keeps_what_the_configuration_said(make: Callable[[str], Path], tmp_path: Path) -> None:
    folder = make("gpt2")
    table = json.loads((folder / "config.json").read_text()) | {"note": "kept"}
    (folder / "config.json").write_text(json.dumps(table))
    strange = {"do_sample": False, "temperature": 0.3, "max_length": -1}
    (folder / "generation_config.json").write_text(json.dumps(strange))
    loaded = load_hf_model(folder, dtype=torch.bfloat16)
    digest = save_hf_model(loaded, tmp_path / "out")
    saved = json.loads((tmp_path / "out" / "config.json").read_text())
    assert saved == table | {"dtype": "bfloat16"}
    assert json.loads((tmp_path / "out" / "generation_config.json").read_text()) == strange
    assert load_hf_model(tmp_path / "out").digest == digest
