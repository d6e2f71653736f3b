"""Exact intervals: against enumeration, known tables, and a library where one is there."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import needs

from flightschool.digest import derive_random
from flightschool.errors import InputError
from flightschool.statistics import (
    beta_cdf,
    beta_quantile,
    blaker,
    clopper_pearson,
    f_quantile,
    korn_graubard,
    num_failing_clusters,
    student_quantile,
)


def exact_coverage(n: int, p: float, bounds: list[tuple[float, float]]) -> float:
    """Sum of the probabilities of all outcomes whose interval holds p: no simulation."""
    pmf = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    return math.fsum(mass for mass, (low, high) in zip(pmf, bounds, strict=True) if low <= p <= high)


@pytest.mark.parametrize("n", [20, 50, 200])
def test_coverage_is_never_below_nominal_and_rarely_far_above(n: int) -> None:
    found = [blaker(k, n) for k in range(n + 1)]
    bounds = [(one.low, one.high) for one in found]
    for p in (0.5, 0.9, 0.97):
        assert 0.95 <= exact_coverage(n, p, bounds) <= 0.985
    for step in range(1, 40):
        assert exact_coverage(n, step / 40, bounds) >= 0.95 - 1e-9


def test_tables_and_corners() -> None:
    low, high = clopper_pearson(8, 10)
    assert (low, high) == pytest.approx((0.4439, 0.9748), abs=1e-4)
    # By hand for 5 of 5: p is acceptable while p^5 (the only tail as small) exceeds .05, with the far tail below.
    five = blaker(5, 5)
    assert five.high == 1.0
    assert five.low == pytest.approx(0.5, abs=0.02)
    assert blaker(0, 5).high == pytest.approx(1 - five.low, abs=1e-12)
    assert "blaker" in five.method


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 60), data=st.data())
def test_blaker_lies_inside_clopper_pearson_and_mirrors(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    found, (low, high) = blaker(k, n), clopper_pearson(k, n)
    assert low - 1e-9 <= found.low <= k / n <= found.high <= high + 1e-9
    mirrored = blaker(n - k, n)
    assert found.low == pytest.approx(1 - mirrored.high, abs=1e-9)


def test_quantiles_by_hand() -> None:
    assert beta_cdf(0.3, 1, 1) == pytest.approx(0.3)
    assert beta_cdf(0.5, 2, 3) == pytest.approx(11 / 16)  # P(Bin(4, ½) ≥ 2)
    assert beta_quantile(0.25, 1, 2) == pytest.approx(1 - math.sqrt(0.75))
    assert student_quantile(0.975, 1) == pytest.approx(math.tan(math.pi * 0.475))
    assert student_quantile(0.025, 10) == pytest.approx(-2.228139, abs=1e-6)
    assert f_quantile(0.95, 2, 2) == pytest.approx(19.0)


def test_quantiles_against_a_library() -> None:
    stats = needs.package("scipy.stats")
    for a, b in [(0.5, 0.5), (3, 70), (200, 4), (0.2, 30), (5000, 5000)]:
        for x in (0.001, 0.2, 0.5, 0.9, 0.999):
            assert beta_cdf(x, a, b) == pytest.approx(float(stats.beta.cdf(x, a, b)), abs=1e-11)
            assert beta_quantile(x, a, b) == pytest.approx(float(stats.beta.ppf(x, a, b)), abs=1e-11)
    assert f_quantile(0.9, 7, 31) == pytest.approx(float(stats.f.ppf(0.9, 7, 31)))
    assert student_quantile(0.99, 4.5) == pytest.approx(float(stats.t.ppf(0.99, 4.5)))


def test_few_failing_clusters_widen_and_say_so() -> None:
    clusters = [f"c{i // 8}" for i in range(200)]
    values = [0.0 if i < 3 else 1.0 for i in range(200)]  # three failures, all of one cluster
    found = korn_graubard(values, clusters)
    assert num_failing_clusters(values, clusters) == 1
    assert "1 of 25 clusters fail" in found.method
    assert found.low < blaker(197, 200).low
    assert found.low < 0.93
    many = korn_graubard([float(i % 2) for i in range(200)], clusters)
    assert "fail at all" not in many.method
    assert korn_graubard([1.0] * 200, clusters).low < 0.97  # nothing failed: still no certainty


@pytest.mark.parametrize(("icc", "p"), [(0.0, 0.95), (0.1, 0.97), (0.3, 0.97)])
def test_conservative_interval_covers_where_failures_are_few(icc: float, p: float) -> None:
    random = derive_random("korn-graubard", str(icc), str(p))
    clusters = [f"c{i // 8}" for i in range(200)]
    covered, trials = 0, 250
    for _ in range(trials):
        values: list[float] = []
        for _ in range(25):
            rate = p if icc == 0 else random.betavariate(p * (1 / icc - 1), (1 - p) * (1 / icc - 1))
            values += [float(random.random() < rate) for _ in range(8)]
        found = korn_graubard(values, clusters)
        covered += found.low <= p <= found.high
    assert covered / trials >= 0.93


@pytest.mark.parametrize(("k", "n"), [(1, 0), (3, 2), (-1, 4)])
def test_no_proportion(k: int, n: int) -> None:
    with pytest.raises(InputError):
        blaker(k, n)


def test_rates_only() -> None:
    with pytest.raises(InputError, match=r"0\.\.1"):
        korn_graubard([2.0, 0.5], ["a", "b"])


def test_weights_cost_effective_items() -> None:
    """By hand: weights ½, ⅙, ⅙, ⅙ are worth 1 / (¼ + 3/36) = 3 items; every item is its own cluster."""
    values, clusters = [1.0, 0.0, 1.0, 1.0], ["a", "b", "c", "d"]
    found = korn_graubard(values, clusters, weights=[3, 1, 1, 1])
    assert found.value == pytest.approx(5 / 6)
    assert "3.0 effective items" in found.method
    assert (found.low, found.high) == pytest.approx(clopper_pearson(2.5, 3.0))
    assert korn_graubard(values, clusters, weights=[2, 2, 2, 2]) == korn_graubard(values, clusters)
