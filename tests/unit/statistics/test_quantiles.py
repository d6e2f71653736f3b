"""Quantiles: by hand, by law, and their coverage."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightschool.digest import derive_random
from flightschool.errors import InputError
from flightschool.statistics import quantile


def test_by_hand() -> None:
    values = [float(n) for n in range(1, 21)]
    found = quantile(values, 0.5)
    assert found.value == 10.0
    # P(Bin(20, ½) ≤ 5) = .0207 ≤ .025 < P(≤ 6): the sixth value from either end.
    assert (found.low, found.high) == (6.0, 15.0)
    assert quantile(values, 0.95).value == 19.0
    assert "too few" in quantile(values, 0.95).method
    assert quantile([7.0], 0.5).value == 7.0


@pytest.mark.parametrize("q", [0.5, 0.9])
def test_coverage(q: float) -> None:
    covered, trials, true = 0, 600, -math.log(1 - q)
    for trial in range(trials):
        random = derive_random("quantile", trial)
        found = quantile([random.expovariate(1) for _ in range(60)], q)
        covered += found.low <= true <= found.high
    assert covered / trials >= 0.94


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_the_interval_holds_the_value(values: list[float], q: float) -> None:
    found = quantile(values, q)
    assert min(values) <= found.low <= found.value <= found.high <= max(values)


def test_refusals() -> None:
    with pytest.raises(InputError):
        quantile([], 0.5)
    with pytest.raises(InputError):
        quantile([1.0], 1.0)
