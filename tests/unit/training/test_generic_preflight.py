"""Models that only transformers knows: what is refused before anything is loaded."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from tests.foreign import foreign_folder

from flightschool.engines import EngineSettings
from flightschool.errors import ConfigError, InputError, ModelFolderError
from flightschool.training import TrainingSettings, preflight


def test_a_model_that_only_transformers_knows_needs_its_engine(tiny_folder: Path, tmp_path: Path) -> None:
    folder = foreign_folder("gpt2", tiny_folder, tmp_path / "model")
    with pytest.raises(ModelFolderError, match="unsupported model type 'gpt2'") as caught:
        preflight(TrainingSettings(), folder)
    assert "engine.kind = 'hf'" in caught.value.mend
    preflight(TrainingSettings(), folder, EngineSettings(kind="hf"))
    preflight(TrainingSettings(), folder, EngineSettings(kind="vllm", url="http://127.0.0.1:1"))


FOREIGN_REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("gpt2", {"num_trainers": 2}, r"training\.num_trainers = 2 with 'gpt2'"),
    ("qwen3_moe", {}, r"training\.routing_replay = true with 'qwen3_moe'"),
    ("gpt2", {"max_new_tokens": 300}, "less than a context of 256"),
    ("gpt2", {"lora_rank": 33}, "lora_rank = 33 is too large"),
]


@pytest.mark.parametrize(("name", "fields", "words"), FOREIGN_REFUSALS)
def test_what_the_generic_trainer_does_not_do_is_refused(
    tiny_folder: Path, tmp_path: Path, name: str, fields: dict[str, Any], words: str
) -> None:
    folder = foreign_folder(name, tiny_folder, tmp_path / "model")
    with pytest.raises(ConfigError, match=words) as caught:
        preflight(TrainingSettings(**fields), folder, EngineSettings(kind="hf"))
    assert caught.value.mend


def test_a_server_needs_files_that_name_tensors_as_the_model_does(tiny_folder: Path, tmp_path: Path) -> None:
    folder = foreign_folder("gpt2", tiny_folder, tmp_path / "model")
    state = load_file(folder / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in state.items()}  # as GPT-2 was published
    save_file(bare, folder / "model.safetensors", metadata={"format": "pt"})
    preflight(TrainingSettings(), folder, EngineSettings(kind="hf"))
    with pytest.raises(ConfigError, match=r"engine\.kind = 'vllm' with 'gpt2'"):
        preflight(TrainingSettings(), folder, EngineSettings(kind="vllm", url="http://127.0.0.1:1"))


def test_a_foreign_configuration_that_makes_no_model_is_one_error(tiny_folder: Path, tmp_path: Path) -> None:
    folder = foreign_folder("gpt2", tiny_folder, tmp_path / "model")
    table = json.loads((folder / "config.json").read_text())
    for change in ({"n_head": 0}, {"n_head": 5}, {"model_type": "made_up"}, {"n_embd": "wide"}):
        (folder / "config.json").write_text(json.dumps(table | change))
        with pytest.raises(ModelFolderError, match="transformers cannot load this folder"):
            preflight(TrainingSettings(), folder, EngineSettings(kind="hf"))


def test_without_transformers_the_extra_is_named(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = foreign_folder("gpt2", tiny_folder, tmp_path / "model")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="needs transformers") as caught:
        preflight(TrainingSettings(), folder, EngineSettings(kind="hf"))
    assert "flightschool[hf]" in caught.value.mend


@pytest.mark.long
def test_the_architecture_decides_who_trains_and_our_own_needs_no_transformers(
    tiny_folder: Path, tmp_path: Path
) -> None:
    foreign = foreign_folder("gpt2", tiny_folder, tmp_path / "model")
    code = (
        "import sys\n"
        "from flightschool.training.messages import TrainerSpec\n"
        "from flightschool.training.trainers import make_trainer\n"
        "row = {'run': 'r', 'incarnation': 0, 'step': 0, 'weights': '', 'settings': '{}'}\n"
        "spec = TrainerSpec(model=sys.argv[1], run_dir=sys.argv[2], **row)\n"
        "print(type(make_trainer(spec)).__name__, 'transformers' in sys.modules)\n"
    )
    for folder, said in ((tiny_folder, "TorchTrainer False"), (foreign, "GenericTrainer True")):
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder), str(tmp_path)], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == said


@pytest.mark.parametrize(("kind", "words"), [("torch", "unsupported model type 'gpt2'"), ("hf", None)])
def test_a_job_names_its_model_before_any_station_begins(
    tiny_folder: Path, tmp_path: Path, kind: str, words: str | None
) -> None:
    from flightschool.cli.quickstart import resolve_model

    folder = foreign_folder("gpt2", tiny_folder, tmp_path / "model")
    engine = EngineSettings(kind=kind)  # type: ignore[arg-type]
    if words is None:
        assert resolve_model(str(folder), engine, None) == folder
    else:
        with pytest.raises(ModelFolderError, match=words):
            resolve_model(str(folder), engine, None)
