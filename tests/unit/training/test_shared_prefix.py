"""Attention over a pack is the plain attention: outcome and gradients, by the native kernel and by padded batches."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from flightschool.training.packing import Pack, Segment
from flightschool.training.shared_prefix import SharedPrefixAttention


def flat(num: int, heads: int, size: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num, heads, size, generator=generator, dtype=torch.float64).requires_grad_(True)


def pack_of(*segments: Segment) -> Pack:
    num = max(segment.start + segment.length for segment in segments)
    return Pack(tokens_N=[0] * num, positions_N=list(range(num)), segments=list(segments), targets=[])


FOREST = pack_of(
    Segment(0, 7, ()),  # all others see it
    Segment(7, 3, (0,)),
    Segment(10, 5, (0, 1)),
    Segment(15, 5, (0, 1)),
    Segment(20, 4, (0,)),
    Segment(24, 1, (0, 4)),
    Segment(25, 2, (0, 1, 2)),  # below segment 1, and apart from the others below it
)
TWO_ROOTS = pack_of(Segment(0, 6, ()), Segment(6, 5, ()), Segment(11, 4, (0,)), Segment(15, 3, (1,)))


def visible(pack: Pack) -> Tensor:
    """``[N, N]``: whether a token sees another, straight from the definition."""
    seen = torch.zeros(pack.num_tokens, pack.num_tokens, dtype=torch.bool)
    for segment in pack.segments:
        for place in range(segment.length):
            row = seen[segment.start + place]
            row[segment.start : segment.start + place + 1] = True
            for parent in (pack.segments[index] for index in segment.parents):
                row[parent.start : parent.start + parent.length] = True
    return seen


def plain(pack: Pack, q_NHF: Tensor, k_NKF: Tensor, v_NKF: Tensor) -> Tensor:
    shared = q_NHF.shape[1] // k_NKF.shape[1]
    k, v = (x.repeat_interleave(shared, dim=1) for x in (k_NKF, v_NKF))
    scores = torch.einsum("nhf,mhf->hnm", q_NHF, k) / q_NHF.shape[-1] ** 0.5
    weights = scores.masked_fill(~visible(pack), -torch.inf).softmax(-1)
    return torch.einsum("hnm,mhf->nhf", weights, v)


@pytest.mark.parametrize("kernels", ["off", "on"])
@pytest.mark.parametrize("pack", [FOREST, TWO_ROOTS])
def test_outcome_and_gradients_are_those_of_plain_attention(
    pack: Pack, kernels: str, switch_kernels: Callable[[str], None]
) -> None:
    switch_kernels(kernels)
    exact = flat(pack.num_tokens, 6, 8, 0), flat(pack.num_tokens, 2, 8, 1), flat(pack.num_tokens, 2, 8, 2)
    slopes = flat(pack.num_tokens, 6, 8, 3).detach()
    inputs = [x.detach().float().requires_grad_() for x in exact]
    ours, expected = SharedPrefixAttention(pack)(0, *inputs), plain(pack, *exact)
    torch.testing.assert_close(ours.double(), expected, atol=1e-5, rtol=1e-5)
    found = torch.autograd.grad(ours, inputs, slopes.float())
    for slope, right in zip(found, torch.autograd.grad(expected, exact, slopes), strict=True):
        torch.testing.assert_close(slope.double(), right, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_every_type_is_attended(dtype: torch.dtype) -> None:
    pack = pack_of(Segment(0, 300, ()), Segment(300, 40, (0,)), Segment(340, 40, (0,)))
    q, k, v = (flat(pack.num_tokens, heads, 4, heads).detach() for heads in (2, 1, 1))
    ours = SharedPrefixAttention(pack)(0, q.to(dtype), k.to(dtype), v.to(dtype))
    assert ours.dtype is dtype
    torch.testing.assert_close(ours.float(), plain(pack, q, k, v).float(), atol=2e-2, rtol=2e-2)
