"""The bias audit of process terms: three numbers by hand, and terms that are good, useless and harmful."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.errors import InputError
from flightschool.statistics import ProcessBias, process_bias

TASKS = ["a", "a", "a", "b", "b", "b"]
OUTCOMES = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0]


def examine(terms: list[float]) -> ProcessBias:
    return process_bias(TASKS, OUTCOMES, terms, num_resamples=400)


def test_by_hand() -> None:
    """a: pairs (1,0), (1,0); term puts the first wrong way round and ties the other. b: both right."""
    found = examine([0.5, 0.9, 0.5, 1.0, 0.5, 0.0])
    assert (found.num_tasks, found.num_attempts) == (2, 6)
    assert found.reversed_pairs is not None
    assert found.reversed_pairs.value == pytest.approx(1 / 4)
    assert found.tied_pairs == pytest.approx(1 / 4)
    # the maximiser takes the second of a (0) and the first of b (1)
    assert found.maximiser.value == pytest.approx(0.5)
    assert found.everyone.value == pytest.approx((1 / 3 + 2 / 3) / 2)
    assert found.gain.value == pytest.approx(0.0)
    # deviations: a: y (2,-1,-1)/3, x (-.4,.8,-.4)/3; b: y (1,1,-2)/3, x (.5,0,-.5)
    xy = (-0.8 - 0.8 + 0.4) / 9 + (0.5 + 0 + 1.0) / 3
    xx = (0.16 + 0.64 + 0.16) / 9 + 0.5
    yy = 6 / 9 + 6 / 9
    assert found.correlation is not None
    assert found.correlation.value == pytest.approx(xy / (xx * yy) ** 0.5)


def test_a_term_that_is_the_outcome_and_its_opposite() -> None:
    good, bad = examine(OUTCOMES), examine([-y for y in OUTCOMES])
    for found, correlation, reversed_, earned in ((good, 1.0, 0.0, 1.0), (bad, -1.0, 1.0, 0.0)):
        assert found.correlation is not None
        assert found.reversed_pairs is not None
        assert found.correlation.value == pytest.approx(correlation)
        assert found.reversed_pairs.value == reversed_
        assert found.maximiser.value == earned
        # two tasks that agree prove little: the interval has width
        assert found.reversed_pairs.high - found.reversed_pairs.low > 0.3
    assert bad.gain.value < 0 < good.gain.value


def test_a_term_that_tells_easy_tasks_from_hard_ones_is_not_credited_for_it() -> None:
    """Between tasks it goes with the outcome perfectly, within tasks not at all."""
    tasks = [name for name in "abcdef" for _ in range(10)]
    outcomes = [float(i < (9 if t < "d" else 1)) for t in dict.fromkeys(tasks) for i in range(10)]
    terms = [1.0 if t < "d" else 0.0 for t in tasks]
    found = process_bias(tasks, outcomes, terms, num_resamples=400)
    assert found.correlation is None
    assert found.tied_pairs == 1.0
    assert found.gain.value == 0.0


def test_the_interval_of_the_correlation_covers() -> None:
    """Noise beside a shared part: r = 1/2 within tasks; tasks of their own level; nominal 95 %."""
    rng = np.random.default_rng(3)
    num_pools, covered = 120, 0
    for pool in range(num_pools):
        level = np.repeat(rng.normal(size=40), 6)
        shared = rng.normal(size=240)
        outcome, term = level + shared + rng.normal(size=240), 2 * level + shared + rng.normal(size=240)
        names = [str(i) for i in range(40) for _ in range(6)]
        found = process_bias(names, outcome.tolist(), term.tolist(), seed=pool, num_resamples=400).correlation
        assert found is not None
        covered += not found.excludes(0.5)
    assert covered >= 0.9 * num_pools


@given(st.lists(st.floats(-1, 1).map(lambda x: round(x, 2)), min_size=6, max_size=6), st.floats(0.5, 2.0))
@settings(max_examples=40, deadline=None)
def test_scaling_a_term_changes_nothing(terms: list[float], scale: float) -> None:
    one, other = examine(terms), examine([scale * value + 1 for value in terms])
    assert one.reversed_pairs == other.reversed_pairs
    assert one.maximiser == other.maximiser
    if one.correlation is not None and other.correlation is not None:
        assert one.correlation.value == pytest.approx(other.correlation.value, abs=1e-6)


@pytest.mark.parametrize(
    ("tasks", "outcomes", "terms"),
    [([], [], []), (["a", "b"], [1.0, 0.0], [1.0]), (["a", "a"], [1.0, 0.0], [1.0, 0.0]),
     (["a", "b"], [1.0, float("nan")], [0.0, 0.0])],
)  # fmt: skip
def test_what_cannot_be_examined_is_refused(tasks: list[str], outcomes: list[float], terms: list[float]) -> None:
    with pytest.raises(InputError):
        process_bias(tasks, outcomes, terms)
