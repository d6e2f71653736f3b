"""The bound by hand, and against an exhaustive search over times of steps."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.training.staleness import most_steps


def test_by_hand() -> None:
    episodes = [(0.0, 4.0), (0.0, 1.0), (3.0, 9.0)]
    assert most_steps(episodes, 1, 1.0, until=3.9) == 1  # at 1
    assert most_steps(episodes, 1, 1.0, until=4.0) == 2  # at 4, when the first has ended
    assert most_steps(episodes, 1, 1.0, until=8.9) == 2
    assert most_steps(episodes, 1, 1.0, until=9.0) == 3
    assert most_steps(episodes, 2, 1.0, until=3.9) == 2


def test_without_episodes_only_the_trainer_is_a_limit() -> None:
    assert most_steps([], 1, 0.5, until=4.0) == 8


def test_impossible_sizes_are_refused() -> None:
    for bound, step_time in ((0, 1.0), (1, 0.0)):
        with pytest.raises(ValueError, match="the bound needs"):
            most_steps([], bound, step_time, until=1.0)


def _feasible(times: tuple[int, ...], episodes: list[tuple[int, int]], bound: int) -> bool:
    return all(sum(start < time < end for time in times) <= bound for start, end in episodes)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6)), max_size=6),
    st.integers(1, 3),
)
def test_no_choice_of_steps_beats_it(rows: list[tuple[int, int]], bound: int) -> None:
    """At most one step each unit of time, at whole times: all subsets are tried."""
    episodes = [(start, start + length) for start, length in rows]
    best = max(
        count
        for count in range(11)
        if any(_feasible(times, episodes, bound) for times in combinations(range(1, 11), count))
    )
    assert most_steps([(float(a), float(b)) for a, b in episodes], bound, 1.0, until=10.0) == best
