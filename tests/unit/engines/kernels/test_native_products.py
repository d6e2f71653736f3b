"""Products by the native kernel are those of float64, whatever is transposed and however the sizes end."""

from __future__ import annotations

import random

import pytest
import torch
from tests.needs import reason
from torch import Tensor

from flightschool.compiling import compilers
from flightschool.engines.kernels import add_product, multiplied, serves

pytestmark = pytest.mark.skipif(not compilers(), reason=reason("a C compiler", "install cc, gcc or clang"))


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
def test_sizes_of_all_kinds(threads: int, transposed: str) -> None:
    chance, before = random.Random(threads), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for seed in range(25):
            rows, columns, depth = (chance.choice([1, 2, 7, 8, 9, 47, 48, 49, 96, 97, 200, 700]) for _ in range(3))
            a = drawn(depth, rows, seed=seed).T if "a" in transposed else drawn(rows, depth, seed=seed)
            b = drawn(columns, depth, seed=seed).T if "b" in transposed else drawn(depth, columns, seed=seed + 1)
            c = drawn(rows, columns, seed=seed + 2)
            torch.testing.assert_close(multiplied(a, b).double(), a.double() @ b.double(), atol=3e-4, rtol=1e-4)
            expected = c.double() + a.double() @ b.double()
            assert add_product(c, a, b) is c
            torch.testing.assert_close(c.double(), expected, atol=3e-4, rtol=1e-4)
    finally:
        torch.set_num_threads(before)


def test_by_hand() -> None:
    """(1 2) (5 6; 7 8) = (19 22), added to (100 200)."""
    c = torch.tensor([[100.0, 200.0]])
    add_product(c, torch.tensor([[1.0, 2.0]]), torch.tensor([[5.0, 6.0], [7.0, 8.0]]))
    assert c.tolist() == [[119.0, 222.0]]


@pytest.mark.parametrize("transposed", [False, True])
def test_lines_that_are_whole_pages_apart(transposed: bool) -> None:
    wide = drawn(300, 2048, seed=0)
    a, b = (wide[:, :200].T if transposed else wide[:200, :300]), drawn(300, 50, seed=1)
    torch.testing.assert_close(multiplied(a, b).double(), a.double() @ b.double(), atol=3e-4, rtol=1e-4)


def test_parts_of_larger_tensors() -> None:
    whole, a, b = torch.zeros(20, 30), drawn(40, 50, seed=0), drawn(60, 70, seed=1)
    add_product(whole[3:10, 5:25], a[::2, 10:43][:7], b[:33, 20:60:2])
    expected = torch.zeros(20, 30, dtype=torch.float64)
    expected[3:10, 5:25] = a[::2, 10:43][:7].double() @ b[:33, 20:60:2].double()
    torch.testing.assert_close(whole.double(), expected, atol=1e-4, rtol=1e-4)


def test_nothing_times_something_adds_nothing() -> None:
    c = torch.ones(3, 4)
    add_product(c, torch.empty(3, 0), torch.empty(0, 4))
    add_product(torch.empty(0, 4), torch.empty(0, 5), torch.ones(5, 4))
    assert torch.equal(multiplied(torch.empty(3, 0), torch.empty(0, 4)), torch.zeros(3, 4))
    assert torch.equal(c, torch.ones(3, 4))


def test_nan_is_not_lost() -> None:
    c, a, b = torch.zeros(9, 9), drawn(9, 300, seed=0), drawn(300, 9, seed=1)
    a[4, 250] = torch.nan
    add_product(c, a, b)
    assert c[4].isnan().all()
    assert c.isfinite().sum() == 72


def test_equal_calls_give_equal_bits() -> None:
    a, b = drawn(100, 300, seed=0), drawn(300, 90, seed=1)
    assert torch.equal(add_product(torch.zeros(100, 90), a, b), add_product(torch.zeros(100, 90), a, b))


def test_sizes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\) times \(4, 5\) does not go into \(2, 5\)"):
        add_product(torch.zeros(2, 5), torch.zeros(2, 3), torch.zeros(4, 5))


def test_what_is_multiplied() -> None:
    assert serves(torch.zeros(1))
    assert not serves(torch.zeros(1, dtype=torch.bfloat16))
    assert not serves(torch.zeros(1, device="meta"))
