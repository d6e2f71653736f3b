"""Effective sizes, detectable effects and length bias."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import needs

from flightschool.errors import InputError
from flightschool.statistics import design_effect, effective_sample_size, length_bias, minimal_detectable_effect


def test_effective_sample_size_by_hand() -> None:
    assert effective_sample_size([1, 1, 1, 1]) == 4
    assert effective_sample_size([1, 0, 0]) == 1
    assert effective_sample_size([3, 1]) == pytest.approx(16 / 10)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(1e-200, 1e200), min_size=1, max_size=30), st.floats(1e-3, 1e3))
def test_effective_sample_size_laws(weights: list[float], scale: float) -> None:
    size = effective_sample_size(weights)
    assert 1 - 1e-9 <= size <= len(weights) + 1e-9
    assert effective_sample_size([scale * weight for weight in weights]) == pytest.approx(size)


def test_design_effect_by_hand() -> None:
    # Mean ½, each item ±½: independent variance 4·¼ / (4·3) = 1/12; cluster sums ±1: (1/16)·2·2 = ¼. Ratio 3.
    assert design_effect([1, 1, 0, 0], ["a", "a", "b", "b"]) == pytest.approx(3)
    assert design_effect([1, 1, 1], ["a", "a", "b"]) == 1
    # One item a cluster: nothing is clustered.
    assert design_effect([1, 0, 0, 1, 1], list("abcde")) == pytest.approx(1)


def test_minimal_detectable_effect_by_hand() -> None:
    # (1.959964 + 0.841621) · 0.5 / √100
    assert minimal_detectable_effect(100, 0.5) == pytest.approx(0.140079, abs=1e-6)
    assert minimal_detectable_effect(100, 0.5, design_effect=4) == pytest.approx(0.280158, abs=1e-6)
    assert minimal_detectable_effect(400, 0.5) == pytest.approx(0.140079 / 2, abs=1e-6)


def test_minimal_detectable_effect_agrees_with_statsmodels() -> None:
    power = needs.package("statsmodels.stats.power")
    reached = power.normal_power(minimal_detectable_effect(50, 1.0) / 1.0, 50, 0.05, alternative="two-sided", sigma=1.0)
    assert reached == pytest.approx(0.8, abs=1e-4)


def test_a_difference_of_that_size_is_found_at_the_stated_rate() -> None:
    rng = np.random.default_rng(0)
    effect = minimal_detectable_effect(80, 0.4)
    differences = rng.normal(effect, 0.4, (2000, 80))
    z = differences.mean(axis=1) / (differences.std(axis=1, ddof=1) / 80**0.5)
    assert (np.abs(z) > 1.96).mean() == pytest.approx(0.8, abs=0.03)


def test_length_bias_by_hand() -> None:
    assert length_bias([90, 90], [100, 100, 100]) == pytest.approx(0.1)
    assert length_bias([110], [100]) == pytest.approx(0.1)
    assert length_bias([5, 7], [7, 5]) == 0


def test_bad_input_is_told() -> None:
    for weights in ([], [0.0, 0.0], [-1.0, 2.0]):
        with pytest.raises(InputError):
            effective_sample_size(weights)
    with pytest.raises(InputError, match="one cluster"):
        design_effect([1, 0], ["a", "a"])
    with pytest.raises(InputError):
        design_effect([1, 0], ["a"])
    with pytest.raises(InputError):
        minimal_detectable_effect(0, 0.5)
    with pytest.raises(InputError):
        minimal_detectable_effect(10, float("nan"))
    with pytest.raises(InputError):
        length_bias([1], [])
    with pytest.raises(InputError):
        length_bias([1], [0])
