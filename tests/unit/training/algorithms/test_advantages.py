"""RLOO, REINFORCE++, DAPO and the algorithms that share GRPO's advantages: by hand, and what must hold of all of
them."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flightschool.records import EpisodeGroup, GroupState, Reward, TokenSpan
from flightschool.training.algorithms import ALGORITHMS, Overlong, TermWeights, apart, dapo, grpo, overlong_penalty

MakeGroup = Callable[..., EpisodeGroup]
MakeReward = Callable[..., Reward]
MakeSpans = Callable[..., tuple[TokenSpan, ...]]

PLAIN = TermWeights(process=0.0, latency=0.0)
REWARDED = sorted(set(ALGORITHMS) - {"distill"})
"""Those that make advantages of rewards."""
quick = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
names = st.sampled_from(REWARDED)
outcomes = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=2, max_size=8)


def advantages(group: EpisodeGroup, name: str, weights: TermWeights = PLAIN) -> list[float]:
    return [credit.advantage for credit in ALGORITHMS[name].credits(group, weights).credits]


def test_rloo_by_hand(make_group: MakeGroup) -> None:
    assert advantages(make_group([1.0, 0.0, 0.0, 0.0]), "rloo") == pytest.approx([1.0, -1 / 3, -1 / 3, -1 / 3])


@quick
@given(outcomes)
def test_rloo_is_the_mean_of_the_others(make_group: MakeGroup, values: list[float]) -> None:
    found = advantages(make_group(values), "rloo")
    for i, advantage in enumerate(found):
        assert advantage == pytest.approx(values[i] - fmean(values[:i] + values[i + 1 :]))


def test_reinforce_pp_by_hand(make_group: MakeGroup) -> None:
    groups = [advantages(make_group(values), "reinforce_pp") for values in ([1.0, 0.0, 0.0, 0.0], [1.0, 0.0])]
    assert groups[0] == pytest.approx([0.75, -0.25, -0.25, -0.25])
    everyone = groups[0] + groups[1]
    scale = math.sqrt(math.fsum(a * a for a in everyone) / 6)
    assert scale == pytest.approx(math.sqrt(5 / 24))
    assert [a / scale for a in everyone] == pytest.approx([1.643, -0.548, -0.548, -0.548, 1.095, -1.095], abs=1e-3)
    assert ALGORITHMS["reinforce_pp"].batch_scale


@pytest.mark.parametrize("name", ["dapo", "gspo", "cispo", "decoupled_ppo"])
def test_advantages_of_grpo_are_shared(make_group: MakeGroup, name: str) -> None:
    group = make_group([1.0, 0.0, 1.0, 0.0, 0.0])
    assert advantages(group, name) == advantages(group, "grpo") != []


@quick
@given(outcomes, names, st.floats(0.0, 3.0))
def test_shift_changes_nothing(make_group: MakeGroup, values: list[float], name: str, shift: float) -> None:
    if name == "dapo":  # asks who is correct, so it is no function of differences
        return
    before, after = (advantages(make_group([v + s for v in values]), name) for s in (0.0, shift))
    assert after == pytest.approx(before, abs=1e-4)


@quick
@given(outcomes, names, st.data())
def test_members_may_stand_in_any_order(
    make_group: MakeGroup, values: list[float], name: str, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(values))))
    before, after = advantages(make_group(values), name), advantages(make_group([values[i] for i in order]), name)
    assert after == pytest.approx([before[i] for i in order] if before else [], abs=1e-9)


@pytest.mark.parametrize("name", REWARDED)
def test_equal_scores_and_lone_members_have_no_gradient(make_group: MakeGroup, name: str) -> None:
    for value in (0.0, 0.1 + 0.2, 1.0):
        assert ALGORITHMS[name].credits(make_group([value] * 4), PLAIN).state is GroupState.ZERO_ADVANTAGE
    assert ALGORITHMS[name].credits(make_group([1.0, None]), PLAIN).state is GroupState.TOO_FEW


@pytest.mark.parametrize("name", REWARDED)
def test_infra_failures_are_no_part_of_any_baseline(make_group: MakeGroup, name: str) -> None:
    partial = ALGORITHMS[name].credits(make_group([1.0, None, 0.0, None, 0.0]), PLAIN)
    assert [c.advantage for c in partial.credits] == advantages(make_group([1.0, 0.0, 0.0]), name)
    assert [c.attempt for c in partial.credits] == ["g0:0", "g0:2", "g0:4"]


# ------------------------------------------------------------------------------------------------ dapo


def test_dapo_samples_on_while_all_or_none_are_correct(make_group: MakeGroup, make_reward: MakeReward) -> None:
    half_right = make_group([make_reward(0.0, process=1.0), make_reward(0.5)])
    assert grpo(half_right, TermWeights(process=0.1)).state is GroupState.COMPLETE
    assert dapo(half_right, TermWeights(process=0.1)).state is GroupState.ZERO_ADVANTAGE
    assert dapo(make_group([1.0, 0.5]), PLAIN).state is GroupState.COMPLETE


def test_overlong_by_hand() -> None:
    overlong = Overlong(limit=100, buffer=20)
    assert [overlong_penalty(n, overlong) for n in (0, 80, 90, 100, 500)] == [0.0, 0.0, -0.25, -0.5, -0.5]
    assert overlong_penalty(500, None) == 0.0


def test_overlong_answers_lose_score(make_group: MakeGroup, make_spans: MakeSpans) -> None:
    lengths = (4, 9, 4, 10)
    spans = [make_spans(turns=(((7,) * n, ()),)) for n in lengths]
    group = make_group([1.0, 1.0, 0.0, 0.0], spans)
    found = [c.advantage for c in dapo(group, PLAIN, Overlong(limit=10, buffer=2)).credits]
    scores = [1.0, 0.75, 0.0, -0.5]
    mean = fmean(scores)
    deviation = math.sqrt(sum((s - mean) ** 2 for s in scores) / 3)
    assert found == pytest.approx([(s - mean) / (deviation + 1e-6) for s in scores])


def test_length_takes_at_most_half_of_what_is_between_right_and_wrong(
    make_group: MakeGroup, make_spans: MakeSpans
) -> None:
    """Right at the limit, .8 below it: ν = .2, scores .9 and .8."""
    spans = [make_spans(turns=(((7,) * n, ()),)) for n in (100, 10)]
    found = dapo(make_group([1.0, 0.8], spans), PLAIN, Overlong(limit=100, buffer=20))
    deviation = math.sqrt(2 * 0.05**2)
    assert [c.advantage for c in found.credits] == pytest.approx([0.05 / deviation, -0.05 / deviation], rel=1e-4)


def test_an_overlong_success_is_still_one(make_group: MakeGroup, make_spans: MakeSpans) -> None:
    """What it has lost to length does not take it out of those that are compared by latency."""
    spans = [make_spans(turns=(((7,) * n, ()),)) for n in (100, 10, 10)]
    rewards = [Reward(outcome=o, process=0.0, latency=s, gate=1.0, total=o) for o, s in ((1, 1), (1, 0), (0, 0))]
    found = dapo(make_group(rewards, spans), TermWeights(latency=0.2), Overlong(limit=100, buffer=20))
    assert [c.terms["latency"] for c in found.credits] == pytest.approx([0.1, -0.1, 0.0])


# ------------------------------------------------------------------------------------------------ noise apart


def weathered(group: EpisodeGroup, noise: list[str]) -> EpisodeGroup:
    members = tuple(msgspec.structs.replace(m, noise=n) for m, n in zip(group.members, noise, strict=True))
    return msgspec.structs.replace(group, members=members)


def test_clean_and_noisy_members_are_normalised_apart(make_group: MakeGroup) -> None:
    group = weathered(make_group([1.0, 0.5, 0.25, 0.0]), ["clean", "storm", "clean", "storm"])
    found = {c.attempt: c.advantage for c in ALGORITHMS["dr_grpo"].credits(group, PLAIN).credits}
    assert found == pytest.approx({"g0:0": 0.375, "g0:1": 0.25, "g0:2": -0.375, "g0:3": -0.25})
    assert list(found) == ["g0:0", "g0:1", "g0:2", "g0:3"]


def test_a_part_without_baseline_has_no_gradient(make_group: MakeGroup) -> None:
    group = weathered(make_group([1.0, 0.0, 1.0]), ["clean", "clean", "storm"])
    assert [c.attempt for c in apart(grpo)(group, PLAIN).credits] == ["g0:0", "g0:1"]
    flat = weathered(make_group([1.0, 1.0, 0.0]), ["clean", "clean", "storm"])
    assert apart(grpo)(flat, PLAIN).state is GroupState.ZERO_ADVANTAGE
    alone = weathered(make_group([1.0, 0.0]), ["clean", "storm"])
    assert apart(grpo)(alone, PLAIN).state is GroupState.TOO_FEW
