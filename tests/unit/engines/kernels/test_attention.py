"""The native kernel is the plain attention, written from its definition in float64: outcome and gradients."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
import torch
from tests.needs import reason
from torch import Tensor

from flightschool.compiling import compilers
from flightschool.engines.kernels import Run, Span, Work, attend, attend_cached, find_kernels, has_kernels

pytestmark = pytest.mark.skipif(not compilers(), reason=reason("a C compiler", "install cc, gcc or clang"))

SIZE = 16


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected, atol=3e-5, rtol=3e-5)


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def seen(spans: list[Span], num_rows: int, num_keys: int) -> Tensor:
    """``[N, R]``: which token sees which key, straight from what ``Run`` says."""
    mask = torch.zeros(num_rows, num_keys, dtype=torch.bool)
    for span in spans:
        for token in range(span.num_tokens):
            for run in span.runs:
                num = run.num_keys if run.first_sees < 0 else min(run.num_keys, run.first_sees + token)
                mask[span.row + token, run.offset : run.offset + num] = True
    return mask


def plain(q_NHF: Tensor, k_RKF: Tensor, v_RKF: Tensor, mask_NR: Tensor) -> Tensor:
    shared = q_NHF.shape[1] // k_RKF.shape[1]
    k, v = (x.repeat_interleave(shared, dim=1) for x in (k_RKF, v_RKF))
    scores = torch.einsum("nhf,rhf->nhr", q_NHF, k) / math.sqrt(q_NHF.shape[2])
    weights = scores.masked_fill(~mask_NR[:, None], -torch.inf).softmax(-1)
    return torch.einsum("nhr,rhf->nhf", weights, v)


def compare(spans: list[Span], num_rows: int, num_keys: int, heads: tuple[int, int], size: int = SIZE) -> None:
    q, k, v, grad = (
        drawn(num, number, size, seed=seed)
        for seed, (num, number) in enumerate(
            [(num_rows, heads[0]), (num_keys, heads[1]), (num_keys, heads[1]), (num_rows, heads[0])]
        )
    )
    ours, right = ([x.to(dtype).requires_grad_() for x in (q, k, v)] for dtype in (torch.float32, torch.float64))
    out, expected = (
        attend(ours[0], ours[1], ours[2], Work(spans)),
        plain(right[0], right[1], right[2], seen(spans, num_rows, num_keys)),
    )
    close(out, expected)
    slopes = torch.autograd.grad(out, ours, grad)
    for slope, exact in zip(slopes, torch.autograd.grad(expected, right, grad.double()), strict=True):
        close(slope, exact)
    with torch.no_grad():
        assert torch.equal(attend(ours[0], ours[1], ours[2], Work(spans)), out)


def forest(chance: random.Random) -> tuple[list[Span], int]:
    """Spans over a tree: each sees some before it whole, and itself up to each token."""
    spans: list[Span] = []
    paths: list[list[Run]] = [[]]
    row = 0
    for _ in range(chance.randint(1, 7)):
        length, above = chance.choice([1, 2, 7, 33, 90]), chance.choice(paths)
        spans.append(Span(row, length, (*above, Run(row, length, first_sees=1))))
        paths.append([*above, Run(row, length)])
        row += length
    return spans, row


@pytest.mark.parametrize("heads", [(1, 1), (4, 4), (9, 3), (6, 1), (40, 2)])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_trees_of_spans_are_attended_as_by_definition(heads: tuple[int, int], threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for seed in range(6):
            spans, num = forest(random.Random(100 * threads + seed))
            compare(spans, num, num, heads)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("size", [1, 4, 8, 20, 32, 64, 80, 112, 128, 256])
def test_heads_of_every_usual_size(size: int) -> None:
    spans, num = forest(random.Random(size))
    compare(spans, num, num, (4, 2), size)


def test_keys_in_front_of_the_tokens_and_spans_in_any_order() -> None:
    spans = [
        Span(5, 40, (Run(0, 20), Run(25, 40, first_sees=1))),
        Span(0, 5, (Run(0, 20), Run(20, 5, first_sees=1))),
    ]
    compare(spans, 45, 65, (4, 2))


def test_by_hand() -> None:
    """Two keys, scores 0 and log 3: weights 1/4 and 3/4, whatever the head size."""
    q, k, v = torch.zeros(1, 1, SIZE), torch.zeros(2, 1, SIZE), torch.zeros(2, 1, SIZE)
    q[0, 0, 0], k[1, 0, 0] = 1.0, math.log(3.0) * math.sqrt(SIZE)
    v[0, 0, 1], v[1, 0, 1] = 8.0, 4.0
    out = attend(q, k, v, Work([Span(0, 1, (Run(0, 2),))]))
    assert float(out[0, 0, 1]) == pytest.approx(0.25 * 8.0 + 0.75 * 4.0, rel=1e-6)


def test_scores_far_apart_neither_overflow_nor_lose_the_small() -> None:
    spans, num = [Span(0, 70, (Run(0, 70, first_sees=1),))], 70
    q, k, v = (drawn(num, 2, SIZE, seed=seed) * factor for seed, factor in enumerate((40.0, 40.0, 1.0)))
    expected = plain(q.double(), k.double(), v.double(), seen(spans, num, num))
    torch.testing.assert_close(attend(q, k, v, Work(spans)).double(), expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_what_is_not_finite_is_not_hidden(broken: float) -> None:
    spans = [Span(0, 20, (Run(0, 20, first_sees=1),))]
    q, k, v = (drawn(20, 1, SIZE, seed=seed) for seed in range(3))
    k[7, 0, 3] = broken
    q[:, 0, 3] = 1.0
    out = attend(q, k, v, Work(spans))
    assert out[:7].isfinite().all()
    assert out[7:].isnan().any(dim=-1).all()


def test_equal_calls_give_equal_bits() -> None:
    spans, num = forest(random.Random(3))
    work = Work(spans)
    once, again = (
        torch.autograd.grad(attend(inputs[0], inputs[1], inputs[2], work).square().sum(), inputs)
        for inputs in ([drawn(num, 4, SIZE, seed=seed).requires_grad_() for seed in range(3)] for _ in range(2))
    )
    assert all(torch.equal(one, other) for one, other in zip(once, again, strict=True))


def test_new_keys_are_kept_and_what_another_span_saw_is_gone_on_from() -> None:
    """Three tokens behind a shared prefix of five, in slots of their own with 0, 2 and 4 tokens there."""
    tails, shared = ((drawn(4, 2, 9, SIZE, seed=seed), drawn(4, 2, 9, SIZE, seed=seed + 1)) for seed in (0, 2))
    q, k, v = drawn(3, 4, SIZE, seed=4), drawn(3, 2, SIZE, seed=5), drawn(3, 2, SIZE, seed=6)
    there, slots = (0, 2, 4), (3, 0, 2)
    step = 2 * 9
    spans = [
        Span(0, 3, (Run(1 * step, 5, store=1),)),
        *(Span(row, 1, (Run(slot * step, there[row] + 1),), resumes=True) for row, slot in enumerate(slots)),
    ]
    work = Work(spans, [(0, slot * step + there[row]) for row, slot in enumerate(slots)])
    out = attend_cached(q, k, v, [tails, shared], work)
    for row, slot in enumerate(slots):
        assert torch.equal(tails[0][slot, :, there[row]], k[row])
        assert torch.equal(tails[1][slot, :, there[row]], v[row])
        keys, values = (
            torch.cat((prefix[1, :, :5], tail[slot, :, : there[row] + 1]), dim=1).transpose(0, 1).double()
            for prefix, tail in zip(shared, tails, strict=True)
        )
        expected = plain(q[row : row + 1].double(), keys, values, torch.ones(1, len(keys), dtype=torch.bool))
        close(out[row : row + 1], expected)


def test_spans_must_hold_every_token() -> None:
    q = drawn(3, 1, SIZE, seed=0)
    with pytest.raises(ValueError, match="spans hold 2 tokens, and there are 3"):
        attend(q, q, q, Work([Span(0, 2, (Run(0, 2),))]))


def test_spans_that_resume_have_no_gradients() -> None:
    q = drawn(1, 1, SIZE, seed=0).requires_grad_()
    with pytest.raises(ValueError, match="no gradients"):
        attend(q, q, q, Work([Span(0, 1, (Run(0, 1),)), Span(0, 1, (Run(0, 1),), resumes=True)]))


def test_who_is_served(switch_kernels: Callable[[str], None]) -> None:
    assert has_kernels("cpu", torch.float32, 64)
    assert not has_kernels("cpu", torch.float32, find_kernels().largest_head + 1)
    assert not has_kernels("cpu", torch.bfloat16, 64)
    assert not has_kernels("meta", torch.float32, 64)
    switch_kernels("off")
    assert not has_kernels("cpu", torch.float32, 64)
