"""RLOO: REINFORCE with the mean of the others as baseline.

    A_i = s_i − mean of s_j over j ≠ i  =  G / (G − 1) · (s_i − mean(s))

Source: Kool et al. 2019, "Buy 4 REINFORCE samples, get a baseline for free"; Ahmadian et al. 2024, arXiv:2402.14740.
The baseline does not depend on the member's own actions, so the gradient is unbiased. A member's tokens are summed, not
averaged; the step is divided by members × ``max_new_tokens`` (the longest turn), which only scales the paper's mean
over members. Groups of equal scores are part of that mean with ``count_zero_advantage = true``, and else sampled anew
(see ``dr_grpo``).

By hand: scores (1, 0, 0, 0) give A = (1, −1/3, −1/3, −1/3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flightschool.records import EpisodeGroup
from flightschool.training.algorithms.shapes import LossShape
from flightschool.training.algorithms.terms import GroupCredits, TermWeights, credit_group

__all__ = ["RLOO_SHAPE", "leave_one_out", "rloo"]

RLOO_SHAPE = LossShape(denominator="constant")


def leave_one_out(scores: Sequence[float]) -> list[float]:
    """Each score minus the mean of all others; at least two."""
    total = math.fsum(scores)
    return [s - (total - s) / (len(scores) - 1) for s in scores]


def rloo(group: EpisodeGroup, weights: TermWeights) -> GroupCredits:
    """Credits of a group by RLOO."""
    return credit_group(group, leave_one_out, weights)
