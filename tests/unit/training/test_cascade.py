"""What is seen by many and the rest, joined, are the plain attention: outcome and gradients."""

from __future__ import annotations

import pytest
import torch
from tests.unit.training.test_trainer import random_group
from torch import Tensor

from flightschool.training.packing import Pack, Segment, pack_group
from flightschool.training.shared_prefix import SharedPrefixAttention

MODULE = "flightschool.training.shared_prefix"


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


@pytest.mark.parametrize("block", [1 << 19, 1])  # the second: sixty-four rows at a time
@pytest.mark.parametrize("least", [(1, 1), (4, 4), (6, 3)])
@pytest.mark.parametrize("pack", [FOREST, TWO_ROOTS])
def test_outcome_and_gradients_are_those_of_plain_attention(
    pack: Pack, least: tuple[int, int], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}._LEAST_ABOVE", least[0])
    monkeypatch.setattr(f"{MODULE}._LEAST_BELOW", least[1])
    monkeypatch.setattr("flightschool.training.cascade._BLOCK", block)
    inputs = flat(pack.num_tokens, 6, 8, 0), flat(pack.num_tokens, 2, 8, 1), flat(pack.num_tokens, 2, 8, 2)
    slopes = flat(pack.num_tokens, 6, 8, 3).detach()
    attention = SharedPrefixAttention(pack)
    assert attention._above
    ours, expected = attention(0, *inputs), plain(pack, *inputs)
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(torch.autograd.grad(ours, inputs, slopes), torch.autograd.grad(expected, inputs, slopes))


def test_large_scores_do_not_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{MODULE}._LEAST_ABOVE", 1)
    monkeypatch.setattr(f"{MODULE}._LEAST_BELOW", 1)
    q, k, v = (flat(FOREST.num_tokens, heads, 4, heads).detach() * 300 for heads in (2, 1, 1))
    torch.testing.assert_close(SharedPrefixAttention(FOREST)(0, q, k, v), plain(FOREST, q, k, v))


def test_only_what_many_see_is_taken_apart() -> None:
    short = pack_group(random_group(), newest_step=0)[0]
    assert not SharedPrefixAttention(short)._above
    long = pack_of(Segment(0, 300, ()), Segment(300, 40, (0,)), Segment(340, 40, (0,)))
    (above,) = SharedPrefixAttention(long)._above.values()
    assert (above.keys, above.tokens) == (slice(0, 300), slice(300, 380))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_every_type_is_attended(dtype: torch.dtype) -> None:
    pack = pack_of(Segment(0, 300, ()), Segment(300, 40, (0,)), Segment(340, 40, (0,)))
    q, k, v = (flat(pack.num_tokens, heads, 4, heads).detach() for heads in (2, 1, 1))
    ours = SharedPrefixAttention(pack, dtype=dtype)(0, q.to(dtype), k.to(dtype), v.to(dtype))
    assert ours.dtype is dtype
    torch.testing.assert_close(ours.float(), plain(pack, q, k, v).float(), atol=2e-2, rtol=2e-2)
