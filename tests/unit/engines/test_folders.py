from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from flightschool.engines.folders import LoadedModel, load_model, save_model
from flightschool.engines.fresh import fresh_folder
from flightschool.errors import ModelFolderError


@pytest.fixture
def folder(loaded: LoadedModel, tmp_path: Path) -> Path:
    save_model(loaded, tmp_path / "model")
    return tmp_path / "model"


def test_a_saved_model_loads_as_it_was(loaded: LoadedModel, tmp_path: Path) -> None:
    digest = save_model(loaded, tmp_path / "a" / "model")
    again = load_model(tmp_path / "a" / "model")
    assert (again.config, again.digest) == (loaded.config, digest)
    assert again.tokenizer.turn("user", "the é") == loaded.tokenizer.turn("user", "the é")
    for name, tensor in loaded.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name])
    assert all(parameter.requires_grad for parameter in again.model.parameters())
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["model"]


@pytest.mark.parametrize("changes", [{"model_type": "qwen2", "attention_bias": True, "tied_embeddings": False}])
def test_biases_and_untied_heads_survive(
    make_loaded: Callable[..., LoadedModel], tmp_path: Path, changes: dict[str, object]
) -> None:
    loaded = make_loaded(**changes)
    save_model(loaded, tmp_path / "m")
    again = load_model(tmp_path / "m", dtype=torch.bfloat16)
    state = again.model.state_dict()
    assert {"lm_head.weight", "model.layers.0.self_attn.q_proj.bias"} <= state.keys()
    assert state["lm_head.weight"].dtype == torch.bfloat16


def test_training_in_place_never_reaches_the_file(folder: Path) -> None:
    loaded = load_model(folder)
    before = load_file(folder / "model.safetensors")["model.norm.weight"].clone()
    with torch.no_grad():
        loaded.model.model.norm.weight.add_(1.0)
    assert torch.equal(load_file(folder / "model.safetensors")["model.norm.weight"], before)


def test_sharded_weights_load(folder: Path) -> None:
    whole = load_model(folder)
    state = load_file(folder / "model.safetensors")
    names = sorted(state)
    shards = {"model-1.safetensors": names[:5], "model-2.safetensors": names[5:]}
    for file, part in shards.items():
        save_file({name: state[name] for name in part}, folder / file)
    index = {"weight_map": {name: file for file, part in shards.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
    sharded = load_model(folder)
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), sharded.model.parameters(), strict=True))
    assert sharded.digest != whole.digest
    (folder / "model-2.safetensors").unlink()
    with pytest.raises(ModelFolderError, match=re.escape("weights are missing: model-2.safetensors")):
        load_model(folder)


def test_replacing_a_folder_leaves_one(folder: Path, make_loaded: Callable[..., LoadedModel]) -> None:
    other = make_loaded(7)
    save_model(other.model, folder, tokenizer=other.tokenizer)
    assert torch.equal(load_model(folder).model.model.norm.weight, other.model.model.norm.weight)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_another_state_can_be_written(folder: Path, loaded: LoadedModel) -> None:
    state = {name: tensor + 1 for name, tensor in loaded.model.state_dict().items()}
    save_model(loaded, folder, state=state)
    assert torch.equal(load_model(folder).model.model.norm.weight, loaded.model.model.norm.weight + 1)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "kept").touch()
    with pytest.raises(KeyError), fresh_folder(tmp_path / "m") as fresh:  # noqa: PT012
        (fresh / "half").touch()
        raise KeyError
    assert [path.name for path in tmp_path.rglob("*")] == ["m", "kept"]


def _remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _write(name: str, text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_text(text)

    return write


def _edit_config(**changes: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        table = json.loads((folder / "config.json").read_text()) | changes
        (folder / "config.json").write_text(json.dumps(table))

    return edit


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (_remove("config.json"), "config.json is missing"),
        (_remove("tokenizer.json"), "tokenizer.json is missing"),
        (_remove("model.safetensors"), "weights are missing"),
        (_write("config.json", "{"), "config.json cannot be read"),
        (_write("config.json", "[]"), "config.json is no object"),
        (_write("model.safetensors", "junk" * 100), "weights cannot be read"),
        (_edit_config(vocab_size=100), "the tokenizer has 265 ids, the model only 100 rows"),
        (_edit_config(num_hidden_layers=3), r"9 tensor\(s\) missing, for instance model\.layers\.2"),
        (_edit_config(num_hidden_layers=1), r"9 tensor\(s\) unknown, for instance model\.layers\.1"),
        (_edit_config(intermediate_size=50), r"has shape \(48, 32\).*expected shape \(50, 32\)"),
    ],
)
def test_a_damaged_folder_is_named_with_the_mend(folder: Path, damage: Callable[[Path], None], what: str) -> None:
    damage(folder)
    with pytest.raises(ModelFolderError, match=what) as caught:
        load_model(folder)
    assert str(folder) in caught.value.where
    assert caught.value.mend


def test_no_folder_and_no_tokenizer(tmp_path: Path, loaded: LoadedModel) -> None:
    with pytest.raises(ModelFolderError, match="model folder not found"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(ModelFolderError, match="without its tokenizer"):
        save_model(loaded.model, tmp_path / "m")
