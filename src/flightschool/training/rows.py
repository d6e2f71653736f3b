"""Rows of flat tokens laid out for attention and back, with backward passes that know how they were laid out.

torch takes the gradient of ``index_select`` by adding row after row into zeros, whatever the index. Where no row is
taken twice the gradient is itself a look-up, and that costs a fifth.

Shape letters: ``N`` flat tokens, ``R`` laid-out rows, ``X`` numbers of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Layout", "deal", "gather_up", "repeat"]


@dataclass(frozen=True)
class Layout:
    """Which token each row is of; each token has one row that counts, further ones are padding."""

    tokens_R: Tensor
    rows_N: Tensor
    """The row of each token."""
    padding: Tensor
    """Rows that count for no token."""


def deal(x_NX: Tensor, layout: Layout) -> Tensor:
    """``[N, X]`` → ``[R, X]``: rows of the tokens; padding gets a copy, and no gradient comes from it."""
    return _Dealt.apply(x_NX, layout)  # type: ignore[no-any-return, no-untyped-call]


def gather_up(x_RX: Tensor, layout: Layout) -> Tensor:
    """``[R, X]`` → ``[N, X]``: the row of each token; padding is dropped."""
    return _GatheredUp.apply(x_RX, layout)  # type: ignore[no-any-return, no-untyped-call]


def repeat(x_NX: Tensor, tokens_R: Tensor) -> Tensor:
    """``[N, X]`` → ``[R, X]``: rows of the tokens, any of them any number of times; their gradients are added."""
    return _Repeated.apply(x_NX, tokens_R)  # type: ignore[no-any-return, no-untyped-call]


class _Dealt(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NX: Tensor, layout: Layout) -> Tensor:
        ctx.layout = layout
        return x_NX.index_select(0, layout.tokens_R)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0].index_select(0, ctx.layout.rows_N), None


class _GatheredUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_RX: Tensor, layout: Layout) -> Tensor:
        ctx.layout = layout
        return x_RX.index_select(0, layout.rows_N)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        grad_RX = grads[0].index_select(0, ctx.layout.tokens_R)
        return grad_RX.index_fill_(0, ctx.layout.padding, 0.0), None


class _Repeated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NX: Tensor, tokens_R: Tensor) -> Tensor:
        ctx.tokens_R, ctx.num = tokens_R, x_NX.shape[0]
        return x_NX.index_select(0, tokens_R)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        grad_RX = grads[0].contiguous()  # adding rows that are scattered in memory takes six times as long
        return grad_RX.new_zeros(ctx.num, grad_RX.shape[1]).index_add_(0, ctx.tokens_R, grad_RX), None
