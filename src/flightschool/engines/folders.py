"""Model folders in Hugging Face's layout: loaded without copying, saved so that other libraries read them.

Weights are mapped into memory copy-on-write: loading costs no time or memory until pages are touched, and updating a
parameter in place never reaches the file. A folder is written beside its place and renamed into it, so a killed
writer leaves no half-written model under the final name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from flightschool.engines.architecture import TransformerConfig
from flightschool.engines.fresh import fresh_folder
from flightschool.engines.tokenizer import ChatTokenizer
from flightschool.engines.transformer import Transformer
from flightschool.engines.weight_files import FOLDER, SAVE_AGAIN, check_shapes, is_redundant, read_json, weight_files
from flightschool.errors import ModelFolderError

__all__ = ["LoadedModel", "build_model", "digest_folder", "load_model", "read_json", "read_state", "save_model"]

_FLOAT32 = "e_score_correction_bias"
"""Of a router: decides between experts, so it is never rounded."""


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model with its tokenizer. The module is shared, not copied, by whoever holds this record."""

    model: Transformer
    tokenizer: ChatTokenizer
    config: TransformerConfig
    digest: str
    """SHA-256 over configuration, tokenizer and weights files."""
    path: Path


def load_model(
    directory: Path | str, *, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
) -> LoadedModel:
    """Load a model folder.

    Args:
        directory: the folder.
        device: where the parameters go.
        dtype: what they are computed in; a file of this type is mapped, any other is converted.

    Raises:
        ModelFolderError: a file is missing or broken, shapes do not fit the configuration, or tokenizer and model
            do not fit each other.
    """
    folder = Path(directory)
    config = TransformerConfig.from_hf(read_json(folder / "config.json"), where=str(folder / "config.json"))
    files = weight_files(folder)
    tokenizer = ChatTokenizer.from_folder(folder)
    if tokenizer.num_ids > config.vocab:
        raise ModelFolderError(
            f"the tokenizer has {tokenizer.num_ids} ids, the model only {config.vocab} rows",
            where=str(folder),
            expected="the tokenizer that the model was trained with",
            mend="copy the right tokenizer.json into the folder",
        )
    model = build_model(config, _read_weights(files), device=device, dtype=dtype, where=str(folder))
    return LoadedModel(model=model, tokenizer=tokenizer, config=config, digest=digest_folder(folder), path=folder)


def digest_folder(folder: Path) -> str:
    """SHA-256 over configuration, tokenizer and weights files of a model folder.

    Raises:
        ModelFolderError: a file is missing.
    """
    read_json(folder / "config.json")
    files = [folder / "config.json", folder / "tokenizer.json", *weight_files(folder)]
    missing = next((file for file in files if not file.is_file()), None)
    if missing is not None:
        raise ModelFolderError(
            f"{missing.name} is missing", where=str(folder), expected=FOLDER, mend="copy it into the folder"
        )
    return _digest_files(files)


def read_state(directory: Path | str) -> dict[str, Tensor]:
    """The tensors of a model folder as its files have them, mapped: they cost no memory until they are looked at.

    Raises:
        ModelFolderError: there are none, or they cannot be read.
    """
    return _read_weights(weight_files(Path(directory)))


def build_model(
    config: TransformerConfig,
    state: Mapping[str, Tensor],
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    where: str = "state",
) -> Transformer:
    """A model that takes over the tensors of a state dict with Hugging Face's names, without copying if it can.

    Raises:
        ModelFolderError: names or shapes do not fit the configuration.
    """
    with torch.device("meta"):
        model = Transformer(config)
    wanted = model.state_dict()
    given = {name: tensor for name, tensor in state.items() if not is_redundant(name, config)}
    check_shapes(_shapes(wanted), _shapes(given), where)
    kept = {name: tensor.to(torch.float32 if name.endswith(_FLOAT32) else dtype) for name, tensor in given.items()}
    model.load_state_dict(kept, assign=True)
    return model.to(device)


def save_model(
    model: LoadedModel | Transformer,
    directory: Path | str,
    *,
    tokenizer: ChatTokenizer | None = None,
    state: Mapping[str, Tensor] | None = None,
) -> str:
    """Write a folder that this library and ``transformers`` load; an existing one is replaced.

    Args:
        model: what to save.
        directory: the folder to write.
        tokenizer: its tokenizer; taken from ``model`` if that is a ``LoadedModel``.
        state: parameters to write instead of the model's own (a trainer's, gathered from elsewhere).

    Returns:
        The digest that ``load_model`` will give the folder.

    Raises:
        ModelFolderError: no tokenizer is known.
    """
    if isinstance(model, LoadedModel):
        tokenizer, module = tokenizer or model.tokenizer, model.model
    else:
        module = model
    folder = Path(directory)
    if tokenizer is None:
        raise ModelFolderError(
            "a model cannot be saved without its tokenizer", where=str(folder), mend="pass tokenizer=…"
        )
    tensors = {name: tensor.detach().to("cpu").contiguous() for name, tensor in (state or module.state_dict()).items()}
    dtype = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    with fresh_folder(folder) as fresh:
        table = module.config.to_hf() | {"torch_dtype": dtype}
        (fresh / "config.json").write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
        for name, content in tokenizer.files.items():
            (fresh / name).write_bytes(content)
        save_file(tensors, fresh / "model.safetensors", metadata={"format": "pt"})
        return _digest_files([fresh / "config.json", fresh / "tokenizer.json", fresh / "model.safetensors"])


def _read_weights(files: Sequence[Path]) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    for file in files:
        try:
            state |= load_file(file)
        except (SafetensorError, OSError) as error:
            raise ModelFolderError(
                f"weights cannot be read: {error}", where=str(file), expected="a safetensors file", mend=SAVE_AGAIN
            ) from None
    return state


def _shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def _digest_files(files: Sequence[Path]) -> str:
    total = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            total.update(file.name.encode() + b"\0" + hashlib.file_digest(stream, "sha256").digest())
    return "sha256:" + total.hexdigest()
