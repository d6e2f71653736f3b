"""The chosen members are the most spread of all subsets, by hand and against brute force."""

from __future__ import annotations

from itertools import combinations
from statistics import pvariance

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.training.algorithms import most_spread


def test_by_hand() -> None:
    assert most_spread([0.0, 1.0, 0.1, 0.5], 2) == [0, 1]
    assert most_spread([-0.4, -0.4, 2.6, -0.4, -0.4], 3) == [2, 3, 4]
    assert most_spread([1.0, 2.0], 4) == [0, 1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=3, max_size=8), st.data())
def test_no_other_subset_is_more_spread(values: list[float], data: st.DataObject) -> None:
    limit = data.draw(st.integers(2, len(values) - 1))
    chosen = most_spread(values, limit)
    assert len(chosen) == limit
    best = max(pvariance([values[i] for i in subset]) for subset in combinations(range(len(values)), limit))
    assert pvariance([values[i] for i in chosen]) == pytest.approx(best, abs=1e-12)


def test_one_member_is_refused() -> None:
    with pytest.raises(ValueError, match="two"):
        most_spread([0.0, 1.0], 1)
