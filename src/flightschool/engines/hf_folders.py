"""Folders of any causal language model that transformers knows: looked at without weights, loaded, saved.

Code in a folder is never run. A weight that the files do not hold is an error: transformers would draw it at random.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from flightschool.engines.folders import digest_folder, read_json
from flightschool.engines.fresh import fresh_folder
from flightschool.engines.tokenizer import ChatTokenizer
from flightschool.errors import FlightschoolError, InputError, ModelFolderError

__all__ = ["HfModel", "context_of", "load_hf_model", "require_transformers", "save_hf_model", "sketch_hf_model"]

_DEFAULT_CONTEXT = 2048
_KEPT = ("config.json", "generation_config.json")
_Made = TypeVar("_Made")


@dataclass(frozen=True, kw_only=True)
class HfModel:
    """A model of transformers with its tokenizer."""

    model: Any  # transformers' own classes are not typed
    tokenizer: ChatTokenizer
    vocab: int
    """Rows of the output."""
    max_context: int
    digest: str
    path: Path
    model_type: str
    files: Mapping[str, bytes]
    """Configuration as the folder has it, so that saving needs no source folder."""

    def feed(self, tokens_1N: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """One cached pass: logits (at least of the last token) and the state to go on from."""
        known = inspect.signature(self.model.forward).parameters
        name = "cache" if "cache" in known else "past_key_values"  # renamed in transformers 5
        options: dict[str, Any] = {"logits_to_keep": 1} if "logits_to_keep" in known else {}
        with torch.inference_mode():
            out = self.model(input_ids=tokens_1N, use_cache=True, **{name: state}, **options)
        return out.logits, getattr(out, name)


def load_hf_model(
    directory: Path | str, *, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
) -> HfModel:
    """Load a folder of any causal language model; code in the folder is not run.

    Raises:
        InputError: transformers is not installed.
        ModelFolderError: the folder is incomplete, or no causal language model that transformers knows.
    """
    folder = Path(directory)
    require_transformers()
    digest = digest_folder(folder)
    model, report = _told(folder, lambda: _load(folder, dtype))
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelFolderError(
            f"{len(missing)} weight(s) are missing, for instance {missing[0]}",
            where=str(folder),
            expected="all tensors that config.json describes",
            mend="weights and config.json are of different models: take both from one source",
        )
    tokenizer = ChatTokenizer.from_folder(folder)
    vocab = int(model.get_output_embeddings().weight.shape[0])
    if tokenizer.num_ids > vocab:
        raise ModelFolderError(
            f"the tokenizer has {tokenizer.num_ids} ids, the model only {vocab} rows",
            where=str(folder),
            expected="the tokenizer that the model was trained with",
            mend="copy the right tokenizer.json into the folder",
        )
    return HfModel(
        model=model.to(device).eval().requires_grad_(False),
        tokenizer=tokenizer,
        vocab=vocab,
        max_context=context_of(model.config),
        digest=digest,
        path=folder,
        model_type=str(model.config.model_type),
        files={name: (folder / name).read_bytes() for name in _KEPT if (folder / name).is_file()},
    )


def sketch_hf_model(directory: Path | str) -> Any:
    """The model of a folder without its weights: configuration, names and shapes, on the device ``meta``.

    Raises:
        InputError: transformers is not installed.
        ModelFolderError: no causal language model that transformers knows.
    """
    folder = Path(directory)
    require_transformers()
    return _told(folder, lambda: _sketch(folder))


def save_hf_model(loaded: HfModel, directory: Path | str) -> str:
    """Write a folder as ``loaded`` came from, with the present weights; an existing one is replaced.

    Weights get the names and forms of the files that transformers reads, configuration and tokenizer are those that
    the model came with.

    Returns:
        The digest that ``load_hf_model`` will give the folder.
    """
    model, folder = loaded.model, Path(directory)
    if getattr(model, "generation_config", None) is not None:  # a strange one is refused; its file is copied below
        model.generation_config = type(model.generation_config)()
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    with fresh_folder(folder) as fresh:
        model.save_pretrained(fresh)
        (fresh / "generation_config.json").unlink(missing_ok=True)
        for name, content in {**loaded.files, **loaded.tokenizer.files}.items():
            (fresh / name).write_bytes(content)
        table = {**json.loads(loaded.files["config.json"]), "torch_dtype": dtype}
        if "dtype" in table:  # transformers 5
            table["dtype"] = table.pop("torch_dtype")
        (fresh / "config.json").write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
        return digest_folder(fresh)


def context_of(config: Any) -> int:
    """Longest sequence by a configuration of transformers."""
    return int(getattr(config.get_text_config(), "max_position_embeddings", None) or _DEFAULT_CONTEXT)


def require_transformers() -> None:
    """Raises ``InputError`` where transformers is not installed."""
    if importlib.util.find_spec("transformers") is None:
        raise InputError(
            "this model needs transformers",
            where="engine.kind = 'hf'",
            expected="the extra 'hf' installed",
            mend="pip install 'flightschool[hf]', or use engine.kind = 'torch'",
        )


def _load(folder: Path, dtype: torch.dtype) -> tuple[Any, Mapping[str, Any]]:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # a command's own progress is all that a person sees
    logging.set_verbosity_error()  # padding that is none, kernels that are not installed
    found: tuple[Any, Mapping[str, Any]] = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, local_files_only=True, trust_remote_code=False, output_loading_info=True
    )
    return found


def _sketch(folder: Path) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    read_json(folder / "config.json")
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False)


def _told(folder: Path, make: Callable[[], _Made]) -> _Made:
    """What transformers makes of a folder; whatever it raises for one is an error of ours."""
    try:
        return make()
    except FlightschoolError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelFolderError(
            f"transformers cannot load this folder: {lines[0]}",
            where=str(folder),
            expected="a causal language model that the installed transformers knows",
            mend="update transformers, or save the model again with save_pretrained",
        ) from error
