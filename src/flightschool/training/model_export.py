"""A run's weights as a model folder that serves: low-rank changes merged, in Hugging Face's layout."""

from __future__ import annotations

from pathlib import Path

import msgspec
import torch
from safetensors.torch import load_file

from flightschool.engines.folders import load_model, save_model
from flightschool.engines.opening import local_kind
from flightschool.errors import InputError
from flightschool.training.folders import RunFolder
from flightschool.training.run import read_run
from flightschool.training.settings import TrainingSettings
from flightschool.training.trainer import WEIGHTS_FILE, own_weights, trained_names

__all__ = ["export_model"]


def export_model(run_dir: Path, out: Path, step: int | None = None) -> str:
    """Write the weights of a run as a model folder.

    Args:
        run_dir: the run.
        out: the folder to write; must not exist.
        step: of a checkpoint that is kept; None: the final model, or the newest checkpoint of an unfinished run.

    Returns:
        The digest of the folder.

    Raises:
        NotFoundError: no such run, or it keeps no such weights.
        InputError: ``out`` exists.
    """
    start, folder = read_run(run_dir), RunFolder(run_dir)
    if out.exists():
        raise InputError("the folder exists", where=str(out), expected="a new folder", mend="name another one")
    settings = TrainingSettings.model_validate_json(start.settings)
    dtype = getattr(torch, settings.dtype)
    if step is None and folder.result.is_file():
        return _copied(folder.model, out, dtype)
    state = load_file(folder.kept_checkpoint(step) / WEIGHTS_FILE)
    if local_kind(Path(start.model)) == "hf":
        from flightschool.engines.hf_folders import load_hf_model, save_hf_model
        from flightschool.training.generic import foreign_weights

        generic = load_hf_model(start.model, dtype=dtype)
        foreign_weights(generic, settings).restore(state)
        return save_hf_model(generic, out)
    loaded = load_model(start.model, dtype=dtype)
    names = trained_names(dict(loaded.model.named_parameters()), loaded.config.num_layers, settings.trained_layers)
    own_weights(loaded.model, names, settings, Path(start.model)).restore(state)
    return save_model(loaded, out)


def _copied(model: Path, out: Path, dtype: torch.dtype) -> str:
    """The final model; our own files say their type themselves."""
    if local_kind(model) == "hf":
        from flightschool.engines.hf_folders import load_hf_model, save_hf_model

        return save_hf_model(load_hf_model(model, dtype=dtype), out)
    return save_model(load_model(model, dtype=_dtype(model)), out)


def _dtype(model: Path) -> torch.dtype:
    table = msgspec.json.decode((model / "config.json").read_bytes())
    found = getattr(torch, str(table.get("torch_dtype", "float32")))
    assert isinstance(found, torch.dtype)
    return found
