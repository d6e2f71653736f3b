from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from flightschool.engines import dequantise
from flightschool.engines.folders import LoadedModel, load_model
from flightschool.engines.gguf import convert, read_gguf
from flightschool.errors import ModelFolderError


@pytest.fixture
def gguf(loaded: LoadedModel, write_gguf: Callable[[LoadedModel, Path], None], tmp_path: Path) -> Path:
    write_gguf(loaded, tmp_path / "m.gguf")
    return tmp_path / "m.gguf"


def test_a_converted_model_is_the_one_that_was_written(gguf: Path, loaded: LoadedModel, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    convert(gguf, folder)
    again = load_model(folder)
    for name, tensor in loaded.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name]), name
    assert again.config == loaded.config
    text = "user the é 1234\n"
    assert again.tokenizer.turn("user", text)[0] == 1
    assert again.tokenizer.decode(again.tokenizer.encode(text)) == text


def test_the_table_gives_shapes_row_by_column(gguf: Path) -> None:
    file = read_gguf(gguf)
    shapes = {entry.name: entry.shape for entry in file.tensors}
    assert shapes["token_embd.weight"] == (300, 32)
    assert shapes["blk.1.ffn_down.weight"] == (32, 48)
    assert file.metadata["general.architecture"] == "llama"


@pytest.mark.parametrize("size", [0, 10, 400])
def test_a_cut_file_is_named(gguf: Path, size: int) -> None:
    gguf.write_bytes(gguf.read_bytes()[:size])
    with pytest.raises(ModelFolderError, match="header cannot be read") as caught:
        read_gguf(gguf)
    assert caught.value.where == str(gguf)


def test_cut_tensors_and_other_files_are_named(gguf: Path, tmp_path: Path) -> None:
    gguf.write_bytes(gguf.read_bytes()[:-100])
    with pytest.raises(ModelFolderError, match="cut short"):
        convert(gguf, tmp_path)
    gguf.write_bytes(b"GGML" + bytes(40))
    with pytest.raises(ModelFolderError, match="not a GGUF file"):
        read_gguf(gguf)
    with pytest.raises(ModelFolderError, match="No such file"):
        read_gguf(tmp_path / "nowhere")


def half(value: float) -> bytes:
    return struct.pack("<e", value)


def run(kind: int, block: bytes) -> list[float]:
    return [float(x) for x in dequantise.DEQUANTISERS[kind](np.frombuffer(block, dtype=np.uint8))]


def test_blocks_of_32_by_hand() -> None:
    nibbles = bytes(i | (15 - i) << 4 for i in range(16))  # low nibbles 0…15, high nibbles 15…0
    order = [*range(16), *range(15, -1, -1)]
    assert run(dequantise.Q4_0, half(0.5) + nibbles) == [0.5 * (q - 8) for q in order]
    assert run(dequantise.Q4_1, half(0.5) + half(-1.0) + nibbles) == [0.5 * q - 1 for q in order]
    signed = bytes(range(240, 256)) + bytes(range(16))
    assert run(dequantise.Q8_0, half(2.0) + signed) == [2.0 * q for q in range(-16, 16)]


def test_blocks_of_256_by_hand() -> None:
    """Element by element after the published layout, as a loop."""
    rng = np.random.default_rng(0)
    low, high = rng.integers(0, 256, 128), rng.integers(0, 256, 64)
    scales = rng.integers(-128, 128, 16)
    expected = []
    for element in range(256):
        half_, within = divmod(element, 128)
        quarter, lane = divmod(within, 32)
        byte = int(low[half_ * 64 + (quarter % 2) * 32 + lane])
        bits = byte & 15 if quarter < 2 else byte >> 4
        q = bits | (int(high[half_ * 32 + lane]) >> (2 * quarter) & 3) << 4
        expected.append(0.25 * int(scales[element // 16]) * (q - 32))
    block = bytes(low.tolist()) + bytes(high.tolist()) + scales.astype(np.int8).tobytes() + half(0.25)
    assert run(dequantise.Q6_K, block) == expected


def test_plain_floats() -> None:
    assert run(dequantise.F32, struct.pack("<2f", 1.5, -2.0)) == [1.5, -2.0]
    assert run(dequantise.F16, half(1.5) + half(-2.0)) == [1.5, -2.0]
    assert run(dequantise.BF16, struct.pack("<2f", 1.5, -2.0)[2:4] + struct.pack("<f", -2.0)[2:]) == [1.5, -2.0]
