"""The weights files of a model folder as their headers tell them: which, of what shape, whole or cut. Needs no torch.

A safetensors file begins with the length of its header in 8 bytes (little-endian), then the header: a JSON object of
name → type, shape and place of the data (https://github.com/huggingface/safetensors). So what a folder holds is known
from a few kilobytes, before any weight is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flightschool.engines.architecture import TransformerConfig
from flightschool.errors import ModelFolderError

__all__ = ["check_shapes", "check_weights", "is_redundant", "read_json", "shapes_in", "tensor_shapes", "weight_files"]

FOLDER = "a Hugging Face model folder: config.json, *.safetensors, tokenizer.json"
SAVE_AGAIN = "save the model again with save_pretrained(..., safe_serialization=True)"
_ONE_SOURCE = "weights and config.json are of different models: take both from one source"
_LONGEST_HEADER = 100_000_000
_MOST_NAMED = 3


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a model folder.

    Raises:
        ModelFolderError: the folder or the file is missing, or it is no JSON object.
    """
    if not path.parent.is_dir():
        raise ModelFolderError("model folder not found", where=str(path.parent), expected=FOLDER, mend="check the path")
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelFolderError(
            f"{path.name} is missing", where=str(path.parent), expected=FOLDER, mend="copy it into the folder"
        ) from None
    except (OSError, ValueError) as error:
        raise ModelFolderError(
            f"{path.name} cannot be read: {error}", where=str(path), expected="a JSON object", mend=SAVE_AGAIN
        ) from None
    if not isinstance(table, dict):
        raise ModelFolderError(f"{path.name} is no object", where=str(path), expected="a JSON object", mend=SAVE_AGAIN)
    return table


def weight_files(folder: Path) -> Sequence[Path]:
    """Weights files in a fixed order: the shards of the index, or all safetensors files.

    Raises:
        ModelFolderError: one is missing, or there is none.
    """
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = read_json(index).get("weight_map") or {}
        if not isinstance(names, dict):
            raise ModelFolderError(
                "weight_map is no object", where=str(index), expected="tensor → file", mend=SAVE_AGAIN
            )
        files = [folder / name for name in sorted({str(value) for value in names.values()})]
    else:
        files = sorted(folder.glob("*.safetensors"))
    missing = [file.name for file in files if not file.is_file()]
    if missing or not files:
        raise ModelFolderError(
            f"weights are missing: {', '.join(missing) or '*.safetensors'}",
            where=str(folder),
            expected=FOLDER,
            mend=SAVE_AGAIN,
        )
    return files


def check_weights(config: TransformerConfig, folder: Path) -> None:
    """Hold the headers of the weights files against the configuration: names, shapes, and that no file is cut.

    Raises:
        ModelFolderError: a file is missing, broken or cut, or is of another model.
    """
    given: dict[str, tuple[int, ...]] = {}
    for path in weight_files(folder):
        given |= {name: shape for name, shape in shapes_in(path).items() if not is_redundant(name, config)}
    least = config.num_layers * (1 + config.num_experts)  # before names without end are made
    if least > len(given):
        raise ModelFolderError(
            f"config.json tells of {config.num_layers} layers, the files hold {len(given)} tensors",
            where=str(folder),
            expected="the tensors that config.json describes",
            mend=_ONE_SOURCE,
        )
    check_shapes(dict(tensor_shapes(config)), given, str(folder))


def check_shapes(wanted: Mapping[str, Sequence[int]], given: Mapping[str, Sequence[int]], where: str) -> None:
    """Compare names and shapes.

    Raises:
        ModelFolderError: a name is missing or unknown, or a shape differs.
    """
    for what, names in (("missing", wanted.keys() - given.keys()), ("unknown", given.keys() - wanted.keys())):
        if names:
            shown = ", ".join(sorted(names)[:_MOST_NAMED])
            raise ModelFolderError(
                f"{len(names)} tensor(s) {what}, for instance {shown}",
                where=where,
                expected="the tensors that config.json describes",
                mend=_ONE_SOURCE,
            )
    for name, shape in wanted.items():
        if tuple(given[name]) != tuple(shape):
            raise ModelFolderError(
                f"{name} has shape {tuple(given[name])}",
                where=where,
                expected=f"shape {tuple(shape)} by config.json",
                mend=_ONE_SOURCE,
            )


def is_redundant(name: str, config: TransformerConfig) -> bool:
    """Whether the configuration determines this tensor, though some writers store it."""
    return name.endswith("rotary_emb.inv_freq") or (config.tied_embeddings and name == "lm_head.weight")


def tensor_shapes(config: TransformerConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every parameter of ``Transformer(config)``, by Hugging Face's names."""
    yield "model.embed_tokens.weight", (config.vocab, config.hidden)
    for layer in range(config.num_layers):
        under = f"model.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{under}.{norm}.weight", (config.hidden,)
        yield from _attention(f"{under}.self_attn", config)
        if config.num_experts and layer >= config.num_dense_layers:
            yield from _experts(f"{under}.mlp", config)
        else:
            yield from _mlp(f"{under}.mlp", config.hidden, config.intermediate)
    yield "model.norm.weight", (config.hidden,)
    if not config.tied_embeddings:
        yield "lm_head.weight", (config.vocab, config.hidden)


def _attention(under: str, config: TransformerConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    query, key = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    for name, size in (("q_proj", query), ("k_proj", key), ("v_proj", key)):
        yield f"{under}.{name}.weight", (size, config.hidden)
        if config.attention_bias:
            yield f"{under}.{name}.bias", (size,)
    yield f"{under}.o_proj.weight", (config.hidden, query)
    if config.output_bias:
        yield f"{under}.o_proj.bias", (config.hidden,)
    if config.qk_norm:
        yield f"{under}.q_norm.weight", (config.head_dim,)
        yield f"{under}.k_norm.weight", (config.head_dim,)


def _mlp(under: str, hidden: int, inner: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{under}.gate_proj.weight", (inner, hidden)
    yield f"{under}.up_proj.weight", (inner, hidden)
    yield f"{under}.down_proj.weight", (hidden, inner)


def _experts(under: str, config: TransformerConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{under}.gate.weight", (config.num_experts, config.hidden)
    yield f"{under}.gate.e_score_correction_bias", (config.num_experts,)
    for number in range(config.num_experts):
        yield from _mlp(f"{under}.experts.{number}", config.hidden, config.expert_intermediate)
    if config.num_shared_experts:
        shared = config.num_shared_experts * config.expert_intermediate
        yield from _mlp(f"{under}.shared_experts", config.hidden, shared)


def shapes_in(path: Path) -> dict[str, tuple[int, ...]]:
    """Tensors of a file by its header, whose data must all be there."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header: dict[str, Any] = json.loads(file.read(length)) if length < _LONGEST_HEADER else {}
        size = path.stat().st_size
        tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
        shapes = {name: tuple(int(size) for size in entry["shape"]) for name, entry in tensors.items()}
        ends = [int(entry["data_offsets"][1]) for entry in tensors.values()]
    except OSError as error:
        raise _unreadable(path, str(error.strerror)) from error
    except (ValueError, AttributeError, KeyError, TypeError, IndexError):
        raise _unreadable(path, "a weights file has no header") from None
    if not tensors:
        raise _unreadable(path, "a weights file has no header")
    told = 8 + length + max(ends, default=0)
    if size != told:
        raise ModelFolderError(
            f"the weights file has {size} bytes, its header tells of {told}",
            where=str(path),
            expected="a whole safetensors file",
            mend="it was cut while it was copied or downloaded: copy it again",
        )
    return shapes


def _unreadable(path: Path, what: str) -> ModelFolderError:
    return ModelFolderError(what, where=str(path), expected="a safetensors file", mend="copy it again")
