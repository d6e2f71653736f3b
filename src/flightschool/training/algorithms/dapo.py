"""DAPO: GRPO's advantages, unequal clip, token mean, dynamic sampling, soft punishment of overlong answers.

    A_i = (s_i + p_i − mean) / (std + ε),     group kept ⇔ 0 < #correct < G
    p = 0 for n ≤ L − C,     (L − C − n) / C up to L,     −1 beyond             (n sampled tokens of the attempt)

Source: Yu et al. 2025, arXiv:2503.14476, sections 3.1 to 3.4. *Clip-higher* and the *token mean* are the loss shape
that GRPO has here as well. *Dynamic sampling*: a group in which all or none succeeded is consumed without a gradient,
whatever its other terms say, and ``groups_per_step`` counts groups with one, so sampling goes on until the step is
full. (GRPO here asks whether *scores* differ.) The punishment is part of the score, as in the paper; what an agent
reads is not counted.

By hand: L = 100, C = 20: 80 tokens cost 0, 90 cost ½, 100 and more cost 1.
"""

from __future__ import annotations

import msgspec

from flightschool.records import Attempt, EpisodeGroup, GroupState, Record
from flightschool.training.algorithms.grpo import standardise
from flightschool.training.algorithms.shapes import LossShape
from flightschool.training.algorithms.terms import GroupCredits, TermWeights, credit_group

__all__ = ["DAPO_SHAPE", "Overlong", "dapo", "overlong_penalty"]

DAPO_SHAPE = LossShape()


class Overlong(Record, frozen=True, kw_only=True):
    """Where punishment of length begins and ends, in sampled tokens of an attempt."""

    limit: int
    """L: full punishment from here on."""
    buffer: int
    """C: it begins this much earlier; 1 … L."""


def overlong_penalty(num_tokens: int, overlong: Overlong | None) -> float:
    """Punishment p of an attempt, −1 … 0; 0 without a limit."""
    if overlong is None:
        return 0.0
    free = overlong.limit - overlong.buffer
    return max(-1.0, min(0.0, (free - num_tokens) / overlong.buffer))


def dapo(group: EpisodeGroup, weights: TermWeights, overlong: Overlong | None = None) -> GroupCredits:
    """Credits of a group by DAPO."""
    scored = group.baseline
    correct = [member.reward is not None and member.reward.success for member in scored]
    if len(scored) >= 2 and len(set(correct)) < 2:
        return GroupCredits(state=GroupState.ZERO_ADVANTAGE)
    if overlong is not None:
        group = msgspec.structs.replace(group, members=tuple(_shaped(member, overlong) for member in scored))
    return credit_group(group, standardise, weights)


def _shaped(member: Attempt, overlong: Overlong) -> Attempt:
    """The attempt with its punishment in the outcome; what was gated away before stays away."""
    reward = member.reward
    assert reward is not None
    shaped = msgspec.structs.replace(
        reward,
        outcome=reward.gate * reward.outcome + overlong_penalty(member.num_completion_tokens, overlong),
        process=reward.gate * reward.process,
        gate=1.0,
    )
    return msgspec.structs.replace(member, reward=shaped)
