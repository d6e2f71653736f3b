"""Reading GGUF files (version 3), and turning a GGUF of the Llama architecture into a model folder.

Why an own reader: the format is a short header, a table and blocks of quantised numbers, and the converted folder is
what everything else loads; a library that reads it costs a dependency and half a minute a run. Sources: the GGUF
specification of the ggml project for the layout, and its quantisation blocks for the arithmetic.

Only what small instruct models need is read: F32, F16, BF16, Q4_0, Q4_1, Q8_0, Q6_K; byte-level BPE tokenizers.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from flightschool.engines.architecture import TransformerConfig
from flightschool.engines.dequantise import DEQUANTISERS, num_bytes
from flightschool.errors import ModelFolderError
from flightschool.records import Record

__all__ = ["GgufFile", "GgufTensor", "convert", "read_gguf"]

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MEND = "download the file again, or name a Hugging Face folder instead"

_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_PRE_TOKENIZERS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    # Every digit stands alone, the rest is cut by GPT-2's pattern; then bytes become printable characters.
    "smollm": (
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ),
    "gpt-2": ({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},),
}
_CONTROL, _USER_DEFINED = 3, 4  # kinds of token


class GgufTensor(Record, frozen=True, kw_only=True):
    """Where one tensor lies."""

    name: str
    shape: tuple[int, ...]
    """In row-major order: ``(rows, columns)``, the reverse of what the file says."""
    kind: int
    """Number of the quantisation."""
    offset: int
    """Bytes from the start of the file."""


class GgufFile(Record, frozen=True, kw_only=True):
    """Metadata and table of a GGUF file."""

    path: str
    metadata: dict[str, Any]
    tensors: tuple[GgufTensor, ...]

    def tensor(self, entry: GgufTensor) -> NDArray[np.float32]:
        """One tensor in float32.

        Raises:
            ModelFolderError: the quantisation is none that is read here, or the file is cut short.
        """
        if entry.kind not in DEQUANTISERS:
            raise ModelFolderError(
                f"{entry.name} has quantisation {entry.kind}",
                where=self.path,
                expected="F32, F16, BF16, Q4_0, Q4_1, Q8_0 or Q6_K",
                mend="use a file of one of these",
            )
        size = num_bytes(entry.kind, entry.shape)
        raw = np.fromfile(self.path, dtype=np.uint8, count=size, offset=entry.offset)
        if raw.size != size:
            raise ModelFolderError("the file is cut short", where=self.path, expected="whole tensors", mend=_MEND)
        return DEQUANTISERS[entry.kind](raw).reshape(entry.shape)


def read_gguf(path: Path) -> GgufFile:
    """Read header, metadata and tensor table.

    Raises:
        ModelFolderError: not a GGUF file of version 3, or cut short.
    """
    try:
        with path.open("rb") as stream:
            return _read(stream, path)
    except (struct.error, UnicodeDecodeError, KeyError, EOFError) as error:
        raise ModelFolderError(
            f"the header cannot be read ({error})", where=str(path), expected="a whole GGUF file", mend=_MEND
        ) from None
    except OSError as error:
        raise ModelFolderError(str(error), where=str(path), expected="a readable file", mend="check the path") from None


def _read(stream: BinaryIO, path: Path) -> GgufFile:
    magic, version, num_tensors, num_entries = struct.unpack("<4sIQQ", stream.read(24))
    if magic != b"GGUF" or version != 3:
        raise ModelFolderError(
            f"not a GGUF file of version 3 (starts with {magic!r}, version {version})",
            where=str(path),
            expected="GGUF version 3, little endian",
            mend=_MEND,
        )
    metadata = {}
    for _ in range(num_entries):
        key = _string(stream)
        metadata[key] = _value(stream, _scalar(stream, "I"))
    entries = [_entry(stream) for _ in range(num_tensors)]
    alignment = int(metadata.get("general.alignment", 32))
    start = -(-stream.tell() // alignment) * alignment
    tensors = tuple(
        GgufTensor(name=name, shape=shape, kind=kind, offset=start + offset) for name, shape, kind, offset in entries
    )
    return GgufFile(path=str(path), metadata=metadata, tensors=tensors)


def _entry(stream: BinaryIO) -> tuple[str, tuple[int, ...], int, int]:
    name = _string(stream)
    num_dims = _scalar(stream, "I")
    shape = tuple(_scalar(stream, "Q") for _ in range(num_dims))[::-1]
    return name, shape, _scalar(stream, "I"), _scalar(stream, "Q")


def _scalar(stream: BinaryIO, code: str) -> Any:
    return struct.unpack("<" + code, stream.read(struct.calcsize("<" + code)))[0]


def _string(stream: BinaryIO) -> str:
    size = _scalar(stream, "Q")
    data = stream.read(size) if size < 1 << 30 else b""
    if len(data) != size:
        raise EOFError("a string reaches beyond the end")
    return data.decode("utf-8")


def _value(stream: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(stream)
    if kind == _ARRAY:
        inner, count = _scalar(stream, "I"), _scalar(stream, "Q")
        return [_value(stream, inner) for _ in range(count)]
    return _scalar(stream, _SCALARS[kind])


# ------------------------------------------------------------------------------------------------ conversion


def convert(source: Path, folder: Path) -> None:
    """Write the model in ``source`` as a Hugging Face folder into the existing, empty ``folder``.

    Raises:
        ModelFolderError: the file is broken, or its architecture or tokenizer is none that is converted here.
    """
    file = read_gguf(source)
    config = _config(file)
    tensors = {}
    for entry in file.tensors:
        name = _hf_name(entry.name, file.path)
        tensors[name] = _unpermuted(name, file.tensor(entry), config)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    files = {
        "config.json": config.to_hf(),
        "tokenizer.json": _tokenizer(file),
        "tokenizer_config.json": _tokenizer_config(file),
    }
    for name, table in files.items():
        (folder / name).write_text(json.dumps(table, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _config(file: GgufFile) -> TransformerConfig:
    meta = file.metadata
    if meta.get("general.architecture") != "llama":
        raise ModelFolderError(
            f"architecture {meta.get('general.architecture')!r} is not converted",
            where=file.path,
            expected="llama",
            mend="name the model's Hugging Face folder instead",
        )
    heads, hidden = int(meta["llama.attention.head_count"]), int(meta["llama.embedding_length"])
    return TransformerConfig(
        vocab=len(meta["tokenizer.ggml.tokens"]),
        hidden=hidden,
        intermediate=int(meta["llama.feed_forward_length"]),
        num_layers=int(meta["llama.block_count"]),
        num_heads=heads,
        num_kv_heads=int(meta.get("llama.attention.head_count_kv", heads)),
        head_dim=int(meta.get("llama.rope.dimension_count", hidden // heads)),
        rope_theta=float(meta.get("llama.rope.freq_base", 10000.0)),
        # float32 in the file; written as the decimal that was meant
        rms_eps=float(f"{meta['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        tied_embeddings=all(entry.name != "output.weight" for entry in file.tensors),
        max_context=int(meta["llama.context_length"]),
        bos_token_id=meta.get("tokenizer.ggml.bos_token_id"),
        eos_token_ids=(int(meta["tokenizer.ggml.eos_token_id"]),),
    )


def _hf_name(name: str, where: str) -> str:
    if name in _NAMES:
        return _NAMES[name]
    head, _, rest = name.partition(".")
    layer, _, part = rest.partition(".")
    part = part.removesuffix(".weight")
    if head != "blk" or part not in _LAYER_NAMES:
        raise ModelFolderError(f"unknown tensor {name!r}", where=where, expected="a plain Llama model", mend=_MEND)
    return f"model.layers.{layer}.{_LAYER_NAMES[part]}.weight"


def _unpermuted(name: str, weight: NDArray[np.float32], config: TransformerConfig) -> NDArray[np.float32]:
    """GGUF stores the rows of query and key with the two halves of each head interleaved; Hugging Face does not."""
    if name.endswith("q_proj.weight"):
        num_heads = config.num_heads
    elif name.endswith("k_proj.weight"):
        num_heads = config.num_kv_heads
    else:
        return weight
    pairs = weight.reshape(num_heads, config.head_dim // 2, 2, weight.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)


def _tokenizer(file: GgufFile) -> dict[str, Any]:
    meta = file.metadata
    kind, pre = str(meta.get("tokenizer.ggml.model")), str(meta.get("tokenizer.ggml.pre"))
    if kind != "gpt2" or pre not in _PRE_TOKENIZERS:
        raise ModelFolderError(
            f"tokenizer {kind!r} with pre-tokenizer {pre!r} is not converted",
            where=file.path,
            expected="gpt2 (byte-level BPE) with " + " or ".join(_PRE_TOKENIZERS),
            mend="name the model's Hugging Face folder instead",
        )
    tokens, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": index, "content": token, **plain, "special": kinds[index] == _CONTROL}
        for index, token in enumerate(tokens)
        if kinds[index] in {_CONTROL, _USER_DEFINED}
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": list(_PRE_TOKENIZERS[pre])},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in meta["tokenizer.ggml.merges"]],
        },
    }


def _tokenizer_config(file: GgufFile) -> dict[str, Any]:
    meta = file.metadata
    tokens = meta["tokenizer.ggml.tokens"]
    named = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    special = {
        name: tokens[meta[f"tokenizer.ggml.{key}_token_id"]]
        for name, key in named.items()
        if f"tokenizer.ggml.{key}_token_id" in meta
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(meta["llama.context_length"]),
        "chat_template": meta.get("tokenizer.chat_template"),
        **special,
    }
