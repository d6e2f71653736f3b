"""What stands between the products of a layer, each in one pass by the native kernel: float32 on a CPU.

No gradients are recorded here: see ``engines.fused``. Shape letters: ``N`` rows, ``X`` numbers of a row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flightschool.engines.kernels.library import kernel_library

__all__ = ["gated", "gated_backward", "normed", "normed_backward", "rotated"]


def normed(x_NX: Tensor, weight_X: Tensor, eps: float, inverse_N: Tensor | None = None) -> Tensor:
    """``x / rms(x) · weight``; ``inverse_N`` gets 1 / rms."""
    x, out = _rows(x_NX), torch.empty(x_NX.shape)
    kept = 0 if inverse_N is None else inverse_N.data_ptr()
    kernel_library().rms_norm(
        x.shape[0], x.shape[1], _threads(), x.data_ptr(), x.stride(0), weight_X.data_ptr(), eps, out.data_ptr(), kept
    )
    return out


def normed_backward(grad_NX: Tensor, x_NX: Tensor, weight_X: Tensor, inverse_N: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of ``x`` and ``weight``."""
    x, grad, out = _rows(x_NX), grad_NX.contiguous(), torch.empty(x_NX.shape)
    threads = _threads()
    parts = torch.zeros(threads, x.shape[1])
    kernel_library().rms_norm_backward(
        x.shape[0],
        x.shape[1],
        threads,
        x.data_ptr(),
        x.stride(0),
        weight_X.data_ptr(),
        inverse_N.data_ptr(),
        grad.data_ptr(),
        out.data_ptr(),
        parts.data_ptr(),
    )
    return out, parts.sum(0)


def gated(gate_NX: Tensor, up_NX: Tensor) -> Tensor:
    """``silu(gate) · up``."""
    gate, up, out = _rows(gate_NX), _rows(up_NX), torch.empty(gate_NX.shape)
    kernel_library().gate(
        gate.shape[0],
        gate.shape[1],
        _threads(),
        gate.data_ptr(),
        gate.stride(0),
        up.data_ptr(),
        up.stride(0),
        out.data_ptr(),
    )
    return out


def gated_backward(grad_NX: Tensor, gate_NX: Tensor, up_NX: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``gate`` and ``up``, and ``silu(gate) · up`` once more."""
    gate, up, grad = _rows(gate_NX), _rows(up_NX), grad_NX.contiguous()
    outs = torch.empty(gate.shape), torch.empty(gate.shape), torch.empty(gate.shape)
    kernel_library().gate_backward(
        gate.shape[0],
        gate.shape[1],
        _threads(),
        gate.data_ptr(),
        gate.stride(0),
        up.data_ptr(),
        up.stride(0),
        grad.data_ptr(),
        *(out.data_ptr() for out in outs),
    )
    return outs


def rotated(x_NHF: Tensor, cos_NF: Tensor, sin_NF: Tensor, *, backwards: bool = False) -> Tensor:
    """``x · cos + swapped · sin`` for every head, or the way of a gradient: ``x · cos + swapped(x · sin)``."""
    x = x_NHF if x_NHF.stride()[1:] == (x_NHF.shape[2], 1) else x_NHF.contiguous()
    cos, sin, out = cos_NF.contiguous(), sin_NF.contiguous(), torch.empty(x.shape)
    kernel_library().rotate(
        *x.shape, _threads(), x.data_ptr(), x.stride(0), cos.data_ptr(), sin.data_ptr(), backwards, out.data_ptr()
    )
    return out


def _rows(x: Tensor) -> Tensor:
    """As rows without gaps in them; their stride may be any."""
    flat = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
    return flat if flat.stride(1) == 1 else flat.contiguous()


def _threads() -> int:
    return torch.get_num_threads()
