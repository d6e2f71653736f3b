from __future__ import annotations

import math
from collections.abc import Callable
from statistics import mean, stdev

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flightschool.records import EpisodeGroup, GroupState, Reward
from flightschool.training.algorithms import ALGORITHMS, TermWeights, dr_grpo, grpo, shuffle_rewards

PLAIN = TermWeights(process=0.0, latency=0.0)
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
outcomes = st.lists(st.floats(0.0, 1.0), min_size=2, max_size=8)

MakeGroup = Callable[..., EpisodeGroup]
MakeReward = Callable[..., Reward]


def advantages(group: EpisodeGroup, name: str, weights: TermWeights = PLAIN) -> list[float]:
    return [credit.advantage for credit in ALGORITHMS[name].credits(group, weights).credits]


def test_grpo_by_hand(make_group: MakeGroup) -> None:
    assert advantages(make_group([1.0, 0.0, 0.0, 0.0]), "grpo") == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)


def test_dr_grpo_by_hand(make_group: MakeGroup) -> None:
    assert advantages(make_group([1.0, 0.0, 0.0, 0.0]), "dr_grpo") == pytest.approx([0.75, -0.25, -0.25, -0.25])


@quick
@given(outcomes, st.sampled_from(["grpo", "dr_grpo"]), st.floats(0.0, 5.0))
def test_shift_changes_nothing(make_group: MakeGroup, values: list[float], name: str, shift: float) -> None:
    before = advantages(make_group(values), name)
    after = advantages(make_group([value + shift for value in values]), name)
    if before and max(values) - min(values) > 1e-3:
        assert after == pytest.approx(before, abs=1e-4)


@quick
@given(outcomes, st.sampled_from(["grpo", "dr_grpo"]), st.data())
def test_members_may_stand_in_any_order(
    make_group: MakeGroup, values: list[float], name: str, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(values))))
    before = advantages(make_group(values), name)
    after = advantages(make_group([values[i] for i in order]), name)
    if before:
        assert after == pytest.approx([before[i] for i in order], abs=1e-9)


@quick
@given(outcomes)
def test_grpo_advantages_are_standardised(make_group: MakeGroup, values: list[float]) -> None:
    found = advantages(make_group(values), "grpo")
    if found and stdev(values) > 1e-3:
        assert mean(found) == pytest.approx(0.0, abs=1e-6)
        assert stdev(found) == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo"])
@pytest.mark.parametrize("value", [0.0, 0.1 + 0.2, 1.0])
def test_equal_rewards_are_zero_advantage(make_group: MakeGroup, name: str, value: float) -> None:
    found = ALGORITHMS[name].credits(make_group([value] * 5), PLAIN)
    assert (found.state, found.credits) == (GroupState.ZERO_ADVANTAGE, ())


def test_rounding_noise_is_no_signal(make_group: MakeGroup) -> None:
    assert grpo(make_group([0.3, 0.1 + 0.2, 0.3]), PLAIN).state is GroupState.ZERO_ADVANTAGE


def test_infra_failures_are_no_part_of_the_baseline(make_group: MakeGroup) -> None:
    with_failure = grpo(make_group([1.0, None, 0.0, None, 0.0]), PLAIN)
    without = grpo(make_group([1.0, 0.0, 0.0]), PLAIN)
    assert [c.advantage for c in with_failure.credits] == [c.advantage for c in without.credits]
    assert [c.attempt for c in with_failure.credits] == ["g0:0", "g0:2", "g0:4"]


def test_one_scored_member_is_too_few(make_group: MakeGroup) -> None:
    assert grpo(make_group([1.0, None, None]), PLAIN).state is GroupState.TOO_FEW


def test_gate_and_process_are_part_of_the_score(make_group: MakeGroup, make_reward: MakeReward) -> None:
    group = make_group([make_reward(1.0, process=1.0), make_reward(1.0, gate=0.0), make_reward(0.0, process=1.0)])
    found = dr_grpo(group, TermWeights(process=0.5)).credits
    assert [c.advantage for c in found] == pytest.approx([1.5 - 2 / 3, -2 / 3, 0.5 - 2 / 3])


def test_latency_cannot_be_blown_up_by_the_standard_deviation(make_group: MakeGroup, make_reward: MakeReward) -> None:
    group = make_group([make_reward(1.0, latency=0.5 + 1e-3 * i) for i in range(8)])
    found = grpo(group, TermWeights(latency=0.1))
    assert found.state is GroupState.COMPLETE
    assert max(abs(c.advantage) for c in found.credits) <= 0.1 * 4e-3  # dividing by the deviation would give > 1
    assert grpo(group, PLAIN).state is GroupState.ZERO_ADVANTAGE


def test_latency_counts_among_correct_members_only(make_group: MakeGroup, make_reward: MakeReward) -> None:
    group = make_group([make_reward(1.0, latency=1.0), make_reward(1.0, latency=0.0), make_reward(0.5, latency=0.9)])
    terms = [c.terms["latency"] for c in grpo(group, TermWeights(latency=0.2)).credits]
    assert terms == pytest.approx([0.1, -0.1, 0.0])


@quick
@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 1.0)), min_size=2, max_size=8), st.floats(0.0, 0.25))
def test_latency_term_is_bounded(
    make_group: MakeGroup, make_reward: MakeReward, rows: list[tuple[bool, float]], weight: float
) -> None:
    group = make_group([make_reward(float(correct), latency=latency) for correct, latency in rows])
    for credit in grpo(group, TermWeights(latency=weight)).credits:
        assert abs(credit.terms["latency"]) <= weight
        assert credit.advantage == pytest.approx(math.fsum(credit.terms.values()))


def test_shuffling_keeps_the_rewards_and_moves_them(make_group: MakeGroup) -> None:
    group = make_group([0.0, 0.1, 0.2, None, 0.3, 0.4, 0.5, 0.6])
    shuffled = shuffle_rewards(group, seed=1)
    before = [m.reward.outcome for m in group.members if m.reward]
    after = [m.reward.outcome for m in shuffled.members if m.reward]
    assert sorted(after) == before
    assert after != before
    assert shuffled.members[3].reward is None
    assert shuffle_rewards(group, seed=1) == shuffled
