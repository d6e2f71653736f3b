"""Process rewards per turn: what a single turn did well or badly is credited to the tokens of that turn alone.

    q_ik = −(share of the calls of member i's turn k that failed by its own doing)
    A_ik = w · (q_ik − mean of q over all turns with calls of all scored members)

The outcome's advantage is the same for all tokens of an attempt; a malformed call in an attempt that succeeded is then
rewarded, and a good turn in one that failed is punished. The turn's own term says which it was. It is added after the
group's normalisation and lies within ±w, since q lies within −1 … 0; an injected fault is not the policy's doing and is
left out of both sums. Source: turn-level credit as in Zeng et al. 2025, arXiv:2505.11821 (MT-GRPO), with the baseline
taken over all turns, since members have different numbers of them.

By hand: one member with turns (good, half failed), another with (good): q = (0, −½), (0), mean −1/6; w = .3 gives
(.05, −.1), (.05).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from flightschool.records import Attempt, EpisodeGroup
from flightschool.training.algorithms.terms import FLAT

__all__ = ["TurnQuality", "turn_credits", "turn_quality"]

TurnQuality: TypeAlias = Callable[[Attempt], dict[int, float]]
"""Attempt → turn → how good the turn was; turns that nothing can be said about are left out."""


def turn_quality(attempt: Attempt) -> dict[int, float]:
    """Quality q of each turn that called a tool, −1 … 0."""
    calls: dict[int, list[bool]] = {}
    for event in attempt.events:
        if event.result.fault is None:
            calls.setdefault(event.turn, []).append(event.result.is_error)
    return {turn: -sum(failed) / len(failed) for turn, failed in calls.items()}


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
