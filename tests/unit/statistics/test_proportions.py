"""Wilson and McNemar against hand computation, laws and statsmodels."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import needs

from flightschool.errors import InputError
from flightschool.statistics import mcnemar_exact, wilson

COUNTS = st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def test_wilson_by_hand() -> None:
    # z² = 3.8415 (chi-square, one degree of freedom). 5 of 5: low = 1 / (1 + z²/5) = 0.5655, high = 1.
    interval = wilson(5, 5)
    assert interval.value == interval.high == 1.0
    assert interval.low == pytest.approx(1 / (1 + 3.841458820694124 / 5))
    assert (interval.num_items, interval.method, interval.level) == (5, "wilson", 0.95)


@settings(max_examples=50, deadline=None)
@given(COUNTS, st.sampled_from([0.8, 0.95, 0.99]))
def test_wilson_laws(counts: tuple[int, int], level: float) -> None:
    successes, total = counts
    interval = wilson(successes, total, level)
    assert 0 <= interval.low <= interval.value <= interval.high <= 1
    mirrored = wilson(total - successes, total, level)
    assert mirrored.low == pytest.approx(1 - interval.high)
    assert wilson(successes * 4, total * 4, level).high - wilson(successes * 4, total * 4, level).low < (
        interval.high - interval.low
    )


@pytest.mark.parametrize(("successes", "total"), [(0, 1), (3, 10), (97, 100), (200, 200)])
def test_wilson_agrees_with_statsmodels(successes: int, total: int) -> None:
    proportion = needs.package("statsmodels.stats.proportion")
    low, high = proportion.proportion_confint(successes, total, alpha=0.1, method="wilson")
    interval = wilson(successes, total, 0.9)
    assert interval.low == pytest.approx(low, abs=1e-12)
    assert interval.high == pytest.approx(high)


@pytest.mark.parametrize(("successes", "total", "level"), [(0, 0, 0.95), (2, 1, 0.95), (-1, 3, 0.95), (1, 2, 1.0)])
def test_wilson_refuses_what_is_no_proportion(successes: int, total: int, level: float) -> None:
    with pytest.raises(InputError):
        wilson(successes, total, level)


def test_mcnemar_by_hand() -> None:
    # Four gained, none lost, two unchanged: p = 2 · (1/2)^4 = 1/8.
    result = mcnemar_exact([False] * 4 + [True, False], [True] * 4 + [True, False])
    assert (result.gained, result.lost, result.num_items, result.p_value) == (4, 0, 6, 0.125)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60))
def test_mcnemar_laws(pairs: list[tuple[bool, bool]]) -> None:
    before, after = [b for b, _ in pairs], [a for _, a in pairs]
    forth, back = mcnemar_exact(before, after), mcnemar_exact(after, before)
    assert 0 < forth.p_value <= 1
    assert (forth.gained, forth.lost, forth.p_value) == (back.lost, back.gained, back.p_value)


def test_mcnemar_agrees_with_statsmodels_and_stands_large_counts() -> None:
    tables = needs.package("statsmodels.stats.contingency_tables")
    before, after = [True] * 7 + [False] * 15 + [True] * 9, [False] * 7 + [True] * 15 + [True] * 9
    expected = tables.mcnemar([[9, 7], [15, 0]], exact=True).pvalue
    assert mcnemar_exact(before, after).p_value == pytest.approx(expected)
    assert mcnemar_exact([True] * 2000 + [False] * 2000, [False] * 2000 + [True] * 2000).p_value == 1.0


def test_mcnemar_wants_pairs() -> None:
    with pytest.raises(InputError, match="paired"):
        mcnemar_exact([True], [])
