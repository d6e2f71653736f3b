"""A run's weights as a model folder that serves: low-rank changes merged, in Hugging Face's layout."""

from __future__ import annotations

from pathlib import Path

import msgspec
import torch
from safetensors.torch import load_file

from flightschool.engines.folders import load_model, read_state, save_model
from flightschool.errors import InputError
from flightschool.training.folders import RunFolder
from flightschool.training.run import read_run
from flightschool.training.settings import TrainingSettings
from flightschool.training.trainer import WEIGHTS_FILE, trained_names
from flightschool.training.weights import make_weights

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
    if step is None and folder.result.is_file():
        return save_model(load_model(folder.model, dtype=_dtype(folder.model)), out)
    checkpoint = folder.kept_checkpoint(step)
    settings = TrainingSettings.model_validate_json(start.settings)
    loaded = load_model(start.model, dtype=getattr(torch, settings.dtype))
    names = trained_names(dict(loaded.model.named_parameters()), loaded.config.num_layers, settings.trained_layers)
    base = read_state(start.model) if settings.lora_rank else {}
    make_weights(loaded.model, names, settings, base.__getitem__).restore(load_file(checkpoint / WEIGHTS_FILE))
    return save_model(loaded, out)


def _dtype(model: Path) -> torch.dtype:
    table = msgspec.json.decode((model / "config.json").read_bytes())
    found = getattr(torch, str(table.get("torch_dtype", "float32")))
    assert isinstance(found, torch.dtype)
    return found
