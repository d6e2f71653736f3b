"""A pass rate freed of the verifier's errors: by hand, by law, and by how often its interval holds the truth."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightschool.errors import InputError
from flightschool.statistics import (
    Interval,
    Reviewed,
    blaker,
    corrected_difference,
    corrected_rate,
    reviewed_rate,
    right_share,
    verifier_error,
)


def interval(value: float, low: float, high: float) -> Interval:
    return Interval(value=value, low=low, high=high, num_items=100, method="given")


def sure(value: float) -> Interval:
    return interval(value, value, value)


def test_by_hand() -> None:
    found = corrected_rate(interval(0.62, 0.5, 0.74), interval(0.1, 0.05, 0.2), interval(0.2, 0.1, 0.3))
    assert found.value == pytest.approx(0.52 / 0.7)
    down = (0.12 / 0.7) ** 2 + (0.52 / 0.7 - 0.42 / 0.6) ** 2 + (0.52 / 0.7 - 0.52 / 0.8) ** 2
    assert found.low == pytest.approx(0.52 / 0.7 - down**0.5)
    assert "rogan-gladen" in found.method


@given(st.floats(0.0, 1.0), st.floats(0.0, 0.45), st.floats(0.0, 0.45))
def test_a_known_truth_comes_back(right: float, rho0: float, rho1: float) -> None:
    passed = right * (1 - rho1) + (1 - right) * rho0
    found = corrected_rate(sure(passed), sure(rho0), sure(rho1))
    assert found.low == pytest.approx(right, abs=1e-9)
    assert found.high == pytest.approx(right, abs=1e-9)


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 0.9), st.floats(0.0, 0.9))
def test_it_is_a_rate_whose_interval_holds_it(rate: float, width: float, rho0: float, rho1: float) -> None:
    raw = interval(rate, max(0.0, rate - width), min(1.0, rate + width))
    errors = [interval(rho, max(0.0, rho - 0.1), min(1.0, rho + 0.1)) for rho in (rho0, rho1)]
    if rho0 + rho1 >= 1.0:
        with pytest.raises(InputError, match="cannot be corrected"):
            corrected_rate(raw, *errors)
        return
    found = corrected_rate(raw, *errors)
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0


def test_a_verifier_that_never_errs_changes_nothing() -> None:
    raw = interval(0.4, 0.3, 0.55)
    found = corrected_rate(raw, sure(0.0), sure(0.0))
    assert (found.value, found.low, found.high) == pytest.approx((0.4, 0.3, 0.55))


@pytest.mark.long
def test_its_interval_holds_the_truth_as_often_as_it_says() -> None:
    """300 pools: 200 attempts measured, 80 passes and 80 failures of other attempts reviewed."""
    rng = random.Random(3)
    right, rho0, rho1, held = 0.6, 0.1, 0.15, 0

    def passes(work: bool) -> bool:
        return rng.random() < (1 - rho1 if work else rho0)

    for _ in range(300):
        labels: list[Reviewed] = []
        while len(labels) < 160:
            work = rng.random() < right
            verdict = passes(work)
            if sum(one.passed is verdict for one in labels) < 80:
                share = right * (1 - rho1) + (1 - right) * rho0
                inclusion = min(1.0, 80 / (400 * (share if verdict else 1 - share)))
                label = "right" if work else "wrong"
                labels.append(Reviewed(stratum="s", passed=verdict, label=label, inclusion=inclusion))  # type: ignore[arg-type]
        error = verifier_error(labels)
        assert error.rho0 is not None
        assert error.rho1 is not None
        count = sum(passes(rng.random() < right) for _ in range(200))
        raw = blaker(count, 200)
        found = corrected_rate(raw, error.rho0, error.rho1)
        held += found.low <= right <= found.high
    assert held / 300 > 0.93


def reviewed(passed: bool, right: int, wrong: int, size: int) -> list[Reviewed]:
    inclusion = (right + wrong) / size
    return [
        *[Reviewed(stratum="s", passed=passed, label="right", inclusion=inclusion)] * right,
        *[Reviewed(stratum="s", passed=passed, label="hack", inclusion=inclusion)] * wrong,
    ]


def test_of_a_reviewed_pool_by_hand() -> None:
    labels = reviewed(True, 9, 1, 100) + reviewed(False, 1, 9, 50)
    found = reviewed_rate(interval(2 / 3, 0.59, 0.74), labels)
    assert found.value == pytest.approx(95 / 150)
    assert found.low < found.value - 0.05
    assert "20 reviewed" in found.method


def test_a_pool_reviewed_whole_knows_only_the_width_of_its_rate() -> None:
    labels = reviewed(True, 400, 0, 400) + reviewed(False, 0, 400, 400)
    found = reviewed_rate(interval(0.5, 0.46, 0.54), labels)
    assert found.value == 0.5
    assert found.low == pytest.approx(0.46, abs=0.005)


def test_the_right_share_of_a_judged_pool_is_covered() -> None:
    """400 pools of 300 passes and 200 failures, 40 of each reviewed."""
    rng, held = random.Random(5), 0
    for _ in range(400):
        passes = [rng.random() < 0.15 for _ in range(300)]  # whether a pass is wrong
        failures = [rng.random() < 0.05 for _ in range(200)]  # whether a failure is right
        truth = (300 - sum(passes) + sum(failures)) / 500
        wrong, right = sum(rng.sample(passes, 40)), sum(rng.sample(failures, 40))
        found = right_share(reviewed(True, 40 - wrong, wrong, 300) + reviewed(False, right, 40 - right, 200))
        held += found.low <= truth <= found.high
    assert held / 400 >= 0.93


# ------------------------------------------------------------------------------------------------ differences


def test_a_difference_by_hand() -> None:
    found = corrected_difference(interval(0.21, 0.07, 0.35), interval(0.1, 0.05, 0.2), interval(0.2, 0.1, 0.3))
    assert found.value == pytest.approx(0.3)
    assert found.low == pytest.approx(0.3 - (0.2**2 + 0.02**2 + 0.0375**2) ** 0.5)
    assert found.high == pytest.approx(0.3 + (0.2**2 + 0.05**2 + 0.05**2) ** 0.5)


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 0.45), st.floats(0.0, 0.45))
def test_a_known_difference_comes_back(before: float, after: float, rho0: float, rho1: float) -> None:
    seen = (after - before) * (1 - rho0 - rho1)
    found = corrected_difference(sure(seen), sure(rho0), sure(rho1))
    assert (found.low, found.value, found.high) == pytest.approx([after - before] * 3, abs=1e-9)


@given(st.floats(-1.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 0.9), st.floats(0.0, 0.9))
def test_errors_shrink_a_difference_and_never_turn_it(seen: float, width: float, rho0: float, rho1: float) -> None:
    raw = interval(seen, max(-1.0, seen - width), min(1.0, seen + width))
    errors = [interval(rho, max(0.0, rho - 0.1), min(1.0, rho + 0.1)) for rho in (rho0, rho1)]
    if rho0 + rho1 >= 1.0:
        with pytest.raises(InputError, match="cannot be corrected"):
            corrected_difference(raw, *errors)
        return
    found = corrected_difference(raw, *errors)
    assert -1.0 <= found.low <= found.value <= found.high <= 1.0
    assert abs(found.value) >= abs(seen) - 1e-12
    assert found.excludes(0.0) >= raw.excludes(0.0)


@pytest.mark.long
def test_the_interval_of_a_difference_holds_the_truth_as_often_as_it_says() -> None:
    """300 comparisons: 200 attempts of each policy, 80 passes and 80 failures of other attempts reviewed."""
    rng = random.Random(7)
    before, after, rho0, rho1, held = 0.4, 0.6, 0.1, 0.15, 0

    def passes(work: bool) -> bool:
        return rng.random() < (1 - rho1 if work else rho0)

    for _ in range(300):
        labels: list[Reviewed] = []
        while len(labels) < 160:
            work = rng.random() < 0.5
            verdict = passes(work)
            if sum(one.passed is verdict for one in labels) < 80:
                share = 0.5 * (1 - rho1) + 0.5 * rho0
                inclusion = min(1.0, 80 / (400 * (share if verdict else 1 - share)))
                label = "right" if work else "wrong"
                labels.append(Reviewed(stratum="s", passed=verdict, label=label, inclusion=inclusion))  # type: ignore[arg-type]
        error = verifier_error(labels)
        assert error.rho0 is not None
        assert error.rho1 is not None
        first, second = (sum(passes(rng.random() < right) for _ in range(200)) / 200 for right in (before, after))
        half = 1.96 * ((first * (1 - first) + second * (1 - second)) / 200) ** 0.5
        raw = interval(second - first, second - first - half, second - first + half)
        found = corrected_difference(raw, error.rho0, error.rho1)
        held += found.low <= after - before <= found.high
    assert held / 300 > 0.92
