"""Laid-out rows and their gradients equal torch's own."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.training.rows import Layout, deal, gather_up, repeat

SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=6)


def layout_of(sizes: list[int]) -> Layout:
    """Segments of these lengths, each padded to the longest by its last token."""
    longest, start = max(sizes), 0
    tokens: list[int] = []
    rows: list[int] = []
    padding: list[int] = []
    for size in sizes:
        rows += range(len(tokens), len(tokens) + size)
        padding += range(len(tokens) + size, len(tokens) + longest)
        tokens += [start + min(place, size - 1) for place in range(longest)]
        start += size
    return Layout(torch.tensor(tokens), torch.tensor(rows), torch.tensor(padding, dtype=torch.long))


@settings(deadline=None)
@given(SIZES, st.integers(0, 1000))
def test_deal_and_gather_up_are_look_ups_whose_padding_has_no_gradient(sizes: list[int], seed: int) -> None:
    layout = layout_of(sizes)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(sum(sizes), 3, generator=generator, dtype=torch.float64).requires_grad_(True)
    weights = torch.randn(len(layout.tokens_R), 3, generator=generator, dtype=torch.float64)

    ours = gather_up(torch.sin(deal(x, layout) * weights), layout)
    (ours_grad,) = torch.autograd.grad((ours**2).sum(), x)
    plain = torch.sin(x.index_select(0, layout.tokens_R) * weights).index_select(0, layout.rows_N)
    (plain_grad,) = torch.autograd.grad((plain**2).sum(), x)
    assert torch.equal(ours, plain)
    torch.testing.assert_close(ours_grad, plain_grad)


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(0, 1000))
def test_repeat_adds_the_gradients_of_all_copies(tokens: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(5, 3, generator=generator, dtype=torch.float64).requires_grad_(True)
    index = torch.tensor(tokens)
    weights = torch.randn(len(tokens), 3, generator=generator, dtype=torch.float64)
    (ours,) = torch.autograd.grad((repeat(x, index) * weights).sum(), x)
    expected = torch.zeros(5, 3, dtype=torch.float64)
    for token, weight in zip(tokens, weights, strict=True):
        expected[token] += weight
    torch.testing.assert_close(ours, expected)
