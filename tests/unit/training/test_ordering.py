"""The law of advantages: every correct member stands above every other, whatever the group and the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flightschool.records import Credit, EpisodeGroup, GroupState, Reward
from flightschool.training.algorithms import ALGORITHMS, GroupCredits, TermWeights, term_shares

MakeGroup = Callable[..., EpisodeGroup]

unit = st.floats(0.0, 1.0)
below_one = st.floats(0.0, 1.0, exclude_max=True)


def reward(
    outcome: float, process: float = 0.0, latency: float = 0.0, thinking: float = 0.0, gate: float = 1.0
) -> Reward:
    return Reward(outcome=outcome, process=process, latency=latency, gate=gate, total=0.0, thinking=thinking)


correct = st.builds(reward, st.just(1.0), unit, unit, unit)
wrong = st.builds(reward, below_one, unit)  # nothing pays a wrong one for speed
violated = st.builds(reward, st.just(1.0) | below_one, unit, unit, unit, st.just(0.0))
FAST = [reward(1.0, latency=1.0, thinking=1.0)] * 8
members = st.lists(correct | wrong | violated | st.none(), min_size=0, max_size=10)
weights = st.builds(TermWeights, process=unit, latency=unit, thinking=unit)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(members, weights, st.sampled_from(sorted(set(ALGORITHMS) - {"distill"})))
@example([reward(1.0, process=0.0), reward(0.95, process=1.0)], TermWeights(process=0.1), "grpo")
@example([reward(1.0), reward(1.0, latency=1.0), reward(0.99)], TermWeights(latency=0.25), "dr_grpo")
@example([reward(1.0), reward(math.nextafter(1.0, 0.0), process=1.0)], TermWeights(process=1.0), "grpo")
@example([reward(1.0), *FAST, reward(0.9)], TermWeights(latency=1.0, thinking=1.0), "grpo")
def test_correct_above_all_others(
    make_group: MakeGroup, rewards: Sequence[Reward | None], chosen: TermWeights, name: str
) -> None:
    found = ALGORITHMS[name].credits(make_group(rewards), chosen)
    scored = [one for one in rewards if one is not None]
    if len(scored) < 2:
        assert found.state is GroupState.TOO_FEW
        return
    good = [one.success for one in scored]
    if any(good) and not all(good):
        assert found.state is GroupState.COMPLETE  # right beside wrong is always a signal
    if found.state is not GroupState.COMPLETE:
        return
    assert len(found.credits) == len(scored)
    advantages = [credit.advantage for credit in found.credits]
    assert all(math.isfinite(value) for value in advantages)
    if any(good) and not all(good):
        least = min(a for a, is_good in zip(advantages, good, strict=True) if is_good)
        most = max(a for a, is_good in zip(advantages, good, strict=True) if not is_good)
        assert least > most
    for credit, one in zip(found.credits, scored, strict=True):
        assert credit.advantage == pytest.approx(math.fsum(credit.terms.values()), abs=1e-9)
        assert abs(credit.terms["latency"]) <= chosen.latency
        assert abs(credit.terms["thinking"]) <= chosen.thinking
        if not one.success:
            assert credit.terms["latency"] == credit.terms["thinking"] == 0.0


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(members, weights, st.sampled_from(sorted(set(ALGORITHMS) - {"distill"})))
def test_among_equals_in_outcome_more_progress_is_never_less(
    make_group: MakeGroup, rewards: Sequence[Reward | None], chosen: TermWeights, name: str
) -> None:
    found = ALGORITHMS[name].credits(make_group(rewards), chosen)
    if found.state is not GroupState.COMPLETE:
        return
    scored = [one for one in rewards if one is not None]
    rows = list(zip(found.credits, scored, strict=True))
    for credit, one in rows:
        for other_credit, other in rows:
            if (one.outcome, one.gate) == (other.outcome, other.gate) and one.process > other.process:
                parts = (credit.terms["outcome"] + credit.terms["process"] for credit in (credit, other_credit))
                mine, its = parts
                assert mine >= its - 1e-9


def test_settings_that_pay_little_beside_the_outcome_are_left_as_they_are(make_group: MakeGroup) -> None:
    """κ = λ = 1: scores 1.1, 1, 0.55 and 0, then ±0.1 for speed among the two correct ones."""
    rewards = [reward(1.0, 1.0, latency=1.0), reward(1.0, 0.0, latency=0.0), reward(0.5, 0.5), reward(0.0)]
    found = ALGORITHMS["dr_grpo"].credits(make_group(rewards), TermWeights(process=0.1, latency=0.2)).credits
    mean = (1.1 + 1.0 + 0.55 + 0.0) / 4
    expected = [1.1 - mean + 0.1, 1.0 - mean - 0.1, 0.55 - mean, -mean]
    assert [credit.advantage for credit in found] == pytest.approx(expected)


def test_a_process_term_closes_at_most_half_of_the_gap(make_group: MakeGroup) -> None:
    """Gap 0.2, closed by 1 at weight 1: κ = 0.1, scores 1 and 0.9."""
    found = ALGORITHMS["dr_grpo"].credits(make_group([reward(1.0), reward(0.8, 1.0)]), TermWeights(process=1.0))
    assert [credit.advantage for credit in found.credits] == pytest.approx([0.05, -0.05])
    assert [credit.terms["process"] for credit in found.credits] == pytest.approx([-0.05, 0.05])


def test_speed_takes_at_most_half_of_the_gap(make_group: MakeGroup) -> None:
    """Scores 1, 1, 0.9: gap 0.1; at weight 1 the slow one would lose 0.5, so λ = 0.1."""
    group = make_group([reward(1.0, latency=1.0), reward(1.0, latency=0.0), reward(0.9)])
    found = ALGORITHMS["dr_grpo"].credits(group, TermWeights(process=0.0, latency=1.0)).credits
    assert [credit.terms["latency"] for credit in found] == pytest.approx([0.05, -0.05, 0.0])


def test_thinking_pays_among_correct_members_only(make_group: MakeGroup) -> None:
    rewards = [reward(1.0, thinking=1.0), reward(1.0, thinking=0.0), reward(0.0, thinking=0.0)]
    found = ALGORITHMS["grpo"].credits(make_group(rewards), TermWeights(thinking=0.2)).credits
    assert [credit.terms["thinking"] for credit in found] == pytest.approx([0.1, -0.1, 0.0])


# ------------------------------------------------------------------------------------------------ shares of variance


def credited(*terms: dict[str, float]) -> GroupCredits:
    credits_ = tuple(Credit(attempt=str(i), advantage=math.fsum(t.values()), terms=t) for i, t in enumerate(terms))
    return GroupCredits(state=GroupState.COMPLETE, credits=credits_)


def test_shares_by_hand() -> None:
    assert term_shares([credited({"a": 1.0, "b": -0.5}, {"a": -1.0, "b": 0.5})]) == {"a": 2.0, "b": -1.0}
    two = [credited({"a": 1.0, "b": 0.0}, {"a": -1.0, "b": 0.0}), credited({"a": 0.0, "b": 1.0}, {"a": 0.0, "b": -1.0})]
    assert term_shares(two) == {"a": 0.5, "b": 0.5}
    # what all members of a group share is no variance within it
    assert term_shares([credited({"a": 9.0, "b": 1.0}, {"a": 9.0, "b": 0.0})]) == {"a": 0.0, "b": 1.0}


def test_shares_of_nothing() -> None:
    flat = GroupCredits(state=GroupState.ZERO_ADVANTAGE)
    assert term_shares([]) == term_shares([flat]) == term_shares([credited({"a": 1.0}, {"a": 1.0})]) == {}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(members, min_size=1, max_size=4), weights, st.sampled_from(sorted(set(ALGORITHMS) - {"distill"})))
def test_shares_sum_to_one(
    make_group: MakeGroup, groups: list[list[Reward | None]], chosen: TermWeights, name: str
) -> None:
    found = [ALGORITHMS[name].credits(make_group(rewards), chosen) for rewards in groups]
    shares = term_shares(found)
    if shares:
        assert shares.keys() == {"outcome", "process", "latency", "thinking"}
        assert math.fsum(shares.values()) == pytest.approx(1.0, abs=1e-6)
