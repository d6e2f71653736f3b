"""Products with weights by oneDNN, which torch carries beside MKL: in float32, on CPUs of the x86 family.

torch itself multiplies by MKL there. What oneDNN does better depends on who multiplies:

- An *engine* meets few rows and the same weights for a thousand passes. ``Direct`` multiplies by oneDNN with weights
  as they lie: 1.4 to 1.8 times as fast at 32 rows, 1.5 to 2.2 times at eight. ``Packed`` keeps a second copy of a
  weight, laid out as the kernel reads it: 1.8 to 2.3 times at 32 rows, 2.6 to 3.6 at eight, for the memory of the
  copy. It is made again whenever the weight has changed.
- A *trainer* meets a thousand rows and new weights at every step. ``InPlace`` multiplies by oneDNN forward and towards
  the input, and adds the gradient of the weight to ``weight.grad`` itself: autograd would make it apart, in fresh
  pages, and add it afterwards. That product is MKL's where vectors have 256 bits, and oneDNN's where they have 512:
  MKL does not use these on processors of others than its maker, and is half as fast then.

Elsewhere (other devices, types and processors, torch without oneDNN) layers multiply as torch does.

Shape letters: ``N`` rows, ``I`` inputs of a layer, ``O`` outputs.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from flightschool.engines.kernels import add_product, gated, gated_backward, multiplied, serves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flightschool.engines.transformer import Linear, Transformer

__all__ = [
    "Direct",
    "InPlace",
    "Packed",
    "PackedJoint",
    "accumulate_in_place",
    "has_fast_products",
    "product",
    "serve_fast",
]

_FAMILY = frozenset({"x86_64", "AMD64", "amd64"})
_PACKED_ROWS = 32
"""Rows that a packed weight is laid out for; any number may be multiplied with it."""
_WIDE = torch.backends.cpu.get_cpu_capability() == "AVX512"
_GRADIENT_ROWS = 2048
"""Rows of a weight whose gradient oneDNN makes at once: they stay in the cache until they are added."""


def has_fast_products(weight: Tensor) -> bool:
    """Whether oneDNN multiplies with weights like this one."""
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and platform.machine() in _FAMILY
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )


def _product(x_NI: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x Wᵀ + bias``; the weight may be transposed or packed. No gradient is recorded."""
    if not x_NI.numel():  # an expert without tokens
        return x_NI.new_zeros(*x_NI.shape[:-1], weight.shape[0])
    return torch.ops.mkldnn._linear_pointwise(x_NI, weight, bias, "none", [], "")  # type: ignore[no-any-return]


def product(x_NI: Tensor, weight_OI: Tensor) -> Tensor:
    """``x Wᵀ`` by the fastest kernel; no gradient is recorded."""
    if has_fast_products(x_NI):
        return _product(x_NI, weight_OI)
    return x_NI @ weight_OI.T


class Packed:
    """One weight, laid out anew; the layer calls it in place of its own product.

    A weight that has changed since then is multiplied with as it is, until it is packed again. Copies of a model are
    made without what is packed.

    Args:
        weight: ``[O, I]``.
    """

    def __init__(self, weight: Tensor) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _PACKED_ROWS)
        self._state = _state_of(weight)

    def __call__(self, x_NI: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """``x Wᵀ + bias``; where gradients are taken, with the weight itself."""
        if torch.is_grad_enabled() or _state_of(weight) != self._state:
            return F.linear(x_NI, weight, bias)
        return _product(x_NI, self._packed, bias)

    def __deepcopy__(self, memo: object) -> None:
        """What is packed cannot be copied."""


class PackedJoint:
    """Weights that multiply the same input, laid out as one: three small products take longer than one of their size.

    Like ``Packed`` it does not multiply with what has changed since, nor where gradients are taken, and is not copied.

    Args:
        layers: all with a bias, or all without.
    """

    def __init__(self, layers: Sequence[Linear]) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(
            torch.cat([layer.weight.detach() for layer in layers]), _PACKED_ROWS
        )
        biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
        self._bias = torch.cat(biases) if biases else None
        self._widths = [layer.out_features for layer in layers]
        self._state = _states_of(layers)

    def __call__(self, x_NI: Tensor, layers: Sequence[Linear]) -> tuple[Tensor, ...] | None:
        """Each layer's outcome; None where they must multiply by themselves."""
        if torch.is_grad_enabled() or _states_of(layers) != self._state:
            return None
        return torch.split(_product(x_NI, self._packed, self._bias), self._widths, dim=-1)

    def __deepcopy__(self, memo: object) -> None:
        """What is packed cannot be copied."""


class Direct:
    """A weight as it lies, whatever it is now."""

    def __call__(self, x_NI: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """``x Wᵀ + bias``; where gradients are taken, by torch's own product."""
        if torch.is_grad_enabled():
            return F.linear(x_NI, weight, bias)
        return _product(x_NI, weight, bias)


def _state_of(weight: Tensor) -> tuple[int, int]:
    """Where a weight lies and how often it was changed in place."""
    return weight.data_ptr(), weight._version


def _states_of(layers: Sequence[Linear]) -> list[tuple[int, int]]:
    parameters = (parameter for layer in layers for parameter in (layer.weight, layer.bias) if parameter is not None)
    return [_state_of(parameter) for parameter in parameters]


@torch.inference_mode()
def serve_fast(model: Transformer, *, packed: bool) -> None:
    """Have a model that only generates multiply by oneDNN; nothing happens where that is not possible.

    Args:
        model: whose layers; what somebody else put in place of their products stays.
        packed: lay weights out, or lay them out again after they have changed; else they are used as they lie.
    """
    if not has_fast_products(model.output_weight) or model.output_weight.is_inference():
        return
    joined: set[Linear] = set()
    for owner in model.joint_layers():
        owner.joint = None  # what was laid out before goes before its successor comes
        layers = owner.joint_inputs()
        if packed and all(_is_free(layer) for layer in layers):
            owner.joint = PackedJoint(layers)
            joined |= set(layers)
    for layer in model.linear_layers():
        if _is_free(layer):
            layer.adapter = None
            layer.adapter = Packed(layer.weight) if packed and layer not in joined else Direct()
    model.output = None
    model.output = Packed(model.output_weight) if packed else Direct()


def _is_free(layer: Linear) -> bool:
    """Whether nobody else has put something in place of the layer's product."""
    return layer.adapter is None or isinstance(layer.adapter, Packed | Direct)


# ------------------------------------------------------------------------------------------------ training


def add_gradient(weight: Tensor, grad_NO: Tensor, x_NI: Tensor) -> None:
    """``weight.grad += gᵀ x``."""
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    if serves(weight):
        add_product(weight.grad, grad_NO.T, x_NI)
        return
    if not _WIDE:
        weight.grad.addmm_(grad_NO.T, x_NI)
        return
    for start in range(0, weight.shape[0], _GRADIENT_ROWS):
        rows = slice(start, start + _GRADIENT_ROWS)
        weight.grad[rows] += _product(grad_NO[:, rows].T, x_NI.T)


def input_gradient(grad_NO: Tensor, weight: Tensor) -> Tensor:
    """``g W``."""
    if serves(weight):
        return multiplied(grad_NO, weight)
    return _product(grad_NO, weight.T)


class _Linear(torch.autograd.Function):
    """A linear layer whose backward pass adds to ``weight.grad`` itself."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_NI)
        ctx.weight = weight  # itself: what saved tensors come back as may be another object, without its gradient
        return _product(x_NI, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        (grad_NO,) = grads
        (x_NI,), weight = ctx.saved_tensors, ctx.weight
        if ctx.needs_input_grad[1]:
            add_gradient(weight, grad_NO, x_NI)
        return (
            input_gradient(grad_NO, weight) if ctx.needs_input_grad[0] else None,
            None,
            grad_NO.sum(0) if ctx.needs_input_grad[2] else None,
        )


class InPlace:
    """Stands in for the products of layers that train themselves (see the module)."""

    def __call__(self, x_NI: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """``x Wᵀ + bias``."""
        if not torch.is_grad_enabled():
            return _product(x_NI, weight, bias)
        return _Linear.apply(x_NI, weight, bias)  # type: ignore[no-any-return, no-untyped-call]

    def gated_down(self, gate_NI: Tensor, up_NI: Tensor, weight_DI: Tensor) -> Tensor:
        """``down(silu(gate) · up)``: see ``transformer.gated_down``."""
        return _GatedDown.apply(gate_NI, up_NI, weight_DI)  # type: ignore[no-any-return, no-untyped-call]

    def rows(self, tokens_N: Tensor, weight: Tensor) -> Tensor:
        """Rows of an embedding."""
        if not (torch.is_grad_enabled() and weight.requires_grad):
            return F.embedding(tokens_N, weight)
        return _Rows.apply(tokens_N, weight)  # type: ignore[no-any-return, no-untyped-call]


class _GatedDown(torch.autograd.Function):
    """As ``transformer.gated_down``; the gradient of the weight is added in place."""

    @staticmethod
    def forward(ctx: Any, gate_NI: Tensor, up_NI: Tensor, weight_DI: Tensor) -> Tensor:
        ctx.save_for_backward(gate_NI, up_NI)
        ctx.weight = weight_DI
        inner_NI = gated(gate_NI, up_NI) if serves(gate_NI) else F.silu(gate_NI).mul_(up_NI)
        return _product(inner_NI, weight_DI)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (grad_ND,) = grads
        (gate_NI, up_NI), weight_DI = ctx.saved_tensors, ctx.weight
        gate_grad_NI, up_grad_NI, product_NI = _gate_gradients(input_gradient(grad_ND, weight_DI), gate_NI, up_NI)
        if ctx.needs_input_grad[2]:
            add_gradient(weight_DI, grad_ND, product_NI)
        return gate_grad_NI, up_grad_NI, None


def _gate_gradients(inner_NI: Tensor, gate_NI: Tensor, up_NI: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``gate`` and ``up`` from that of ``silu(gate) · up``, which is made again; ``inner`` is used up."""
    if serves(inner_NI):
        return gated_backward(inner_NI, gate_NI, up_NI)
    silu_NI = F.silu(gate_NI)
    gate_grad_NI = torch.ops.aten.silu_backward(inner_NI * up_NI, gate_NI)
    return gate_grad_NI, inner_NI.mul_(silu_NI), silu_NI.mul_(up_NI)


class _Rows(torch.autograd.Function):
    """An embedding whose backward pass adds to the rows that were looked up, and touches no other."""

    @staticmethod
    def forward(ctx: Any, tokens_N: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(tokens_N)
        ctx.weight = weight
        return F.embedding(tokens_N, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None]:
        (tokens_N,), weight = ctx.saved_tensors, ctx.weight
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        weight.grad.index_add_(0, tokens_N, grads[0])
        return None, None


def accumulate_in_place(model: Transformer) -> None:
    """Have a model whose parameters train themselves multiply by ``InPlace``; nothing happens where that cannot be.

    Gradients appear in ``grad`` alone: ``torch.autograd.grad`` and hooks of these parameters see none.
    """
    if not has_fast_products(model.output_weight):
        return
    products = InPlace()
    for layer in model.linear_layers():
        layer.adapter = products
    model.output = model.model.embed_tokens.adapter = products
