"""CISPO: the importance weight is clipped, never the gradient.

    L = −(1/Σ n_i) Σ_i Σ_t sg[min(ρ_t, C)] A_i log π_θ,      ρ_t = π_θ / π_old

Source: MiniMax-M1, arXiv:2506.13585, equations 4 and 5: no lower bound, the upper one is tuned; C = 5 is what TRL's
documentation recommends. Where PPO stops learning from a token that moved far, CISPO goes on with a bounded weight.
π_old is the policy that sampled, as in ``gspo``.

By hand: ρ = 8, A = 1, C = 5: the slope in log π_θ is −5; PPO's would be 0.
"""

from __future__ import annotations

from flightschool.records import EpisodeGroup
from flightschool.training.algorithms.grpo import grpo
from flightschool.training.algorithms.shapes import Correction, LossShape
from flightschool.training.algorithms.terms import GroupCredits, TermWeights

__all__ = ["CISPO_SHAPE", "cispo"]

CISPO_SHAPE = LossShape(
    proximal="behaviour", clip="weight", ratio_low=0.0, ratio_high=5.0, correction=Correction(weight="none")
)


def cispo(group: EpisodeGroup, weights: TermWeights) -> GroupCredits:
    """Credits of a group: those of GRPO."""
    return grpo(group, weights)
