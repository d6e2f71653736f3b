"""Process rewards per turn: what a single turn did well or badly is credited to the tokens of that turn alone.

    A_ik = λ · w · (q_ik − mean of q over all turns of all scored members)

with one of two qualities q of member i's turn k, both within −1 … 0:

*Failed calls*: −(share of the turn's calls that failed by the policy's own doing). A malformed call in an attempt that
succeeded is otherwise rewarded, and a good turn in one that failed punished. An injected fault is not the policy's
doing and is left out of both sums.

*Milestones*: what potential-based shaping still has to pay from the turn on, Σ_{j ≥ k} F_j = −Φ(s_k), with Φ the share
of the task's milestones reached before the turn (``verification.shaping``). Whoever has come far has little left to
earn: of two attempts with one outcome, the turn that begins nearer to the goal is credited less. −Φ(s_k) is a baseline
that depends on the state alone, hence the best policy stays the best (Ng, Harada and Russell, ICML 1999).

The term is added after the group's normalisation and lies within ±w. λ keeps the order of the house: every token of a
correct member stays above every token of any other,

    λ = min(1, ½ · gap / most that turn terms close of it),

with *gap* the distance between the worst correct and the best other member's advantage. Source of the form: turn-level
credit as in Zeng et al. 2025, arXiv:2505.11821 (MT-GRPO), with the baseline taken over all turns, since members have
different numbers of them. Both, mean and λ, are of the members that met the same weather (see ``apart``).

By hand: one member with turns (good, half failed), another with (good): q = (0, −½), (0), mean −1/6; w = .3 gives
(.05, −.1), (.05). Milestones, two of them: one member reaches the first in turn 0 and the second in turn 1 of 3,
another none in 2 turns: Φ = (0, ½, 1), (0, 0), q = (0, −½, −1), (0, 0), mean −.3; w = .1 gives (.03, −.02, −.07),
(.03, .03).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from flightschool.records import Attempt, Credit, EpisodeGroup, MilestoneCheck, SpanKind
from flightschool.training.algorithms.apart import by_weather
from flightschool.training.algorithms.terms import FLAT, keeping_order
from flightschool.verification.shaping import milestone_potentials, shaping, sums_to_go

__all__ = [
    "MilestonesOf",
    "TurnQuality",
    "in_order",
    "milestone_quality",
    "turn_credits",
    "turn_quality",
    "turn_terms",
]

TurnQuality: TypeAlias = Callable[[Attempt], dict[int, float]]
"""Attempt → turn → how good the turn was; turns that nothing can be said about are left out."""


def turn_quality(attempt: Attempt) -> dict[int, float]:
    """Quality q of each turn that called a tool, −1 … 0."""
    calls: dict[int, list[bool]] = {}
    for event in attempt.events:
        if event.result.fault is None:
            calls.setdefault(event.turn, []).append(event.result.is_error)
    return {turn: -sum(failed) / len(failed) for turn, failed in calls.items()}


MilestonesOf: TypeAlias = Callable[[str], Sequence[tuple[float, MilestoneCheck]]]
"""Task id → (weight, milestones) of its checks; none where it has none."""


def milestone_quality(milestones_of: MilestonesOf) -> TurnQuality:
    """Quality −Φ of each sampled turn, by the milestones of the attempt's task.

    The weighted mean where several checks declare milestones; attempts at tasks without any are left out.
    """

    def quality(attempt: Attempt) -> dict[int, float]:
        turns = sorted({span.turn for span in attempt.spans if span.kind is SpanKind.COMPLETION})
        checks = milestones_of(attempt.task)
        whole = math.fsum(weight for weight, _ in checks)
        if not turns or whole <= 0.0:
            return {}
        num_turns = turns[-1] + 1
        left = [0.0] * num_turns
        for weight, rule in checks:
            to_go = sums_to_go(shaping(milestone_potentials(rule.milestones, attempt.events, num_turns)))
            left = [total + weight / whole * value for total, value in zip(left, to_go, strict=True)]
        return {turn: left[turn] for turn in turns}

    return quality


def turn_terms(
    group: EpisodeGroup, credits_: Sequence[Credit], weight: float, quality: TurnQuality = turn_quality
) -> Mapping[str, dict[int, float]]:
    """Attempt → turn → what its tokens get beside the attempt's advantage; each weather by itself.

    Args:
        group: whose turns.
        credits_: of its members; those without one get nothing.
        weight: bound of the term.
        quality: judges turns; its values must span at most 1.
    """
    terms: dict[str, dict[int, float]] = {}
    for part in by_weather(group):
        ids = {member.id for member in part.members}
        own = [credit for credit in credits_ if credit.attempt in ids]
        if own:
            correct = frozenset(m.id for m in part.baseline if m.reward is not None and m.reward.success)
            terms |= in_order(turn_credits(part, weight, quality), own, correct)
    return terms


def in_order(
    turns: Mapping[str, dict[int, float]], credits_: Sequence[Credit], correct: frozenset[str]
) -> Mapping[str, dict[int, float]]:
    """Turn terms scaled by λ, so that no token of a correct member falls to one of any other (see the module).

    Args:
        turns: attempt → turn → term.
        credits_: of the group's members.
        correct: attempts whose reward is a success.
    """
    good = [credit for credit in credits_ if credit.attempt in correct]
    other = [credit for credit in credits_ if credit.attempt not in correct]
    if not turns or not good or not other:
        return turns
    gap = min(credit.advantage for credit in good) - max(credit.advantage for credit in other)
    # a token of a turn without a term has none: 0 is always among them
    lowest = min(min([0.0, *turns.get(credit.attempt, {}).values()]) for credit in good)
    highest = max(max([0.0, *turns.get(credit.attempt, {}).values()]) for credit in other)
    share = keeping_order(gap, highest - lowest)
    return {attempt: {turn: share * value for turn, value in row.items()} for attempt, row in turns.items()}


def turn_credits(
    group: EpisodeGroup, weight: float, quality: TurnQuality = turn_quality
) -> Mapping[str, dict[int, float]]:
    """Attempt → turn → advantage; empty if all turns are alike, or fewer than two members are scored.

    Args:
        weight: bound of the term.
        quality: judges turns; its values must span at most 1.
    """
    scored = {member.id: quality(member) for member in group.baseline}
    values = [value for turns in scored.values() for value in turns.values()]
    if weight == 0.0 or len(scored) < 2 or not values or max(values) - min(values) <= FLAT:
        return {}
    mean = sum(values) / len(values)
    return {
        attempt: {turn: weight * (value - mean) for turn, value in turns.items()} for attempt, turns in scored.items()
    }
