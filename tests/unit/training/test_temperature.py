"""The sampling temperature rises as the policy succeeds, and falls back when it has lost it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightschool.config import parse_settings
from flightschool.errors import ConfigError
from flightschool.training.settings import TrainingSettings
from flightschool.training.temperature import Temperature

RISING = TrainingSettings(initial_temperature=0.5, temperature_rise=0.1)


def path(settings: TrainingSettings, successes: list[float]) -> list[float]:
    temperature = Temperature(settings)
    values = []
    for success in successes:
        temperature.step(success)
        values.append(temperature.value)
    return values


def test_by_hand() -> None:
    assert path(RISING, [0.8, 0.8, 0.0, 0.0, 0.0, 0.0]) == pytest.approx([0.6, 0.7, 0.8, 0.8, 0.8, 0.7])


def test_a_policy_that_has_not_learned_stays_where_it_can() -> None:
    assert path(RISING, [0.0] * 10) == [0.5] * 10
    assert path(RISING, [0.2] * 10) == [0.5] * 10


def test_without_a_first_temperature_nothing_moves() -> None:
    assert path(TrainingSettings(temperature=0.9), [1.0, 0.0, 1.0]) == [0.9] * 3


@given(st.lists(st.floats(0.0, 1.0), max_size=40))
def test_it_stays_between_first_and_last_and_moves_by_single_rises(successes: list[float]) -> None:
    values = [0.5, *path(RISING, successes)]
    assert all(0.5 <= value <= 1.0 for value in values)
    assert all(abs(b - a) <= 0.1 + 1e-12 for a, b in itertools.pairwise(values))


def test_a_later_incarnation_goes_on_where_the_run_was() -> None:
    assert Temperature(RISING, 0.8).value == 0.8


def test_a_falling_schedule_is_refused() -> None:
    with pytest.raises(ConfigError, match="initial_temperature"):
        parse_settings({"initial_temperature": 1.2}, TrainingSettings, where="x.toml")
