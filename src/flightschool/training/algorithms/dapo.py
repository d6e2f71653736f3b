"""DAPO: GRPO's advantages, unequal clip, token mean, dynamic sampling, soft punishment of overlong answers.

    A_i = (s_i + ν p_i − mean) / (std + ε),     group kept ⇔ 0 < #correct < G
    p = 0 for n ≤ L − C,     (L − C − n) / 2C up to L,     −½ beyond             (n sampled tokens of the attempt)

Source: Yu et al. 2025, arXiv:2503.14476, sections 3.1 to 3.4. *Clip-higher* and the *token mean* are the loss shape
that GRPO has here as well. *Dynamic sampling*: a group in which all or none succeeded is consumed without a gradient,
whatever its other terms say, and ``groups_per_step`` counts groups with one, so sampling goes on until the step is
full. (GRPO here asks whether *scores* differ.) The punishment is part of the score, as in the paper; what an agent
reads is not counted. Outcomes of the paper are ±1 and its punishment is at most 1, half of their distance; ours are
0 … 1, hence ½. A correct answer at the limit is then the equal of half a point, above every wrong one of the paper; but
where work may be partly right it could fall below work that is not. So, as with all terms, the punishments of a group
close at most half of the distance between the worst correct and the best other outcome: ν (see ``terms``), which is 1
where wrong outcomes are 0.

By hand: L = 100, C = 20: 80 tokens cost 0, 90 cost ¼, 100 and more cost ½. Outcomes (1, 0) of 100 and 10 tokens have
scores (½, 0). Outcomes (1, .8) of the same: the gap is .2, of which ½ must close no more than .1: ν = .2, scores
(.9, .8).
"""

from __future__ import annotations

from flightschool.records import EpisodeGroup, GroupState, Record
from flightschool.training.algorithms.grpo import standardise
from flightschool.training.algorithms.shapes import LossShape
from flightschool.training.algorithms.terms import GroupCredits, TermWeights, credit_group

__all__ = ["DAPO_SHAPE", "Overlong", "dapo", "overlong_penalty"]

DAPO_SHAPE = LossShape()
_MOST = 0.5
"""Punishment from the limit on: half of the distance between right and wrong."""


class Overlong(Record, frozen=True, kw_only=True):
    """Where punishment of length begins and ends, in sampled tokens of an attempt."""

    limit: int
    """L: full punishment from here on."""
    buffer: int
    """C: it begins this much earlier; 1 … L."""


def overlong_penalty(num_tokens: int, overlong: Overlong | None) -> float:
    """Punishment p of an attempt, −½ … 0, in units of the outcome; 0 without a limit."""
    if overlong is None:
        return 0.0
    free = overlong.limit - overlong.buffer
    return _MOST * max(-1.0, min(0.0, (free - num_tokens) / overlong.buffer))


def dapo(group: EpisodeGroup, weights: TermWeights, overlong: Overlong | None = None) -> GroupCredits:
    """Credits of a group by DAPO."""
    scored = group.baseline
    correct = [member.reward is not None and member.reward.success for member in scored]
    if len(scored) >= 2 and len(set(correct)) < 2:
        return GroupCredits(state=GroupState.ZERO_ADVANTAGE)
    return credit_group(
        group, standardise, weights, lambda member: overlong_penalty(member.num_completion_tokens, overlong)
    )
