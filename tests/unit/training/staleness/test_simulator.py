from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from flightschool.errors import InputError
from flightschool.training.staleness import (
    LAWS,
    AdmissionRule,
    DiscardRule,
    GroupRecord,
    HoldRule,
    Measured,
    Plant,
    StalenessRule,
    measure,
    simulate,
)

PLANT = Plant(num_groups=200)


def run(rule: StalenessRule, law: str = "lognormal", bound: int = 1, seed: int = 0) -> Measured:
    return simulate(rule, LAWS[law], max_staleness=bound, plant=PLANT, seed=seed)


@pytest.mark.parametrize("name", list(LAWS))
def test_laws_have_mean_one(name: str) -> None:
    chance = random.Random(1)
    draws = [draw() for draw in (LAWS[name](chance) for _ in range(30_000)) for _ in range(2)]
    assert fmean(draws) == pytest.approx(1.0, abs=0.06)


@pytest.mark.parametrize("law", list(LAWS))
@pytest.mark.parametrize("bound", [1, 2, 4])
@pytest.mark.parametrize("drains", [False, True])
def test_holding_is_strict_and_trains_everything(law: str, bound: int, drains: bool) -> None:
    found = run(HoldRule(bound, 28, reserve=6, drains=drains), law, bound)
    assert found.max_staleness_excess == 0
    assert (found.waste, found.length_bias, found.expired_token_share) == pytest.approx((0.0, 0.0, 0.0), abs=1e-9)
    assert found.decile_gap == pytest.approx(0.0, abs=1e-9)
    assert 1.0 - 1e-9 <= found.inflation_over_bound <= 1.3


def test_discarding_is_strict_and_trains_the_short_ones() -> None:
    found = run(DiscardRule(1, 16))
    assert found.max_staleness_excess == 0
    assert found.length_bias > 0.2
    assert found.waste > 0.3


def test_admission_is_unbiased_and_not_strict() -> None:
    found = run(AdmissionRule(1, 8, 16))
    assert found.max_staleness_excess > 0
    assert found.expired_token_share > 0.02
    assert found.length_bias == pytest.approx(0.0, abs=1e-9)
    assert found.batch_inflation == pytest.approx(1.0, abs=0.05)


def test_a_looser_bound_and_draining_make_steps_smaller() -> None:
    price = [run(HoldRule(bound, 28), bound=bound).batch_inflation for bound in (1, 2, 4)]
    assert price == sorted(price, reverse=True)
    prices = [
        fmean(run(HoldRule(1, 28, reserve=6, drains=drains), "bimodal", seed=seed).batch_inflation for seed in range(4))
        for drains in (False, True)
    ]
    assert prices[1] < prices[0]


def test_same_seed_same_schedule() -> None:
    assert run(HoldRule(1, 28), seed=3) == run(HoldRule(1, 28), seed=3) != run(HoldRule(1, 28), seed=4)


def test_figures_by_hand() -> None:
    """Two groups of one; steps at 2 and 6: the second spans both, so its first tokens are 2 old when the third
    applies."""
    groups = [
        GroupRecord(admitted_version=0, lengths=[2.0], intervals=[(0.0, 2.0)], applied_version=0),
        GroupRecord(admitted_version=0, lengths=[8.0], intervals=[(0.0, 8.0)], applied_version=2),
    ]

    def figures(bound: int) -> Measured:
        return measure(
            groups,
            step_times=[2.0, 6.0, 9.0],
            step_sizes=[1, 0, 1],
            max_staleness=bound,
            groups_per_step=1,
            num_steps_bound=3,
            duration=10.0,
            busy_time=1.0,
            num_slots=2,
        )

    found = figures(1)
    assert found.max_staleness_excess == 1
    assert found.expired_token_share == pytest.approx(2.0 / 10.0)
    assert found.mean_staleness == pytest.approx((2.0 * 2 + 4.0 * 1 + 2.0 * 0) / 10.0)
    assert found.decile_gap == pytest.approx(0.8)  # the first two tenths of the long one are lost: .2 of 1.0 is left
    assert figures(2).expired_token_share == 0.0
    assert (found.throughput, found.trainer_idle, found.slots_idle) == pytest.approx((0.2, 0.8, 0.5))


def test_a_rule_that_gets_stuck_is_named() -> None:
    plant = Plant(num_groups=40, groups_per_step=16)
    with pytest.raises(InputError, match="after 8 of 40 groups") as caught:
        simulate(AdmissionRule(1, 4, 99), LAWS["lognormal"], max_staleness=1, plant=plant)
    assert caught.value.where == "AdmissionRule"
    wrong: list[dict[str, Any]] = [{"num_slots": 0}, {"group_time": 0.0}, {"num_groups": -1}]
    for sizes in wrong:
        with pytest.raises(InputError, match="a plant of"):
            replace(PLANT, **sizes)


def test_the_room_imports_no_torch() -> None:
    code = "import sys, flightschool.training.staleness; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


MakeRule = Callable[[], StalenessRule]


@pytest.mark.parametrize("make", [lambda: HoldRule(1, 1), lambda: HoldRule(1, 2, reserve=1, drains=True)])
def test_a_plant_of_one_slot_ends(make: MakeRule) -> None:
    plant = Plant(num_groups=5, num_slots=1, group_size=2, groups_per_step=2, group_time=0.5)
    found = simulate(make(), LAWS["heavy"], max_staleness=1, plant=plant)
    assert found.waste == pytest.approx(0.0, abs=1e-12)
