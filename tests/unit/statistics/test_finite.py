"""Sampling without replacement: by hand, by all orders of a small population, by laws, and by simulation."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.digest import derive_random
from flightschool.errors import InputError
from flightschool.statistics import FinitePopulation

STEP = 1 / 2_000
"""Of the grid of means."""


def test_by_hand() -> None:
    """Two items, stakes of half. After a 1 the capital against "the mean is m" is ½·((½ + ½/m) + ½)."""
    found = FinitePopulation(2, bets=(0.5,), level=0.8)
    first = found.draw(1.0)
    # ½·(1 + ½/m) ≥ 5 where m ≤ 1/18; but one of two is 1 already, so m ≥ ½: nothing else is known
    assert (first.value, first.low, first.high) == (1.0, 0.5, 1.0)
    # μ₂(m) = 2m − 1: a 0 leaves m = ½ alone, since nothing may be left over
    second = found.draw(0.0)
    assert (second.value, second.low, second.high) == (0.5, 0.5, 0.5)


def test_all_ones_by_hand() -> None:
    """1,000 items, all ones so far: the stake b multiplies by 1 − b + b/μ, and the lower bound is where that is 20."""
    found = FinitePopulation(100_000, bets=(0.5,))
    for _ in range(20):
        interval = found.draw(1.0)
    # the population is so large that μ stays m: ½·(½ + ½/m)^20 = 20 gives m = 1/(2·40^(1/20) − 1)
    assert interval.low == pytest.approx(1 / (2 * 40 ** (1 / 20) - 1), abs=3 * STEP)
    assert interval.high == 1.0


@pytest.mark.parametrize(("ones", "size"), [(1, 6), (3, 6), (4, 8), (7, 8)])
def test_no_order_is_left_out(ones: int, size: int) -> None:
    """Exact type-I error: over all orders of the population, the share in which the truth is ever ruled out."""
    level, wrong, orders = 0.7, 0, 0
    for places in itertools.combinations(range(size), ones):
        found, lost = FinitePopulation(size, level=level), False
        for place in range(size):
            interval = found.draw(float(place in places))
            lost |= not interval.low - 1e-9 <= ones / size <= interval.high + 1e-9
        wrong, orders = wrong + lost, orders + 1
    assert orders == math.comb(size, ones)
    assert wrong / orders <= 1 - level


@settings(max_examples=30, deadline=None)
@given(
    values=st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=2, max_size=24),
    level=st.sampled_from([0.8, 0.95]),
)
def test_laws(values: list[float], level: float) -> None:
    """Never wider than before (while the truth is held), inside what is still possible, certain at the end."""
    found = FinitePopulation(len(values), -1.0, 1.0, level=level)
    low, high, size = -1.0, 1.0, len(values)
    mean = sum(values) / size
    for number, value in enumerate(values, start=1):
        interval = found.draw(value)
        drawn = sum(values[:number])
        assert interval.low <= interval.high
        if low - 1e-9 <= mean <= high + 1e-9:
            assert interval.low >= low - 1e-9
            assert interval.high <= high + 1e-9
        assert (drawn - (size - number)) / size - 1e-9 <= interval.low
        assert interval.high <= (drawn + (size - number)) / size + 1e-9
        low, high = interval.low, interval.high
    assert low == pytest.approx(mean, abs=1e-9)
    assert high == pytest.approx(mean, abs=1e-9)


@settings(max_examples=10, deadline=None)
@given(values=st.lists(st.sampled_from([0.0, 1.0]), min_size=5, max_size=20), shift=st.floats(-3, 3))
def test_units_do_not_matter(values: list[float], shift: float) -> None:
    plain, moved = FinitePopulation(40), FinitePopulation(40, shift, shift + 4)
    for value in values:
        one, other = plain.draw(value), moved.draw(shift + 4 * value)
    assert [other.low, other.high] == pytest.approx([shift + 4 * one.low, shift + 4 * one.high])


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.long
def test_looking_after_every_item_errs_in_at_most_five_percent(share: float) -> None:
    size, wrong, trials = 80, 0, 120
    population = [1.0] * round(size * share) + [0.0] * (size - round(size * share))
    for trial in range(trials):
        found, lost = FinitePopulation(size), False
        for value in derive_random("finite", trial, str(share)).sample(population, size):
            interval = found.draw(value)
            lost |= not interval.low - 1e-9 <= share <= interval.high + 1e-9
        wrong += lost
    assert wrong / trials <= 0.05


def test_a_clear_difference_is_seen_long_before_the_end() -> None:
    """A candidate that gains 40 of 100 and loses 5: the sign of the whole suite is known after half of it."""
    differences = [1.0] * 40 + [-1.0] * 5 + [0.0] * 55
    needed = []
    for trial in range(20):
        found = FinitePopulation(100, -1.0, 1.0)
        drawn = derive_random("clear", trial).sample(differences, 100)
        needed.append(next(n for n, value in enumerate(drawn, start=1) if found.draw(value).low > 0))
    assert sorted(needed)[10] <= 55


def test_what_cannot_be() -> None:
    for size, low, high in ((0, 0.0, 1.0), (5, 1.0, 1.0), (5, 0.0, math.inf)):
        with pytest.raises(InputError):
            FinitePopulation(size, low, high)
    with pytest.raises(InputError):
        FinitePopulation(5, bets=(1.0,))
    found = FinitePopulation(1)
    for value in (1.5, math.nan):
        with pytest.raises(InputError):
            found.draw(value)
    found.draw(1.0)
    with pytest.raises(InputError, match="after 1 of 1"):
        found.draw(1.0)
