"""Norm, rotation and gate equal torch's, value and gradient: in float32 by the native kernels, in float64 by torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flightschool.engines.fused import gate, rms_norm, rotate_halves
from flightschool.engines.kernels import gated_backward, serves

SHAPES = st.sampled_from([(1, 4), (3, 6), (2, 3, 8), (7, 37), (40, 2, 64), (5, 600)])
TYPES = st.sampled_from([torch.float32, torch.float64])


def drawn(*shape: int, seed: int, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * scale).to(dtype)


def close(found: Tensor, expected: Tensor) -> None:
    loose = 2e-5 if found.dtype == torch.float32 else 1e-9
    torch.testing.assert_close(found, expected, atol=loose * (1.0 + float(expected.detach().abs().max())), rtol=loose)


@settings(deadline=None)
@given(SHAPES, st.integers(0, 1000), st.sampled_from([1e-3, 1.0, 1e3]), TYPES)
def test_the_norm_is_torchs_norm(shape: tuple[int, ...], seed: int, scale: float, dtype: torch.dtype) -> None:
    x = drawn(*shape, seed=seed, scale=scale, dtype=dtype).requires_grad_(True)
    weight = drawn(shape[-1], seed=seed + 1, dtype=dtype).requires_grad_(True)
    slopes = drawn(*shape, seed=seed + 2, dtype=dtype)
    plain = F.rms_norm(x, weight.shape, weight, 1e-5)
    with torch.no_grad():
        close(rms_norm(x, weight, 1e-5), plain)
    ours = rms_norm(x, weight, 1e-5)
    close(ours, plain)
    expected = torch.autograd.grad(plain, (x, weight), slopes)
    for slope, right in zip(torch.autograd.grad(ours, (x, weight), slopes), expected, strict=True):
        close(slope, right)


def test_a_norm_by_hand() -> None:
    """(3, 4) has the root mean square √12.5."""
    normed = rms_norm(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 2.0]), 0.0)
    assert normed.tolist() == pytest.approx([3 / 12.5**0.5, 8 / 12.5**0.5])


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.sampled_from([2, 4, 8, 64, 80]), st.integers(0, 1000), TYPES)
def test_the_rotation_is_autograds(num: int, heads: int, size: int, seed: int, dtype: torch.dtype) -> None:
    x = drawn(num, heads, size, seed=seed, dtype=dtype).requires_grad_(True)
    cos, sin, slopes = (drawn(num, part, size, seed=seed + part + 1, dtype=dtype) for part in (1, 1, heads))
    swapped = torch.cat((x[..., size // 2 :], x[..., : size // 2]), dim=-1)
    plain = x * cos + swapped * sin
    ours = rotate_halves(x, cos, sin)
    close(ours, plain)
    (expected,) = torch.autograd.grad(plain, x, slopes)
    close(torch.autograd.grad(ours, x, slopes)[0], expected)
    with torch.no_grad():
        close(rotate_halves(x, cos, sin), plain)


@settings(deadline=None)
@given(SHAPES, st.integers(0, 1000), st.sampled_from([1.0, 30.0, 200.0]), TYPES)
def test_the_gate_is_torchs(shape: tuple[int, ...], seed: int, scale: float, dtype: torch.dtype) -> None:
    both = drawn(*shape[:-1], 2 * shape[-1], seed=seed, scale=scale, dtype=dtype).reshape(-1, 2 * shape[-1])
    left, right = torch.split(both, shape[-1], dim=-1)  # rows with gaps between them
    close(gate(left, right), F.silu(left) * right)


@settings(deadline=None)
@given(st.integers(1, 5), st.sampled_from([1, 16, 37, 600]), st.integers(0, 1000), st.sampled_from([1.0, 100.0]))
def test_gradients_of_the_gate_are_autograds(num: int, size: int, seed: int, scale: float) -> None:
    left, right, slopes = (drawn(num, size, seed=seed + part, scale=scale, dtype=torch.float32) for part in range(3))
    if not serves(left):
        return
    left.requires_grad_(True)
    right.requires_grad_(True)
    product = F.silu(left) * right
    expected = *torch.autograd.grad(product, (left, right), slopes), product
    for found, one in zip(gated_backward(slopes, left, right), expected, strict=True):
        close(found, one.detach())


def test_what_is_not_a_number_stays_so() -> None:
    x, one = torch.full((2, 20), torch.nan), torch.ones(2, 20)
    assert gate(x, one).isnan().all()
    assert gate(one, x).isnan().all()
    assert rms_norm(x, torch.ones(20), 1e-5).isnan().all()
    assert gate(torch.tensor([[-torch.inf, torch.inf]]), torch.ones(1, 2)).tolist()[0][1] == torch.inf


def test_a_norm_of_what_lies_scattered_has_its_gradients() -> None:
    x = torch.randn(6, 5, 4, generator=torch.Generator().manual_seed(0)).transpose(0, 1).requires_grad_(True)
    weight = torch.linspace(0.5, 2.0, 4).requires_grad_(True)
    slopes = torch.randn(5, 6, 4, generator=torch.Generator().manual_seed(1))
    ours, plain = rms_norm(x, weight, 1e-5), F.rms_norm(x, weight.shape, weight, 1e-5)
    expected = torch.autograd.grad(plain, (x, weight), slopes)
    torch.testing.assert_close(torch.autograd.grad(ours, (x, weight), slopes), expected)
