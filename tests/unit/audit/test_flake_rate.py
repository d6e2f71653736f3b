"""How often a reference is played so that a flake rate is excluded."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightschool.audit import repeats_to_exclude
from flightschool.audit.terminal.examination import Examination, Play
from flightschool.audit.terminal.probes.reference import flake_bound, repeat
from flightschool.errors import InputError


@pytest.mark.parametrize(("rate", "plays"), [(0.5, 5), (0.1, 29), (0.05, 59), (0.01, 299), (0.95, 2)])
def test_known_numbers(rate: float, plays: int) -> None:
    assert repeats_to_exclude(rate) == plays


@given(st.floats(0.005, 0.7))
def test_the_number_is_the_least_whose_exact_bound_is_the_rate(rate: float) -> None:
    plays = repeats_to_exclude(rate)
    assert flake_bound(0, plays) <= rate + 1e-6
    assert plays == 2 or flake_bound(0, plays - 1) > rate - 1e-6


def test_the_bound_of_a_number_asks_for_that_number() -> None:
    assert repeats_to_exclude(flake_bound(0, 20) + 1e-12) == 20


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, float("nan")])
def test_what_no_number_excludes_is_refused(rate: float) -> None:
    with pytest.raises(InputError):
        repeats_to_exclude(rate)


class SlowTask:
    """A task each play of which takes two seconds, of which nothing is waited for here."""

    async def play(self, policy: Any, *, index: int = 0) -> Play:
        del policy, index
        return Play(reward=1.0, grader_s=2.0, grader_cpu_s=2.0)

    async def grade(self, states: Any) -> Play:
        return await self.play(states)


@pytest.mark.parametrize(("however_slow", "plays"), [(False, 10), (True, 59)])
def test_slow_references_are_played_less_often_unless_a_rate_is_asked_for(however_slow: bool, plays: int) -> None:
    slow = SlowTask()
    exam = cast("Examination", slow)
    first = asyncio.run(slow.play(None))
    repeats, flakes = asyncio.run(repeat(exam, first, 59, however_slow=however_slow))
    assert (repeats.num, flakes) == (plays, [])
