"""Low-rank adaptation (Hu et al. 2021, arXiv:2106.09685) that trains exactly what is served.

    W = W₀ + (α / r) · B A          A: r × in, drawn at random; B: out × r, zero at the start

The usual adapter computes x W₀ᵀ + s (x Aᵀ) Bᵀ while an engine serves the merged W; in bf16 the two differ, and the
difference enters every importance weight. Here the model holds the *merged* W, rounded once, and the forward pass is
the engine's: one matrix product. Only the backward pass knows of A and B,

    ∂A = s · (g B)ᵀ x,    ∂B = s · gᵀ (x Aᵀ),    ∂x = g W

so no gradient of W is ever made, and gradients and optimizer states are those of the few adapted numbers, in float32.
(In float32 this is the usual adapter's gradient to rounding; in bf16 the rounding of W is passed over, "straight
through".) W₀ of our own transformer stays in the model's file, mapped and read again at every merge, so it costs no
memory. Files of other architectures may name, join and turn their weights otherwise, so there W₀ is kept beside W
(``originals``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flightschool.engines.transformer import Linear, Transformer

__all__ = ["Adaptable", "Adapter", "adapt", "foreign_targets", "merge", "originals", "targets_of"]


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
        grad_x = grad_NO @ weight if ctx.needs_input_grad[0] else None
        grad_NO, x_NI = grad_NO.flatten(0, -2), x_NI.flatten(0, -2)  # foreign layers keep a dimension for batches
        grad_a = ((grad_NO @ b).T @ x_NI).float() * ctx.scale
        grad_b = (grad_NO.T @ (x_NI @ a.T)).float() * ctx.scale
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


class Adaptable(Protocol):
    """A linear layer that multiplies by way of an adapter once it has one."""

    adapter: Any
    """An ``Adapter``, or whatever else multiplies in place of the layer."""

    @property
    def weight(self) -> Tensor:
        """W, ``[O, I]``; written in place."""
        ...


class _Foreign:
    """A linear layer of torch or transformers in the form that ``Adaptable`` asks for.

    Args:
        layer: ``nn.Linear``, or transformers' ``Conv1D``.
        turned: whether it keeps its weight as ``[I, O]``, as ``Conv1D`` does.
    """

    def __init__(self, layer: nn.Module, *, turned: bool) -> None:
        self._layer: Any = layer
        self._turned = turned

    @property
    def weight(self) -> Tensor:
        """See ``Adaptable``; a view, so that what is written reaches the layer."""
        weight: Tensor = self._layer.weight
        return weight.T if self._turned else weight

    @property
    def adapter(self) -> Any:
        """What multiplies now."""
        return self._layer.forward

    @adapter.setter
    def adapter(self, adapter: Adapter) -> None:
        self._layer.forward = lambda x_BTI: adapter(x_BTI, self.weight, self._layer.bias)


def targets_of(model: Transformer, trained: Iterable[str]) -> dict[str, Adaptable]:
    """The linear layers of the body whose weights are to be trained, by the name of the weight."""
    wanted = set(trained)
    return {
        f"{name}.weight": module
        for name, module in model.named_modules()
        if isinstance(module, Linear) and name.startswith("model.layers.") and f"{name}.weight" in wanted
    }


def foreign_targets(model: nn.Module, trained: Iterable[str], head: nn.Module | None) -> dict[str, Adaptable]:
    """The same of any model of transformers: whatever layer is linear, but for its output head.

    Weights that an architecture keeps otherwise (experts joined to one tensor) are left as they are.
    """
    wanted = set(trained)
    found: dict[str, Adaptable] = {}
    for name, module in model.named_modules():
        turned = type(module).__name__ == "Conv1D" and type(module).__module__.startswith("transformers.")
        if module is not head and f"{name}.weight" in wanted and (turned or isinstance(module, nn.Linear)):
            found[f"{name}.weight"] = _Foreign(module, turned=turned)
    return found


def originals(targets: Mapping[str, Adaptable]) -> dict[str, Tensor]:
    """W₀ of layers as they are now, ``[O, I]`` each."""
    return {name: layer.weight.detach().clone() for name, layer in targets.items()}


def adapt(targets: Mapping[str, Adaptable], *, rank: int, alpha: float, seed: int) -> dict[str, Adapter]:
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
def merge(targets: Mapping[str, Adaptable], adapters: Mapping[str, Adapter], base: Callable[[str], Tensor]) -> None:
    """Write ``W₀ + s B A`` into the layers, rounded once to their type.

    Args:
        targets: layers by the name of their weight.
        adapters: of the same names.
        base: name → W₀, ``[O, I]``.
    """
    for name, layer in targets.items():
        weight = layer.weight
        weight.copy_(adapters[name].merged(base(name).to(weight.device)))
