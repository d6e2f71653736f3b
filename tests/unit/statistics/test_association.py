"""Correlation, calibration, repeats, multiplicity."""

from __future__ import annotations

import math
import random as standard_random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import needs

from flightschool.digest import derive_random
from flightschool.errors import InputError
from flightschool.statistics import (
    calibration,
    disattenuated,
    holm,
    kendall_tau,
    pass_at_k,
    pass_hat_k,
    pearson,
    rank_stability,
    ranks,
    spearman,
    unrestricted,
)


def test_correlations_by_hand() -> None:
    x, y = [1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0]
    assert pearson(x, y).value == pytest.approx(0.8)  # Σdxdy = 4, Σdx² = Σdy² = 5
    assert spearman(x, y).value == pytest.approx(0.8)
    assert kendall_tau(x, y) == pytest.approx(4 / 6)
    assert ranks([5, 1, 5, 3]) == [3.5, 1, 3.5, 2]
    low, high = math.tanh(math.atanh(0.8) - 1.959964), math.tanh(math.atanh(0.8) + 1.959964)
    found = pearson(x, y)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-6)
    assert pearson(x, x).value == pytest.approx(1.0)
    assert kendall_tau([1, 1], [1, 2]) == 0.0


def test_correlations_against_a_library() -> None:
    stats = needs.package("scipy.stats")
    random = derive_random("correlation")
    x = [float(random.randrange(6)) for _ in range(30)]
    y = [v + random.gauss(0, 2) for v in x]
    z = [float(round(v)) for v in y]
    assert pearson(x, y).value == pytest.approx(float(stats.pearsonr(x, y)[0]))
    assert spearman(x, z).value == pytest.approx(float(stats.spearmanr(x, z)[0]))
    assert kendall_tau(x, z) == pytest.approx(float(stats.kendalltau(x, z)[0]))
    interval = stats.pearsonr(x, y).confidence_interval()
    assert pearson(x, y).low == pytest.approx(float(interval[0]))


def test_the_interval_of_a_correlation_covers() -> None:
    random, covered, trials = derive_random("fisher"), 0, 400
    for _ in range(trials):
        x = [random.gauss(0, 1) for _ in range(15)]
        y = [0.6 * v + 0.8 * random.gauss(0, 1) for v in x]
        found = pearson(x, y)
        covered += found.low <= 0.6 <= found.high
    assert 0.92 <= covered / trials <= 0.98


@settings(max_examples=50, deadline=None)
@given(pairs=st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=4, max_size=20))
def test_correlations_are_symmetric_and_bounded(pairs: list[tuple[int, int]]) -> None:
    x, y = [float(a) for a, _ in pairs], [float(b) for _, b in pairs]
    assert kendall_tau(x, y) == pytest.approx(kendall_tau(y, x))
    if len(set(x)) > 1 and len(set(y)) > 1:
        assert -1 <= pearson(x, y).value <= 1
        assert pearson(x, y).value == pytest.approx(pearson(y, x).value)
        assert spearman(x, y).value == pytest.approx(-spearman([-v for v in x], y).value)
    else:
        with pytest.raises(InputError, match="does not vary"):
            pearson(x, y)


def test_what_unreliability_and_narrow_ranges_hide() -> None:
    assert disattenuated(0.4, 0.64, 1.0) == pytest.approx(0.5)
    with pytest.raises(InputError):
        disattenuated(0.4, 0.0, 1.0)
    assert unrestricted(0.5, 1.0, 1.0) == pytest.approx(0.5)
    assert unrestricted(0.5, 1.0, 2.0) == pytest.approx(1.0 / math.sqrt(1 + 0.25 * 3))


def test_calibration_by_hand_and_by_recovery() -> None:
    right = calibration([0.2, 0.8], [20, 80], [100, 100])
    assert (right.slope, right.intercept) == pytest.approx((1.0, 0.0), abs=1e-4)
    assert right.ece == pytest.approx(0.0)
    assert right.brier == pytest.approx(0.16)
    assert (right.mean_predicted, right.mean_observed, right.num_outcomes) == (0.5, 0.5, 200)
    worse = calibration([0.2, 0.8], [10, 60], [100, 100])
    assert worse.ece == pytest.approx(0.15)
    assert worse.intercept < 0
    logit = [-2.0, -1.0, 0.5, 1.5]
    truth = [1 / (1 + math.exp(-(0.3 + 0.5 * v))) for v in logit]
    predicted = [1 / (1 + math.exp(-v)) for v in logit]
    found = calibration(predicted, [1e6 * p for p in truth], [10**6] * 4)
    assert (found.slope, found.intercept) == pytest.approx((0.5, 0.3), abs=1e-3)
    same = calibration([0.5, 0.5], [3, 4], [10, 10])
    assert same.slope == 0.0
    assert math.isfinite(calibration([0.1, 0.9], [0, 10], [10, 10]).slope)
    with pytest.raises(InputError):
        calibration([0.5], [3], [2])


def test_pass_at_and_hat_k_by_hand_and_by_enumeration() -> None:
    assert pass_at_k(4, 8, 4) == pytest.approx(0.986, abs=1e-3)
    assert pass_hat_k(4, 8, 4) == pytest.approx(1 / 70)
    from itertools import combinations

    for successes in range(6):
        marks = [True] * successes + [False] * (5 - successes)
        for k in range(1, 6):
            drawn = list(combinations(marks, k))
            assert pass_at_k(successes, 5, k) == pytest.approx(sum(map(any, drawn)) / len(drawn))
            assert pass_hat_k(successes, 5, k) == pytest.approx(sum(map(all, drawn)) / len(drawn))
    with pytest.raises(InputError, match="--repeats 3"):
        pass_at_k(1, 2, 3)


def test_pass_hat_k_is_unbiased() -> None:
    p, n, k = 0.7, 5, 3
    mean = sum(math.comb(n, c) * p**c * (1 - p) ** (n - c) * pass_hat_k(c, n, k) for c in range(n + 1))
    assert mean == pytest.approx(p**k)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == [pytest.approx(0.03), pytest.approx(0.06), pytest.approx(0.06)]
    assert holm([]) == []
    with pytest.raises(InputError):
        holm([1.5])


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_orders_and_bounds(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for raw, new in zip(p_values, adjusted, strict=True):
        assert raw <= new <= min(1.0, raw * len(p_values)) + 1e-12


def test_holm_against_a_library() -> None:
    multitest = needs.package("statsmodels.stats.multitest")
    values = [0.001, 0.2, 0.03, 0.03, 0.9]
    assert holm(values) == pytest.approx(list(multitest.multipletests(values, method="holm")[1]))


def test_a_clear_order_is_stable_and_a_tie_is_not() -> None:
    clusters = [f"c{i // 4}" for i in range(80)]
    shuffled = standard_random.Random(1)
    good = [float(shuffled.random() < 0.9) for _ in range(80)]
    poor = [float(shuffled.random() < 0.4) for _ in range(80)]
    clear = rank_stability({"good": good, "poor": poor}, clusters)
    assert clear.order == ("good", "poor")
    assert clear.first_again > 0.99
    assert clear.rank_high["good"] == 1.0
    tied = rank_stability({"one": good, "other": good}, clusters)
    assert tied.first_again == pytest.approx(0.5)
    assert tied.kendall == 0.0
    assert rank_stability({"good": good, "poor": poor}, clusters) == clear
    with pytest.raises(InputError):
        rank_stability({"one": good}, clusters)
