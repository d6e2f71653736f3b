"""REINFORCE++ with group baseline: centred in the group, scaled over the whole step.

    a_i = s_i − mean of the group,      A_i = a_i / σ,      σ = √(Σ a² / n) over all members of the step

Source: Hu et al. 2025, arXiv:2501.03262, the "baseline" variant with global advantage normalisation. One σ for all
tasks neither magnifies the single failure of a nearly solved group, as GRPO's does, nor lets the scale of rewards
drift. The mean of all a_i is 0 by construction, so only σ has to be known, and the gradient is linear in it: gradients
of a_i are accumulated group by group and the step divides once by σ, exactly.

Over which members: those with a gradient; groups without one never reach the trainer. The variant without group
baseline subtracts the mean of a batch that nobody has seen before it is complete, and is left out.

By hand: groups (1, 0, 0, 0) and (1, 0) have a = (¾, −¼, −¼, −¼) and (½, −½); σ = √((12/16 + 1/2) / 6) = √(5/24) =
0.4564, so A = (1.643, −0.548, …) and (1.095, −1.095).
"""

from __future__ import annotations

from flightschool.records import EpisodeGroup
from flightschool.training.algorithms.dr_grpo import centre
from flightschool.training.algorithms.shapes import LossShape
from flightschool.training.algorithms.terms import GroupCredits, TermWeights, credit_group

__all__ = ["REINFORCE_PP_SHAPE", "reinforce_pp"]

REINFORCE_PP_SHAPE = LossShape()


def reinforce_pp(group: EpisodeGroup, weights: TermWeights) -> GroupCredits:
    """Credits of a group before the step's scale."""
    return credit_group(group, centre, weights)
