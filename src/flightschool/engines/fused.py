"""Norm, rotation and gate as single steps, with backward passes written down: autograd's would read and write far more.

Shape letters: ``N`` flat tokens, ``X`` numbers that are normed together, ``F`` numbers of a head that rotate.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from flightschool.engines.kernels import gated, normed, normed_backward, rotated, serves

__all__ = ["gate", "rms_norm", "rotate_halves"]


def rms_norm(x: Tensor, weight_X: Tensor, eps: float) -> Tensor:
    """``x / rms(x) · weight`` over the last axis, in the type of ``x`` (Zhang and Sennrich 2019)."""
    if torch.is_grad_enabled() and (x.requires_grad or weight_X.requires_grad):
        return _RmsNorm.apply(x, weight_X, eps)  # type: ignore[no-any-return, no-untyped-call]
    return normed(x, weight_X, eps) if _is_served(x, weight_X) else (x * _inverse_rms(x, eps)).mul_(weight_X)


def gate(gate_NI: Tensor, up_NI: Tensor) -> Tensor:
    """``silu(gate) · up``; no gradient is recorded where the native kernel makes it."""
    return gated(gate_NI, up_NI) if serves(gate_NI) else F.silu(gate_NI) * up_NI


def _is_served(x: Tensor, weight_X: Tensor) -> bool:
    return serves(x) and serves(weight_X)


def _inverse_rms(x: Tensor, eps: float) -> Tensor:
    squares: Tensor = torch.linalg.vecdot(x, x).unsqueeze(-1)
    return squares.div_(x.shape[-1]).add_(eps).rsqrt_()


class _RmsNorm(torch.autograd.Function):
    """``n = x / rms(x)``, ``h = g · weight``: ``dx = (h − n · mean(h · n)) / rms(x)``, ``dweight = Σ g · n``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_X: Tensor, eps: float) -> Tensor:
        if _is_served(x, weight_X):
            inverse = x.new_empty(x.numel() // x.shape[-1])
            ctx.save_for_backward(x, weight_X, inverse)
            return normed(x, weight_X, eps, inverse)
        inverse = _inverse_rms(x, eps)
        ctx.save_for_backward(x, weight_X, inverse)
        return (x * inverse).mul_(weight_X)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (grad,) = grads
        x, weight_X, inverse = ctx.saved_tensors
        if _is_served(x, weight_X):
            return *normed_backward(grad, x, weight_X, inverse), None
        unit = x * inverse
        weight_grad_X = torch.linalg.vecdot(grad.reshape(-1, grad.shape[-1]), unit.reshape(-1, grad.shape[-1]), dim=0)
        scaled = grad * weight_X
        mean = torch.linalg.vecdot(scaled, unit, dim=-1).unsqueeze(-1).div_(x.shape[-1])
        return scaled.addcmul_(unit, mean, value=-1.0).mul_(inverse), weight_grad_X, None


def rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``x · cos + swapped · sin``, where ``swapped`` has the halves of the last axis exchanged (``sin`` has the sign).

    Args:
        x: ``[N, heads, F]``.
        cos: ``[N, 1, F]``, without a gradient.
        sin: like ``cos``.
    """
    if torch.is_grad_enabled() and x.requires_grad:
        return _Rotated.apply(x, cos, sin)  # type: ignore[no-any-return, no-untyped-call]
    return _rotated(x, cos, sin)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    if serves(x) and x.ndim == 3:
        return rotated(x, cos.squeeze(1), sin.squeeze(1))
    return torch.addcmul(x * cos, _swapped(x), sin)


def _swapped(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((x[..., half:], x[..., :half]), dim=-1)


class _Rotated(torch.autograd.Function):
    """Its gradient is a rotation back: ``dx = g · cos + swapped(g · sin)``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotated(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        if serves(grads[0]) and grads[0].ndim == 3:
            return rotated(grads[0], cos.squeeze(1), sin.squeeze(1), backwards=True), None, None
        return _swapped(grads[0] * sin).addcmul_(grads[0], cos), None, None
