"""Dr.GRPO: GRPO done right, without the two divisions that bias it.

    A_i = s_i − mean(s)

Source: Liu et al. 2025, "Understanding R1-Zero-Like Training", section 3. Dividing by the standard deviation weighs
nearly solved and nearly hopeless tasks up; dividing by the length favours short right and long wrong answers. Both
are dropped: the sum over tokens is divided by a constant, members × ``max_new_tokens``. That is the longest answer of
the paper, which has one turn; of an episode it is the longest turn, which scales the learning rate and nothing else.

Which members: those of the groups that ``groups_per_step`` counts. The paper takes the mean over all that were sampled,
groups of equal scores among them: ``count_zero_advantage = true``. By default such groups are sampled anew, and counted
as 0 they would make steps the smaller the more of them were met on the way.

By hand: scores (1, 0, 0, 0) give A = (3/4, −1/4, −1/4, −1/4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flightschool.records import EpisodeGroup
from flightschool.training.algorithms.terms import GroupCredits, TermWeights, credit_group

__all__ = ["centre", "dr_grpo"]


def centre(scores: Sequence[float]) -> list[float]:
    """Deviations from the mean."""
    mean = math.fsum(scores) / len(scores)
    return [s - mean for s in scores]


def dr_grpo(group: EpisodeGroup, weights: TermWeights) -> GroupCredits:
    """Credits of a group by Dr.GRPO."""
    return credit_group(group, centre, weights)
