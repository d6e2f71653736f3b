"""Sequential comparison: exact by enumeration, and what it costs."""

from __future__ import annotations

import math
from functools import cache

import pytest

from flightschool.digest import derive_random
from flightschool.errors import InputError
from flightschool.statistics import SequentialPlan, e_value, plan_sequential, required_pairs, walk_boundary


@cache
def ever_leaves(steps: int, boundary: int) -> float:
    """P(a fair walk leaves (−b, b) within so many steps), by going through all its places."""
    inside = {0: 1.0}
    gone = 0.0
    for _ in range(steps):
        after: dict[int, float] = {}
        for place, mass in inside.items():
            for step in (-1, 1):
                if abs(place + step) >= boundary:
                    gone += mass / 2
                else:
                    after[place + step] = after.get(place + step, 0.0) + mass / 2
        inside = after
    return gone


@pytest.mark.parametrize("steps", [4, 5, 6, 7, 12, 25, 60, 121])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_the_boundary_holds_alpha_exactly_and_wastes_little(steps: int, alpha: float) -> None:
    boundary = walk_boundary(steps, alpha)
    assert ever_leaves(steps, boundary) <= alpha
    # the bound counts walks that leave on both sides twice, which hardly ever happens at small alpha
    assert boundary == 1 or ever_leaves(steps, boundary - 1) > alpha * 0.9


def test_too_few_steps_can_decide_nothing() -> None:
    assert walk_boundary(4, 0.05) == 5  # four of four heads have probability 1/16 · 2 > .05
    plan = SequentialPlan(num_pairs=10, most_discordant=4, boundary=5, alpha=0.05)
    assert plan.decide(4, 0) is None


def test_e_values_by_hand() -> None:
    assert e_value(0, 0) == 1.0
    assert e_value(1, 0) == pytest.approx(1.0)  # B(2, 1)·2 = 1: one pair says nothing
    assert e_value(3, 0) == pytest.approx(2.0)  # B(4, 1)·8 = 2
    assert e_value(2, 1) == pytest.approx(math.factorial(2) / math.factorial(4) * 8)
    assert e_value(5, 2) == e_value(2, 5)
    assert e_value(100_000, 0) > 1e300


@pytest.mark.parametrize("steps", [1, 2, 5, 9])
def test_an_e_value_is_a_fair_bet(steps: int) -> None:
    """Its mean under "no difference" is 1 at every time: nobody gets rich by looking."""
    mean = sum(math.comb(steps, w) * 0.5**steps * e_value(w, steps - w) for w in range(steps + 1))
    assert mean == pytest.approx(1.0)


def test_looking_after_every_item_errs_in_at_most_five_percent() -> None:
    wrong, trials = 0, 400
    for trial in range(trials):
        random, wins, losses = derive_random("peek", trial), 0, 0
        for _ in range(300):
            if random.random() < 0.3:
                won = random.random() < 0.5
                wins, losses = wins + won, losses + (not won)
            if e_value(wins, losses) >= 20:
                wrong += 1
                break
    assert wrong / trials <= 0.05


def test_power_at_the_planned_effect_within_the_planned_sample() -> None:
    effect, discordant = 0.1, 0.3
    fixed = required_pairs(effect, discordant)
    plan = plan_sequential(effect, discordant)
    assert plan.num_pairs <= 1.3 * fixed
    found, drawn, trials = 0, 0, 400
    for trial in range(trials):
        random, wins, losses, pairs = derive_random("power", trial), 0, 0, 0
        while not plan.is_over(pairs, wins, losses):
            pairs += 1
            if random.random() < discordant:
                won = random.random() < 0.5 + effect / (2 * discordant)
                wins, losses = wins + won, losses + (not won)
        found += plan.decide(wins, losses) == "candidate"
        drawn += pairs
    assert found / trials >= 0.8
    assert drawn / trials < fixed  # it usually ends early


def test_the_fixed_size_by_hand() -> None:
    # (1.96·√.3 + .8416·√(.3 − .01))² / .01 = (1.0735 + .4532)² / .01 = 233.1
    assert required_pairs(0.1, 0.3) == 234
    assert required_pairs(-0.1, 0.3) == 234


@pytest.mark.parametrize(("effect", "discordant"), [(0.0, 0.3), (0.4, 0.3), (0.1, 1.5)])
def test_plans_that_make_no_sense(effect: float, discordant: float) -> None:
    with pytest.raises(InputError):
        plan_sequential(effect, discordant)


def test_other_wrong_arguments() -> None:
    with pytest.raises(InputError):
        e_value(-1, 0)
    with pytest.raises(InputError):
        walk_boundary(0)
    with pytest.raises(InputError):
        plan_sequential(0.1, 0.3, inflation=0.5)
