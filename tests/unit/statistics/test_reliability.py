"""Reliability: hand-computed, by law, and against libraries where they are there."""

from __future__ import annotations

import math
import warnings
from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import needs

from flightschool.digest import derive_random
from flightschool.errors import InputError
from flightschool.statistics import (
    cronbach_alpha,
    icc_oneway,
    repeats_for,
    sign_agreement,
    spearman_brown,
    standard_error_of_measurement,
)

# Shrout and Fleiss (1979), table 2: six targets rated by four judges. ICC(1,1) is .17, ICC(1,4) is .44.
SHROUT_FLEISS = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]


def test_icc_of_the_classic_table() -> None:
    found = icc_oneway(SHROUT_FLEISS)
    assert found.single == pytest.approx(0.1657, abs=1e-4)
    assert found.average == pytest.approx(0.4428, abs=1e-4)
    assert (found.low, found.high) == pytest.approx((-0.1329, 0.7226), abs=1e-3)
    assert spearman_brown(found.single, 4) == pytest.approx(found.average)


def test_icc_by_hand() -> None:
    # Items (1, 0) and (1, 1): means ½ and 1, MSB = 2·(1/16 + 1/16) = ¼, MSW = (¼ + ¼)/2 = ¼, ICC = 0.
    found = icc_oneway([[1, 0], [1, 1]])
    assert found.single == pytest.approx(0.0)
    assert (found.between, found.within) == pytest.approx((0.0, 0.25))


def test_icc_without_variation() -> None:
    everything = icc_oneway([[1, 1, 1], [1, 1, 1]])
    assert (everything.degenerate, everything.single, everything.low, everything.high) == (True, 0.0, 0.0, 1.0)
    items_only = icc_oneway([[1, 1], [0, 0], [1, 1]])
    assert (items_only.degenerate, items_only.single, items_only.average) == (False, 1.0, 1.0)


def test_icc_against_a_library() -> None:
    pingouin = needs.package("pingouin")
    pandas: Any = needs.package("pandas")
    rows = [{"item": i, "run": r, "score": float(x)} for i, row in enumerate(SHROUT_FLEISS) for r, x in enumerate(row)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own, about pandas
        table = pingouin.intraclass_corr(pandas.DataFrame(rows), targets="item", raters="run", ratings="score")
    first = table.iloc[0]
    assert icc_oneway(SHROUT_FLEISS).single == pytest.approx(float(first["ICC"]), abs=1e-3)
    wide = pandas.DataFrame([list(map(float, row)) for row in SHROUT_FLEISS])
    assert cronbach_alpha(SHROUT_FLEISS) == pytest.approx(float(pingouin.cronbach_alpha(data=wide)[0]), abs=1e-9)


def test_interval_of_the_icc_covers() -> None:
    random, covered, trials = derive_random("icc"), 0, 300
    for _ in range(trials):
        rows = []
        for _ in range(20):
            item = random.gauss(0, 1)
            rows.append([item + random.gauss(0, 1) for _ in range(4)])
        found = icc_oneway(rows)
        covered += found.low <= 0.5 <= found.high
    assert 0.92 <= covered / trials <= 0.98


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.lists(st.floats(-5, 5), min_size=3, max_size=3), min_size=2, max_size=8),
    shift=st.floats(-3, 3),
    scale=st.floats(0.5, 4),
)
def test_icc_ignores_units(rows: list[list[float]], shift: float, scale: float) -> None:
    before, after = icc_oneway(rows), icc_oneway([[scale * x + shift for x in row] for row in rows])
    assert before.low <= before.single + 1e-9
    assert before.single <= before.high + 1e-9
    if before.between + before.within > 1e-6:
        assert after.single == pytest.approx(before.single, abs=1e-6)


def test_lengthening_a_test() -> None:
    assert spearman_brown(0.296, 8) == pytest.approx(0.771, abs=1e-3)
    assert repeats_for(0.5, 0.8) == 4
    assert repeats_for(0.5, 0.5) == 1
    assert repeats_for(0.0, 0.8) is None
    assert repeats_for(1.0, 0.8) == 1
    with pytest.raises(InputError):
        repeats_for(0.5, 1.0)


@given(r=st.floats(0.01, 0.99), wanted=st.floats(0.05, 0.98))
def test_repeats_are_enough_and_no_more(r: float, wanted: float) -> None:
    number = repeats_for(r, wanted)
    assert number is not None
    assert spearman_brown(r, number) >= wanted - 1e-6
    assert number == 1 or spearman_brown(r, number - 1) < wanted + 1e-6


def test_alpha_by_hand() -> None:
    # Items (1, 0), (1, 0): variances ½ each, total (2, 0) has variance 2: 2/1 · (1 − 1/2) = 1.
    assert cronbach_alpha([[1, 1], [0, 0]]) == pytest.approx(1.0)
    assert cronbach_alpha([[1, 0], [0, 1]]) == 0.0  # totals do not vary


def test_sign_agreement_by_hand_and_by_simulation() -> None:
    assert sign_agreement(0.0, 1.0) == 0.5
    assert sign_agreement(0.2, 0.0) == 1.0
    assert sign_agreement(1.0, 1.0) == pytest.approx(NormalDist().cdf(1 / math.sqrt(2)))
    # The floor .95 asks for 2.33 standard errors, more than significance does.
    assert sign_agreement(2.33, 1.0) == pytest.approx(0.95, abs=1e-3)
    random, same, seen = derive_random("sign"), 0, 0
    while seen < 4000:
        true = random.uniform(-4, 4)  # a flat prior, wide beside the error
        first, second = random.gauss(true, 1), random.gauss(true, 1)
        if 0.9 < first < 1.1:
            seen += 1
            same += second > 0
    assert same / seen == pytest.approx(sign_agreement(1.0, 1.0), abs=0.02)


def test_error_of_one_score() -> None:
    assert standard_error_of_measurement(10, 0.84) == pytest.approx(4.0)
    assert standard_error_of_measurement(10, -0.2) == 10.0


@pytest.mark.parametrize("rows", [[], [[1, 2]], [[1], [2]], [[1, 2], [1]], [[1, math.nan], [0, 1]]])
def test_what_is_no_study(rows: list[list[float]]) -> None:
    with pytest.raises(InputError):
        icc_oneway(rows)
