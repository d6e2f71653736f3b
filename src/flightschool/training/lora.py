"""Low-rank adaptation (Hu et al. 2021, arXiv:2106.09685) that trains exactly what is served.

    W = W₀ + (α / r) · B A          A: r × in, drawn at random; B: out × r, zero at the start

The usual adapter computes x W₀ᵀ + s (x Aᵀ) Bᵀ while an engine serves the merged W; in bf16 the two differ, and the
difference enters every importance weight. Here the model holds the *merged* W, rounded once, and the forward pass is
the engine's: one matrix product. Only the backward pass knows of A and B,

    ∂A = s · (g B)ᵀ x,    ∂B = s · gᵀ (x Aᵀ),    ∂x = g W

so no gradient of W is ever made, and gradients and optimizer states are those of the few adapted numbers, in float32.
(In float32 this is the usual adapter's gradient to rounding; in bf16 the rounding of W is passed over, "straight
through".) W₀ stays in the model's file, mapped and read again at every merge, so it costs no memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flightschool.engines.transformer import Linear, Transformer

__all__ = ["Adapter", "adapt", "merge", "targets_of"]


class _Adapted(torch.autograd.Function):
    """A linear layer whose weight is merged: gradients go to the factors."""

    @staticmethod
    def forward(
        ctx: Any, x_NI: Tensor, weight: Tensor, bias: Tensor | None, a_RI: Tensor, b_OR: Tensor, scale: float
    ) -> Tensor:
        ctx.save_for_backward(x_NI, weight, a_RI, b_OR)
        ctx.scale = scale
        return F.linear(x_NI, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad_NO,) = grads
        x_NI, weight, a_RI, b_OR = ctx.saved_tensors
        a, b = a_RI.to(x_NI.dtype), b_OR.to(x_NI.dtype)
        grad_a = ((grad_NO @ b).T @ x_NI).float() * ctx.scale
        grad_b = (grad_NO.T @ (x_NI @ a.T)).float() * ctx.scale
        grad_x = grad_NO @ weight if ctx.needs_input_grad[0] else None
        return grad_x, None, None, grad_a, grad_b, None


@dataclass(frozen=True)
class Adapter:
    """The factors of one linear layer; the layer calls it in place of its own product."""

    a_RI: nn.Parameter
    b_OR: nn.Parameter
    scale: float
    """α / r."""

    def __call__(self, x_NI: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """``x Wᵀ + bias`` with the merged weight."""
        if not torch.is_grad_enabled():
            return F.linear(x_NI, weight, bias)
        return _Adapted.apply(  # type: ignore[no-any-return, no-untyped-call]
            x_NI, weight, bias, self.a_RI, self.b_OR, self.scale
        )

    @torch.no_grad()
    def merged(self, base: Tensor) -> Tensor:
        """``W₀ + s B A`` in float32."""
        return torch.addmm(base.float(), self.b_OR, self.a_RI, alpha=self.scale)


def targets_of(model: Transformer, trained: Iterable[str]) -> dict[str, Linear]:
    """The linear layers of the body whose weights are to be trained, by the name of the weight."""
    wanted = set(trained)
    return {
        f"{name}.weight": module
        for name, module in model.named_modules()
        if isinstance(module, Linear) and name.startswith("model.layers.") and f"{name}.weight" in wanted
    }


def adapt(targets: Mapping[str, Linear], *, rank: int, alpha: float, seed: int) -> dict[str, Adapter]:
    """Give every layer an adapter that changes nothing yet.

    Args:
        targets: layers by the name of their weight.
        rank: r.
        alpha: α.
        seed: of A.
    """
    generator = torch.Generator().manual_seed(seed)
    adapters = {}
    for name, layer in targets.items():
        out, into = layer.weight.shape
        # as torch draws a linear layer of this shape: uniform with variance 1 / (3 in)
        a = torch.empty(rank, into).uniform_(-1.0, 1.0, generator=generator) / math.sqrt(into)
        device = layer.weight.device
        adapter = Adapter(nn.Parameter(a.to(device)), nn.Parameter(torch.zeros(out, rank, device=device)), alpha / rank)
        layer.adapter = adapter
        adapters[name] = adapter
    return adapters


@torch.no_grad()
def merge(targets: Mapping[str, Linear], adapters: Mapping[str, Adapter], base: Callable[[str], Tensor]) -> None:
    """Write ``W₀ + s B A`` into the layers, rounded once to their type.

    Args:
        targets: layers by the name of their weight.
        adapters: of the same names.
        base: name → W₀ as the model's file has it.
    """
    for name, layer in targets.items():
        weight = layer.weight
        weight.copy_(adapters[name].merged(base(name).to(weight.device)))
