"""Bad input: one clear error before anything is loaded."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from flightschool.config import parse_settings
from flightschool.engines.onboarding import check_padding, check_template
from flightschool.engines.settings import EngineSettings
from flightschool.engines.tokenizer import ChatTokenizer
from flightschool.errors import ConfigError, FlightschoolError, ModelFolderError
from flightschool.training import preflight
from flightschool.training.settings import TrainingSettings


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folder, tmp_path / "model"))


def test_a_model_that_fits_passes_without_torch(folder: Path) -> None:
    preflight(TrainingSettings(), folder)
    code = (
        "import sys, pathlib; from flightschool.training import preflight, TrainingSettings;"
        f"preflight(TrainingSettings(), pathlib.Path({str(folder)!r})); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"group_sise": 8}, "unknown key 'group_sise'"),
    ({"group_size": 1}, "wrong value of 'group_size': 1"),
    ({"group_size": "8"}, "wrong value of 'group_size': '8'"),
    ({"group_size": 8.0}, "wrong value of 'group_size': 8.0"),
    ({"group_size": True}, "wrong value of 'group_size': True"),
    ({"learning_rate": "1e-4"}, "wrong value of 'learning_rate': '1e-4'"),
    ({"learning_rate": True}, "wrong value of 'learning_rate': True"),
    ({"overlong_limit": "8", "algorithm": "dapo"}, "wrong value of 'overlong_limit': '8'"),
    ({"shuffle_rewards": "yes"}, "wrong value of 'shuffle_rewards': 'yes'"),
    ({"shuffle_rewards": 1}, "wrong value of 'shuffle_rewards': 1"),
    ({"num_steps": 0}, "wrong value of 'num_steps'"),
    ({"groups_per_step": -3}, "wrong value of 'groups_per_step'"),
    ({"learning_rate": float("nan")}, "wrong value of 'learning_rate'"),
    ({"learning_rate": float("inf")}, "wrong value of 'learning_rate'"),
    ({"max_new_tokens": 2048}, "max_new_tokens below max_context"),
    ({"trained_members": 9}, "trained_members of at most group_size"),
    ({"max_staleness": 0}, "wrong value of 'max_staleness'"),
    ({"device": "cuda:x"}, "wrong value of 'device'"),
    ({"algorithm": "ppo2"}, "wrong value of 'algorithm'"),
    ({"group_size": 100_000_000}, "wrong value of 'group_size'"),
    ({"groups_per_step": 1_000_000}, "wrong value of 'groups_per_step'"),
    ({"max_inflight_groups": 1_000_000}, "wrong value of 'max_inflight_groups'"),
    ({"num_threads": 1_000_000}, "wrong value of 'num_threads'"),
    ({"num_trainers": 1_000_000}, "wrong value of 'num_trainers'"),
    ({"num_trainers": 2, "lora_rank": 8}, "num_trainers 1 with lora_rank"),
]


@pytest.mark.parametrize(("fields", "words"), SETTINGS)
def test_settings_that_cannot_work_are_one_error(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings(fields, TrainingSettings, "train.toml")
    assert words in str(caught.value)
    assert caught.value.mend


def test_what_toml_can_write_in_one_way_only_is_taken() -> None:
    """A whole number for a number, a list for a tuple, a text for a path, and None where it may be."""
    table = {
        "learning_rate": 1,
        "trackers": ["tensorboard"],
        "lora_rank": 2,
        "lora_alpha": 4,
        "veto": None,
        "group_size": 4,
    }
    settings = parse_settings(table, TrainingSettings, "train.toml")
    assert (settings.learning_rate, settings.trackers, settings.lora_alpha) == (1.0, ("tensorboard",), 4.0)
    assert parse_settings({"publish_to": "there"}, EngineSettings, "train.toml").publish_to == Path("there")
    assert TrainingSettings.model_validate_json(settings.model_dump_json()) == settings


def edit(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-500])


def lose_a_shard(folder: Path) -> None:
    table = {"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(table))


FOLDERS: list[tuple[str, Callable[[Path], object], type[FlightschoolError]]] = [
    ("no such folder", shutil.rmtree, ModelFolderError),
    ("config.json is missing", lambda folder: (folder / "config.json").unlink(), ModelFolderError),
    ("cut config", lambda folder: (folder / "config.json").write_text("{"), ModelFolderError),
    ("unsupported", lambda folder: edit(folder, model_type="mamba"), ModelFolderError),
    ("a smaller vocabulary than the tokenizer", lambda folder: edit(folder, vocab_size=100), ModelFolderError),
    ("ends of another tokenizer", lambda folder: edit(folder, eos_token_id=5), ModelFolderError),
    ("weights of another model", lambda folder: edit(folder, hidden_size=64, head_dim=8), ModelFolderError),
    ("no tokenizer", lambda folder: (folder / "tokenizer.json").unlink(), ModelFolderError),
    ("more layers than the weights have", lambda folder: edit(folder, num_hidden_layers=8), ModelFolderError),
    ("layers without end", lambda folder: edit(folder, num_hidden_layers=10**12), ModelFolderError),
    ("fewer layers than the weights have", lambda folder: edit(folder, num_hidden_layers=1), ModelFolderError),
    ("another inner size", lambda folder: edit(folder, intermediate_size=512), ModelFolderError),
    ("heads that the weights do not have", lambda folder: edit(folder, num_attention_heads=3), ModelFolderError),
    ("a weights file that was cut", lambda folder: cut(folder / "model.safetensors"), ModelFolderError),
    ("a shard that is missing", lose_a_shard, ModelFolderError),
    ("no weights", lambda folder: (folder / "model.safetensors").unlink(), ModelFolderError),
    ("broken weights", lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 64), ModelFolderError),
]


@pytest.mark.parametrize(("case", "spoil", "kind"), FOLDERS, ids=[case for case, _, _ in FOLDERS])
def test_folders_that_cannot_work_are_one_error(
    folder: Path, case: str, spoil: Callable[[Path], object], kind: type[FlightschoolError]
) -> None:
    spoil(folder)
    with pytest.raises(kind) as caught:
        preflight(TrainingSettings(), folder)
    assert caught.value.where
    assert caught.value.expected


def test_what_is_not_used_is_not_asked_for(folder: Path) -> None:
    """Packs are flat, so no pad token; turns are appended by our own format, so the folder's template may rewrite."""
    forgets = "{% for m in messages %}{% if loop.last or m.role != 'assistant' %}{{ m.content }}{% endif %}{% endfor %}"
    table = {"chat_template": forgets}
    (folder / "tokenizer_config.json").write_text(json.dumps(table))
    preflight(TrainingSettings(), folder)
    tokenizer = ChatTokenizer.from_folder(folder)
    assert not check_template(folder, tokenizer, table).passed  # ``models check`` tells whoever serves the model
    assert not check_padding(tokenizer, {}, table).passed


def test_what_the_model_cannot_hold_is_refused(folder: Path) -> None:
    edit(folder, max_position_embeddings=32)
    with pytest.raises(ConfigError, match="max_new_tokens = 64 is too large"):
        preflight(TrainingSettings(), folder)
    with pytest.raises(ConfigError, match="lora_rank = 64 is too large"):
        preflight(TrainingSettings(lora_rank=64, max_new_tokens=8), folder)


def test_a_device_that_is_absent_is_named(folder: Path) -> None:
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    with pytest.raises(ConfigError, match=r"device 'cuda:\d+' is not there"):
        preflight(TrainingSettings(device=f"cuda:{there}"), folder)


def test_a_tracker_without_its_package_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="trackio"):
        preflight(TrainingSettings(trackers=("trackio",)), folder)


def test_opentelemetry_needs_its_exporter_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the run would finish and its figures be lost."""
    found = object()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if "exporter" in name else found)
    with pytest.raises(ConfigError, match=r"opentelemetry\.exporter\.otlp\.proto\.http"):
        preflight(TrainingSettings(trackers=("opentelemetry",)), folder)
    monkeypatch.setattr(sys.modules[preflight.__module__], "exports_itself", lambda: True)
    preflight(TrainingSettings(trackers=("opentelemetry",)), folder)


def test_no_more_layers_train_than_there_are(folder: Path) -> None:
    num = json.loads((folder / "config.json").read_text())["num_hidden_layers"]
    preflight(TrainingSettings(trained_layers=num), folder)
    with pytest.raises(ConfigError, match=f"trained_layers = {num + 1} is too large"):
        preflight(TrainingSettings(trained_layers=num + 1), folder)
