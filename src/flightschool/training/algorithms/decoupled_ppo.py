"""Decoupled PPO: the policy that samples and the policy that must not be left are two.

    L = −E_μ[ (π_prox / μ) · min(u A, clip(u, 1 − ε_low, 1 + ε_high) A) ],     u = π_θ / π_prox

Source: Hilton et al. 2021, arXiv:2110.00641, section 3; AReaL, arXiv:2505.24298, equation 5, with π_prox the
parameters just before the step. The clip then bounds how far a step goes, not how stale its samples are; staleness is
in the weight, which stands untruncated here as in the paper. (GRPO here has the same shape with the weight truncated
at ``tis_cap``.) A as in GRPO.

By hand: μ = .2, π_prox = .3, π_θ = .45, A = 1: u = 1.5 is clipped to 1.28, the loss is −1.5 · 1.28 = −1.92 and its
slope 0.
"""

from __future__ import annotations

import math

from flightschool.records import EpisodeGroup
from flightschool.training.algorithms.grpo import grpo
from flightschool.training.algorithms.shapes import Correction, LossShape
from flightschool.training.algorithms.terms import GroupCredits, TermWeights

__all__ = ["DECOUPLED_PPO_SHAPE", "decoupled_ppo"]

DECOUPLED_PPO_SHAPE = LossShape(correction=Correction(cap=math.inf))


def decoupled_ppo(group: EpisodeGroup, weights: TermWeights) -> GroupCredits:
    """Credits of a group: those of GRPO."""
    return grpo(group, weights)
