"""The MLP's own backward pass gives the gradients of the plain formula."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.engines.transformer import gated_down


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 5))
def test_gradients_equal_autograd(seed: int, rows: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((rows, 7), (rows, 7), (3, 7))
    plain = [torch.randn(s, generator=generator, dtype=torch.float64, requires_grad=True) for s in shapes]
    own = [tensor.detach().clone().requires_grad_(True) for tensor in plain]
    expected = F.linear(F.silu(plain[0]) * plain[1], plain[2])
    found = gated_down(*own)
    grad = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    torch.autograd.backward(expected, grad)
    torch.autograd.backward(found, grad)
    torch.testing.assert_close(found, expected)
    for one, other in zip(own, plain, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_a_frozen_weight_gets_no_gradient() -> None:
    gate, up = torch.randn(2, 4, requires_grad=True), torch.randn(2, 4, requires_grad=True)
    weight = torch.randn(3, 4)
    torch.autograd.backward(gated_down(gate, up, weight).sum())
    assert gate.grad is not None
    assert weight.grad is None
