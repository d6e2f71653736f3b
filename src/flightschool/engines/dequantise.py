"""Block-quantised numbers to float32, vectorised in numpy.

Layouts after the ggml project's block structures; ``d`` and ``m`` are float16 scale and minimum of a block.

========  =====  =======  ==================================================================================
name      block  bytes    value of element i
========  =====  =======  ==================================================================================
Q4_0      32     2+16     d · (q - 8); low nibbles are elements 0–15, high nibbles 16–31
Q4_1      32     4+16     d · q + m; nibbles as in Q4_0
Q8_0      32     2+32     d · q, q signed
Q6_K      256    210      d · s · (q - 32); four low bits, two high bits, a signed scale s for every 16 elements
========  =====  =======  ==================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["BF16", "DEQUANTISERS", "F16", "F32", "Q4_0", "Q4_1", "Q6_K", "Q8_0", "num_bytes"]

F32, F16, Q4_0, Q4_1, Q8_0, Q6_K, BF16 = 0, 1, 2, 3, 8, 14, 30
"""Numbers of the types in a GGUF tensor table."""

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_BLOCKS = {F32: (1, 4), F16: (1, 2), BF16: (1, 2), Q4_0: (32, 18), Q4_1: (32, 20), Q8_0: (32, 34), Q6_K: (256, 210)}


def num_bytes(kind: int, shape: Sequence[int]) -> int:
    """Bytes that a tensor of this kind and shape takes."""
    elements, size = _BLOCKS[kind]
    return math.prod(shape) // elements * size


def _half(raw: Bytes) -> Floats:
    return raw.view(np.float16).astype(np.float32)


def _f32(raw: Bytes) -> Floats:
    return raw.view(np.float32).copy()


def _bf16(raw: Bytes) -> Floats:
    return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _nibbles(packed: Bytes) -> Floats:
    return np.concatenate((packed & 0x0F, packed >> 4), axis=1).astype(np.float32)


def _q4_0(raw: Bytes) -> Floats:
    blocks = raw.reshape(-1, 18)
    return (_half(blocks[:, :2].copy()) * (_nibbles(blocks[:, 2:]) - 8)).reshape(-1)


def _q4_1(raw: Bytes) -> Floats:
    blocks = raw.reshape(-1, 20)
    scale, minimum = _half(blocks[:, :2].copy()), _half(blocks[:, 2:4].copy())
    return (scale * _nibbles(blocks[:, 4:]) + minimum).reshape(-1)


def _q8_0(raw: Bytes) -> Floats:
    blocks = raw.reshape(-1, 34)
    return (_half(blocks[:, :2].copy()) * blocks[:, 2:].view(np.int8).astype(np.float32)).reshape(-1)


def _q6_k(raw: Bytes) -> Floats:
    blocks = raw.reshape(-1, 210)
    low = blocks[:, :128].reshape(-1, 2, 1, 2, 32)  # block, half, -, quarter pair, lane
    high = blocks[:, 128:192].reshape(-1, 2, 1, 1, 32)
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32)
    # In each half of 128, quarters 0 and 1 take the low nibbles, quarters 2 and 3 the high ones; the two upper bits
    # of quarter k are bits 2k and 2k+1 of the lane's byte.
    nibbles = np.concatenate((low & 0x0F, low >> 4), axis=2)  # block, half, nibble, pair, lane
    shifts = np.array([[0, 2], [4, 6]], dtype=np.uint8).reshape(1, 1, 2, 2, 1)
    values = (nibbles | ((high >> shifts & 3) << 4)).astype(np.float32).reshape(-1, 16, 16) - 32
    scaled = values * scales[:, :, None] * _half(blocks[:, 208:].copy())[:, :, None]
    flat: Floats = scaled.reshape(-1)
    return flat


DEQUANTISERS: Mapping[int, Callable[[Bytes], Floats]] = {
    F32: _f32,
    F16: _half,
    BF16: _bf16,
    Q4_0: _q4_0,
    Q4_1: _q4_1,
    Q8_0: _q8_0,
    Q6_K: _q6_k,
}
"""By type number: raw bytes of whole blocks → float32, flat."""
