"""GRPO: group-relative policy optimisation.

    A_i = (s_i − mean(s)) / (std(s) + ε),    std with the sample's n − 1,  ε = 1e-6

Source: Shao et al. 2024, DeepSeekMath, section 4.1 (outcome supervision). The loss is averaged over the tokens of the
step, as in DAPO (Yu et al. 2025), not first over each sequence: a long answer weighs as many tokens as it has.

By hand: scores (1, 0, 0, 0) have mean 1/4 and std √(3/12) = 1/2, so A = (3/2, −1/2, −1/2, −1/2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flightschool.records import EpisodeGroup
from flightschool.training.algorithms.terms import GroupCredits, TermWeights, credit_group

__all__ = ["EPSILON", "grpo", "standardise"]

EPSILON = 1e-6


def standardise(scores: Sequence[float]) -> list[float]:
    """Deviations from the mean in units of the sample standard deviation."""
    mean = math.fsum(scores) / len(scores)
    std = math.sqrt(math.fsum((s - mean) ** 2 for s in scores) / (len(scores) - 1))
    return [(s - mean) / (std + EPSILON) for s in scores]


def grpo(group: EpisodeGroup, weights: TermWeights) -> GroupCredits:
    """Credits of a group by GRPO."""
    return credit_group(group, standardise, weights)
