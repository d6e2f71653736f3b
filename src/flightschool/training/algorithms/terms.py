"""What all group algorithms share: the score that is normalised, the latency term that is not, and who counts.

A member's *score* is ``gate · (outcome + process_weight · process)``. The algorithm turns the scores of a group into
advantages. The latency term is added afterwards,

    latency_i = w · (l_i − mean of l over correct members)        for correct members, 0 for all others,

so it is bounded by ``w`` and can never be blown up: were it part of the score, a group in which everyone is correct
would have only latency variance, and division by the standard deviation would turn milliseconds into unit advantages.

Members count in the baseline unless infrastructure failed (reward ``None``): failures of the policy stay in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flightschool.records import Credit, EpisodeGroup, GroupState, Record, Reward

__all__ = ["FLAT", "GroupCredits", "TermWeights", "credit_group", "latency_terms", "score"]

FLAT = 1e-9
"""Scores closer than this are equal: what is left of exact arithmetic by sums in another order is no signal."""

Normalise = Callable[[Sequence[float]], list[float]]


class TermWeights(Record, frozen=True, kw_only=True):
    """Weights of the terms beside the outcome."""

    process: float = 0.1
    latency: float = 0.0


class GroupCredits(Record, frozen=True, kw_only=True):
    """What the algorithm makes of one group."""

    state: GroupState
    credits: tuple[Credit, ...] = ()
    """One for each member of the baseline, in the group's order; empty unless the group carries a gradient."""


def score(reward: Reward, weights: TermWeights) -> float:
    """The part of a reward that is compared and normalised within the group."""
    return reward.gate * (reward.outcome + weights.process * reward.process)


def latency_terms(rewards: Sequence[Reward], weight: float) -> list[float]:
    """The bounded latency term of each member (see above)."""
    correct = [reward.latency for reward in rewards if reward.success]
    if len(correct) < 2 or max(correct) - min(correct) <= FLAT:
        return [0.0] * len(rewards)
    mean = sum(correct) / len(correct)
    return [
        max(-weight, min(weight, weight * (reward.latency - mean))) if reward.success else 0.0 for reward in rewards
    ]


def credit_group(group: EpisodeGroup, normalise: Normalise, weights: TermWeights) -> GroupCredits:
    """Credits of a group, or the state that says why it has none.

    Args:
        normalise: scores → advantages; only called when scores differ.
    """
    members = [(member, member.reward) for member in group.members if member.reward is not None]
    if len(members) < 2:
        return GroupCredits(state=GroupState.TOO_FEW)
    rewards = [reward for _, reward in members]
    scores = [score(reward, weights) for reward in rewards]
    flat = max(scores) - min(scores) <= FLAT
    base = [0.0] * len(scores) if flat else normalise(scores)
    latency = latency_terms(rewards, weights.latency)
    if all(abs(a + b) <= FLAT for a, b in zip(base, latency, strict=True)):
        return GroupCredits(state=GroupState.ZERO_ADVANTAGE)
    credits_ = tuple(
        Credit(attempt=member.id, advantage=a + b, terms={"score": a, "latency": b})
        for (member, _), a, b in zip(members, base, latency, strict=True)
    )
    return GroupCredits(state=GroupState.COMPLETE, credits=credits_)
