"""Norm and rotation with their own backward passes equal torch's, value and gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flightschool.engines.fused import rms_norm, rotate_halves

SHAPES = st.sampled_from([(1, 4), (3, 6), (2, 3, 8)])


def drawn(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64) * scale


@settings(deadline=None)
@given(SHAPES, st.integers(0, 1000), st.sampled_from([1e-3, 1.0, 1e3]))
def test_the_norm_is_torchs_norm(shape: tuple[int, ...], seed: int, scale: float) -> None:
    x = drawn(*shape, seed=seed, scale=scale).requires_grad_(True)
    weight = drawn(shape[-1], seed=seed + 1).requires_grad_(True)
    slopes = drawn(*shape, seed=seed + 2)
    plain = F.rms_norm(x, weight.shape, weight, 1e-5)
    with torch.no_grad():
        torch.testing.assert_close(rms_norm(x, weight, 1e-5), plain)
    ours = rms_norm(x, weight, 1e-5)
    torch.testing.assert_close(ours, plain)
    expected = torch.autograd.grad(plain, (x, weight), slopes)
    torch.testing.assert_close(torch.autograd.grad(ours, (x, weight), slopes), expected)


def test_a_norm_by_hand() -> None:
    """(3, 4) has the root mean square √12.5."""
    normed = rms_norm(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 2.0]), 0.0)
    assert normed.tolist() == pytest.approx([3 / 12.5**0.5, 8 / 12.5**0.5])


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.sampled_from([2, 4, 8]), st.integers(0, 1000))
def test_the_rotation_is_autograds(num: int, heads: int, size: int, seed: int) -> None:
    x = drawn(num, heads, size, seed=seed).requires_grad_(True)
    cos, sin, slopes = (drawn(num, part, size, seed=seed + part + 1) for part in (1, 1, heads))
    swapped = torch.cat((x[..., size // 2 :], x[..., : size // 2]), dim=-1)
    plain = x * cos + swapped * sin
    ours = rotate_halves(x, cos, sin)
    torch.testing.assert_close(ours, plain)
    (expected,) = torch.autograd.grad(plain, x, slopes)
    torch.testing.assert_close(torch.autograd.grad(ours, x, slopes)[0], expected)
    with torch.no_grad():
        torch.testing.assert_close(rotate_halves(x, cos, sin), plain)


def test_a_norm_of_what_lies_scattered_has_its_gradients() -> None:
    x = torch.randn(6, 5, 4, generator=torch.Generator().manual_seed(0)).transpose(0, 1).requires_grad_(True)
    weight = torch.linspace(0.5, 2.0, 4).requires_grad_(True)
    slopes = torch.randn(5, 6, 4, generator=torch.Generator().manual_seed(1))
    ours, plain = rms_norm(x, weight, 1e-5), F.rms_norm(x, weight.shape, weight, 1e-5)
    expected = torch.autograd.grad(plain, (x, weight), slopes)
    torch.testing.assert_close(torch.autograd.grad(ours, (x, weight), slopes), expected)
