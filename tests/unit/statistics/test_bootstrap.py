"""Clustered intervals: estimates by hand, laws, simulated coverage, and every kind of bad input."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.digest import derive_random
from flightschool.errors import InputError
from flightschool.statistics import Interval, cluster_bootstrap_mean, paired_bootstrap, stratified_mean, wilson

ITEMS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.sampled_from([0.0, 0.25, 1.0])), min_size=2, max_size=30
).filter(lambda items: len({cluster for cluster, _ in items}) >= 2)

FAST = 400


def families(num: int, size: int) -> list[str]:
    return [f"family {i // size}" for i in range(num * size)]


def test_the_value_is_the_plain_mean_and_the_interval_holds_it() -> None:
    interval = cluster_bootstrap_mean([0, 1, 1, 1, 0, 1], ["a", "a", "a", "b", "b", "c"], seed=3)
    assert interval.value == pytest.approx(4 / 6)
    assert 0 <= interval.low < interval.value < interval.high <= 1
    assert interval.num_items == 6
    assert "3 clusters" in interval.method


@settings(max_examples=30, deadline=None)
@given(ITEMS, st.randoms(use_true_random=False))
def test_order_does_not_matter_and_the_seed_decides(items: list[tuple[str, float]], rng: random.Random) -> None:
    def interval(rows: list[tuple[str, float]]) -> Interval:
        return cluster_bootstrap_mean([value for _, value in rows], [name for name, _ in rows], 7, num_resamples=FAST)

    shuffled = items[:]
    rng.shuffle(shuffled)
    assert interval(items) == interval(shuffled)
    assert 0 <= interval(items).low <= interval(items).value <= interval(items).high <= 1


@settings(max_examples=30, deadline=None)
@given(ITEMS, st.floats(-5, 5), st.floats(0.1, 5))
def test_shift_and_scale_go_through(items: list[tuple[str, float]], shift: float, scale: float) -> None:
    clusters, values = [name for name, _ in items], [value for _, value in items]
    if len(set(values)) == 1:
        return
    plain = cluster_bootstrap_mean(values, clusters, 1, num_resamples=FAST)
    moved = cluster_bootstrap_mean([scale * value + shift for value in values], clusters, 1, num_resamples=FAST)
    for name in ("value", "low", "high"):
        assert getattr(moved, name) == pytest.approx(scale * getattr(plain, name) + shift, abs=1e-9)


def test_families_that_succeed_together_widen_the_interval() -> None:
    values = [1.0] * 20 + [0.0] * 20
    alike = cluster_bootstrap_mean(values, families(8, 5))
    mixed = cluster_bootstrap_mean(values, [f"family {i % 8}" for i in range(40)])
    assert alike.high - alike.low > 1.5 * (mixed.high - mixed.low)


def test_one_item_a_cluster_is_close_to_the_t_interval() -> None:
    values = np.random.default_rng(0).normal(10, 2, 60)
    interval = cluster_bootstrap_mean(list(values), [str(i) for i in range(60)])
    half = 2.001 * values.std(ddof=1) / 60**0.5  # t quantile with 59 degrees of freedom
    assert interval.high - interval.low == pytest.approx(2 * half, rel=0.06)


def test_coverage_is_nominal_for_eight_correlated_families() -> None:
    rng, clusters, hits = np.random.default_rng(5), families(8, 5), 0
    for _ in range(150):
        rates = rng.beta(0.5 * 2.33, 0.5 * 2.33, 8)  # intra-cluster correlation 0.3
        values = rng.binomial(1, np.repeat(rates, 5)).astype(float)
        interval = cluster_bootstrap_mean(list(values), clusters, 0, num_resamples=FAST)
        hits += interval.low <= 0.5 <= interval.high
    assert hits >= 0.92 * 150


def test_perfect_scores_do_not_prove_perfection() -> None:
    # 12 of 12 families: as Wilson's interval, not [1, 1].
    interval = cluster_bootstrap_mean([1.0] * 24, families(12, 2))
    assert (interval.value, interval.high) == (1.0, 1.0)
    assert interval.low == pytest.approx(wilson(12, 12).low)
    assert "no variation" in interval.method


def test_a_gain_on_every_item_still_has_width() -> None:
    interval = paired_bootstrap([0.0] * 20, [1.0] * 20, families(10, 2))
    assert interval.value == interval.high == 1.0
    # At worst a share u = wilson(0, 10).high of families would have lost: 1 − 2u.
    assert interval.low == pytest.approx(1 - 2 * wilson(0, 10).high)
    same = paired_bootstrap([1.0] * 20, [1.0] * 20, families(10, 2))
    assert same.value == 0
    assert same.low == pytest.approx(-same.high)


def test_equal_values_outside_the_range_of_scores_have_no_bound() -> None:
    interval = cluster_bootstrap_mean([250.0] * 4, ["a", "a", "b", "b"])
    assert (interval.low, interval.value, interval.high) == (250.0, 250.0, 250.0)


def test_pairing_takes_out_the_difficulty_of_items() -> None:
    rng = np.random.default_rng(2)
    difficulty = rng.uniform(0, 0.8, 60)
    after = difficulty + 0.1 + rng.normal(0, 0.02, 60)
    paired = paired_bootstrap(list(difficulty), list(after), families(12, 5), seed=1)
    alone = cluster_bootstrap_mean(list(after), families(12, 5), seed=1)
    assert paired.value == pytest.approx(0.1, abs=0.01)
    assert paired.excludes(0)
    assert paired.high - paired.low < 0.2 * (alone.high - alone.low)


def test_swapping_before_and_after_mirrors_the_interval() -> None:
    before, after = [0, 0, 1, 0, 1, 0.5] * 5, [1, 0, 1, 1, 0, 1] * 5
    forth = paired_bootstrap(before, after, families(10, 3), 1)
    back = paired_bootstrap(after, before, families(10, 3), 1)
    assert back.value == pytest.approx(-forth.value)
    assert back.low == pytest.approx(-forth.high, abs=0.02)
    assert back.high == pytest.approx(-forth.low, abs=0.02)


def test_strata_count_by_their_share_of_traffic() -> None:
    values, strata = [1, 1, 1, 1, 0, 0, 0, 0, 0, 1], ["easy"] * 4 + ["hard"] * 6
    clusters = ["a", "a", "b", "b", "c", "c", "d", "d", "e", "e"]
    interval = stratified_mean(values, strata, {"easy": 0.9, "hard": 0.1}, clusters)
    assert interval.value == pytest.approx(0.9 * 1 + 0.1 / 6)
    assert interval.low < interval.value < interval.high
    # Only "hard" varied, but two families of "easy" are not enough to call nine tenths of the traffic certain.
    assert interval.high - interval.low > 0.12


@pytest.mark.parametrize("rates", [(0.7, 0.7, 0.7, 0.7, 0.7), (0.95, 0.5, 0.8, 0.3, 0.9)], ids=["even", "uneven"])
def test_many_small_strata_do_not_look_certain(rates: tuple[float, ...]) -> None:
    """Fifteen families of one stratum and two of each other, one task a family: how suites of the desk are drawn."""
    sizes, weights = (15, 2, 2, 2, 2), (0.35, 0.25, 0.15, 0.15, 0.10)
    strata = [f"s{h}" for h, size in enumerate(sizes) for _ in range(size)]
    clusters = [f"c{n}" for n in range(len(strata))]
    shares = {f"s{h}": weight for h, weight in enumerate(weights)}
    truth = sum(w * r for w, r in zip(weights, rates, strict=True))
    covered, trials = 0, 200
    for trial in range(trials):
        random = derive_random("small strata", trial, str(rates))
        values = [float(random.random() < rates[int(stratum[1:])]) for stratum in strata]
        found = stratified_mean(values, strata, shares, clusters, trial, num_resamples=500)
        covered += found.low <= truth <= found.high
    assert covered / trials >= 0.9


def test_paired_strata_agree_with_the_stratified_mean_of_differences() -> None:
    before, after = [0, 0, 1, 0, 0, 1, 0, 0], [1, 0.5, 1, 0, 1, 1, 0, 1]
    strata, clusters = ["s"] * 4 + ["t"] * 4, list("aabbccdd")
    shares = {"s": 0.25, "t": 0.75}
    paired = paired_bootstrap(before, after, clusters, 3, strata=strata, shares=shares)
    differences = [a - b for a, b in zip(after, before, strict=True)]
    assert paired == stratified_mean(differences, strata, shares, clusters, 3)


def test_strata_of_one_family_are_resampled_together() -> None:
    shares = {"s": 0.5, "t": 0.3, "u": 0.2}
    strata, clusters = ["s", "s", "t", "t", "u", "u"], list("aabbcc")
    interval = stratified_mean([1, 1, 0, 1, 0, 0], strata, shares, clusters)
    assert interval.value == pytest.approx(0.5 + 0.15)
    assert interval.high - interval.low > 0.5  # three families cannot say much
    assert "s+t+u collapsed" in interval.method
    one = stratified_mean([1, 0, 0, 1, 1, 0], ["s", "s", "t", "t", "t", "t"], {"s": 0.5, "t": 0.5}, list("aabbcc"))
    assert "collapsed" in one.method


def test_a_stratum_without_traffic_does_not_count() -> None:
    shares, strata = {"s": 1.0, "ghost": 0.0}, ["s", "s", "s", "ghost"]
    interval = stratified_mean([1, 0, 1, 0], strata, shares, list("abcd"))
    assert interval.value == pytest.approx(2 / 3)
    assert interval.num_items == 3


def test_bad_input_is_told() -> None:
    with pytest.raises(InputError, match="one cluster"):
        cluster_bootstrap_mean([0, 1], ["a", "a"])
    with pytest.raises(InputError, match="no values"):
        cluster_bootstrap_mean([], [])
    with pytest.raises(InputError, match="finite") as caught:
        cluster_bootstrap_mean([0, float("nan")], ["a", "b"])
    assert caught.value.where == "values[1]"
    with pytest.raises(InputError, match="do not match"):
        cluster_bootstrap_mean([0, 1], ["a"])
    with pytest.raises(InputError, match="tail"):
        cluster_bootstrap_mean([0, 1], ["a", "b"], num_resamples=10)
    with pytest.raises(InputError, match="paired"):
        paired_bootstrap([0, 1], [1], ["a", "b"])
    with pytest.raises(InputError, match="together"):
        paired_bootstrap([0, 1], [1, 1], ["a", "b"], strata=["s", "s"])
    with pytest.raises(InputError, match="sum to 1"):
        stratified_mean([0, 1], ["s", "s"], {"s": 0.9})
    with pytest.raises(InputError, match="cannot speak") as caught:
        stratified_mean([0, 1], ["s", "s"], {"s": 0.9, "unmeasured": 0.1})
    assert caught.value.where == "unmeasured"
