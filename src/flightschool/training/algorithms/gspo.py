"""GSPO: one ratio for a whole answer.

    s_i = exp( (1/n_i) Σ_t log(π_θ / π_old)_t ),     L = −(1/G) Σ_i min(s_i A_i, clip(s_i, 1 − ε_low, 1 + ε_high) A_i)

Source: Zheng et al. 2025, arXiv:2507.18071, equations 5 to 7; A_i as in GRPO. All tokens of an answer are kept or
clipped together, and each gets s_i A_i / n_i of gradient. The ratio is a geometric mean, so it stays near 1 and its
bounds are narrow: ε = 3e−4 and 4e−4 in the paper. π_old is the policy that sampled, which here is μ: under one step a
batch the ratio to the trainer's own policy is always 1 and nothing would ever be clipped. An answer is all that an
attempt sampled. The mean over groups holds those of equal scores with ``count_zero_advantage = true``, as in the paper;
else they are sampled anew (see ``dr_grpo``).

By hand: tokens with ρ = (2, ½, 2) have s = 2^(1/3) = 1.26.
"""

from __future__ import annotations

from flightschool.records import EpisodeGroup
from flightschool.training.algorithms.grpo import grpo
from flightschool.training.algorithms.shapes import Correction, LossShape
from flightschool.training.algorithms.terms import GroupCredits, TermWeights

__all__ = ["GSPO_SHAPE", "gspo"]

GSPO_SHAPE = LossShape(
    ratio="sequence",
    proximal="behaviour",
    ratio_low=1.0 - 3e-4,
    ratio_high=1.0 + 4e-4,
    correction=Correction(weight="none"),
    denominator="sequence_mean",
)


def gspo(group: EpisodeGroup, weights: TermWeights) -> GroupCredits:
    """Credits of a group: those of GRPO."""
    return grpo(group, weights)
