"""Error rates of a verifier: by hand, their coverage by simulation, and the correction they allow."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightschool.errors import InputError
from flightschool.statistics import Reviewed, corrected_reward, verifier_error

Label = Literal["right", "wrong", "hack"]


def rows(number: int, passed: bool, label: Label, inclusion: float = 1.0, stratum: str = "s") -> list[Reviewed]:
    return [Reviewed(stratum=stratum, passed=passed, label=label, inclusion=inclusion)] * number


def test_a_census_by_hand() -> None:
    """Wrong: 2 passed (1 a hack), 6 not: ρ0 = 1/4. Right: 9 passed, 1 not: ρ1 = 1/10."""
    found = verifier_error(
        [*rows(9, True, "right"), *rows(1, True, "wrong"), *rows(1, True, "hack"), *rows(6, False, "wrong"),
         *rows(1, False, "right")]
    )  # fmt: skip
    assert found.rho0 is not None
    assert found.rho1 is not None
    assert [found.rho0.value, found.rho1.value] == pytest.approx([0.25, 0.1])
    assert (found.num_reviewed, found.num_hacks) == (18, 1)
    assert found.rho0.low < 0.25 < found.rho0.high


def test_weights_undo_the_design() -> None:
    """Every pass reviewed, a tenth of the failures: 4 wrong passes beside 6 · 10 wrong failures."""
    found = verifier_error(
        [
            *rows(16, True, "right"),
            *rows(4, True, "wrong"),
            *rows(6, False, "wrong", 0.1),
            *rows(2, False, "right", 0.1),
        ]
    )
    assert found.rho0 is not None
    assert found.rho1 is not None
    assert found.rho0.value == pytest.approx(4 / 64)
    assert found.rho1.value == pytest.approx(20 / 36)


def test_nothing_wrong_seen_is_not_nothing_wrong() -> None:
    found = verifier_error([*rows(30, True, "right"), *rows(30, False, "wrong")])
    assert found.rho0 is not None
    assert found.rho0.value == found.rho0.low == 0.0
    assert 0.02 < found.rho0.high < 0.15
    only_right = verifier_error(rows(5, True, "right"))
    assert only_right.rho0 is None
    assert only_right.rho1 is not None


def test_equal_seeds_equal_intervals_in_any_order() -> None:
    labels = [*rows(5, True, "right", 0.5), *rows(3, True, "hack", 0.5), *rows(4, False, "wrong", 0.2, "t")]
    assert verifier_error(labels, seed=1) == verifier_error(list(reversed(labels)), seed=1)


@pytest.mark.parametrize("labels", [[], rows(1, True, "right", 0.0), rows(1, True, "right", 1.5)])
def test_what_was_not_drawn_with_a_probability_is_refused(labels: list[Reviewed]) -> None:
    with pytest.raises(InputError):
        verifier_error(labels)


@pytest.mark.parametrize(
    ("rho0", "rho1", "right_share", "num_strata"), [(0.1, 0.1, 0.5, 1), (0.05, 0.2, 0.3, 3), (0.02, 0.02, 0.7, 2)]
)
def test_intervals_cover(rho0: float, rho1: float, right_share: float, num_strata: int) -> None:
    """Pools of 600 attempts a stratum, 40 of each verdict reviewed: nominal 95 %, at least 90 % found in 150 pools."""
    rng = np.random.default_rng(7)
    covered = {"rho0": 0, "rho1": 0}
    num_pools = 150
    for pool in range(num_pools):
        labels: list[Reviewed] = []
        truth = {"rho0": [0, 0], "rho1": [0, 0]}
        for stratum in range(num_strata):
            right = rng.random(600) < min(0.95, right_share * (1 + 0.5 * stratum))
            passed = np.where(right, rng.random(600) >= rho1, rng.random(600) < rho0)
            truth["rho0"][0] += int((passed & ~right).sum())
            truth["rho0"][1] += int((~right).sum())
            truth["rho1"][0] += int((~passed & right).sum())
            truth["rho1"][1] += int(right.sum())
            for verdict in (True, False):
                there = np.flatnonzero(passed == verdict)
                drawn = rng.choice(there, size=min(40, len(there)), replace=False)
                labels += [
                    Reviewed(
                        stratum=str(stratum),
                        passed=verdict,
                        label="right" if right[i] else "wrong",
                        inclusion=len(drawn) / len(there),
                    )
                    for i in drawn
                ]
        found = verifier_error(labels, seed=pool)
        for name, interval in (("rho0", found.rho0), ("rho1", found.rho1)):
            assert interval is not None
            covered[name] += not interval.excludes(truth[name][0] / truth[name][1])
    assert min(covered.values()) >= 0.9 * num_pools, covered


def test_the_correction_by_hand() -> None:
    assert corrected_reward(1.0, 0.1, 0.2) == pytest.approx(9 / 7)
    assert corrected_reward(0.0, 0.1, 0.2) == pytest.approx(-1 / 7)
    assert corrected_reward(0.7, 0.0, 0.0) == 0.7


@given(st.floats(0.0, 0.9), st.floats(0.0, 0.9))
def test_the_corrected_reward_is_right_on_average(rho0: float, rho1: float) -> None:
    if rho0 + rho1 >= 0.99:
        return
    passed, failed = corrected_reward(1.0, rho0, rho1), corrected_reward(0.0, rho0, rho1)
    assert (1 - rho1) * passed + rho1 * failed == pytest.approx(1.0, abs=1e-9)
    assert rho0 * passed + (1 - rho0) * failed == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("rho0", "rho1"), [(0.5, 0.5), (0.9, 0.2), (-0.1, 0.0), (0.0, 1.0), (float("nan"), 0.0)])
def test_a_verifier_that_says_nothing_is_not_corrected(rho0: float, rho1: float) -> None:
    with pytest.raises(InputError):
        corrected_reward(1.0, rho0, rho1)
