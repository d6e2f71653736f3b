"""Norm and rotation as single steps, with backward passes written down: autograd's would read and write far more.

Shape letters: ``N`` flat tokens, ``X`` numbers that are normed together, ``F`` numbers of a head that rotate.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["rms_norm", "rotate_halves"]


def rms_norm(x: Tensor, weight_X: Tensor, eps: float) -> Tensor:
    """``x / rms(x) · weight`` over the last axis, in the type of ``x`` (Zhang and Sennrich 2019)."""
    if torch.is_grad_enabled() and (x.requires_grad or weight_X.requires_grad):
        return _RmsNorm.apply(x, weight_X, eps)  # type: ignore[no-any-return, no-untyped-call]
    return (x * _inverse_rms(x, eps)).mul_(weight_X)


def _inverse_rms(x: Tensor, eps: float) -> Tensor:
    squares: Tensor = torch.linalg.vecdot(x, x).unsqueeze(-1)
    return squares.div_(x.shape[-1]).add_(eps).rsqrt_()


class _RmsNorm(torch.autograd.Function):
    """``n = x / rms(x)``, ``h = g · weight``: ``dx = (h − n · mean(h · n)) / rms(x)``, ``dweight = Σ g · n``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_X: Tensor, eps: float) -> Tensor:
        inverse = _inverse_rms(x, eps)
        ctx.save_for_backward(x, weight_X, inverse)
        return (x * inverse).mul_(weight_X)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (grad,) = grads
        x, weight_X, inverse = ctx.saved_tensors
        normed = x * inverse
        weight_grad_X = torch.linalg.vecdot(grad.reshape(-1, grad.shape[-1]), normed.reshape(-1, grad.shape[-1]), dim=0)
        scaled = grad * weight_X
        mean = torch.linalg.vecdot(scaled, normed, dim=-1).unsqueeze(-1).div_(x.shape[-1])
        return scaled.addcmul_(normed, mean, value=-1.0).mul_(inverse), weight_grad_X, None


def rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``x · cos + swapped · sin``, where ``swapped`` has the halves of the last axis exchanged (``sin`` has the sign).

    Args:
        x: ``[N, heads, F]``.
        cos: ``[N, 1, F]``, without a gradient.
        sin: like ``cos``.
    """
    if torch.is_grad_enabled() and x.requires_grad:
        return _Rotated.apply(x, cos, sin)  # type: ignore[no-any-return, no-untyped-call]
    return torch.addcmul(x * cos, _swapped(x), sin)


def _swapped(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((x[..., half:], x[..., :half]), dim=-1)


class _Rotated(torch.autograd.Function):
    """Its gradient is a rotation back: ``dx = g · cos + swapped(g · sin)``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return torch.addcmul(x * cos, _swapped(x), sin)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _swapped(grads[0] * sin).addcmul_(grads[0], cos), None, None
