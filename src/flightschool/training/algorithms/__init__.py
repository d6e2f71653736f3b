"""Algorithms: pure functions from an episode group to credits, one file each, and the shape of the loss as data.

The trainer does not know which algorithm runs: it sees advantages and a shape.
"""

from flightschool.training.algorithms.apart import MakeCredits, apart
from flightschool.training.algorithms.cispo import cispo
from flightschool.training.algorithms.control import shuffle_rewards
from flightschool.training.algorithms.corrections import CORRECTIONS
from flightschool.training.algorithms.dapo import Overlong, dapo, overlong_penalty
from flightschool.training.algorithms.decoupled_ppo import decoupled_ppo
from flightschool.training.algorithms.distill import (
    Distilled,
    TeacherScores,
    TeacherSums,
    distill,
    order_room,
    teacher_terms,
)
from flightschool.training.algorithms.down_sampling import most_spread
from flightschool.training.algorithms.dr_grpo import dr_grpo
from flightschool.training.algorithms.grpo import grpo
from flightschool.training.algorithms.gspo import gspo
from flightschool.training.algorithms.plan import ALGORITHMS, Algorithm, algorithm_of
from flightschool.training.algorithms.reinforce_pp import reinforce_pp
from flightschool.training.algorithms.rloo import rloo
from flightschool.training.algorithms.shapes import Correction, Denominator, KlTerm, LossShape
from flightschool.training.algorithms.terms import GroupCredits, TermWeights, term_shares
from flightschool.training.algorithms.turns import (
    MilestonesOf,
    TurnQuality,
    in_order,
    milestone_quality,
    turn_credits,
    turn_quality,
    turn_terms,
)

__all__ = [
    "ALGORITHMS",
    "CORRECTIONS",
    "Algorithm",
    "Correction",
    "Denominator",
    "Distilled",
    "GroupCredits",
    "KlTerm",
    "LossShape",
    "MakeCredits",
    "MilestonesOf",
    "Overlong",
    "TeacherScores",
    "TeacherSums",
    "TermWeights",
    "TurnQuality",
    "algorithm_of",
    "apart",
    "cispo",
    "dapo",
    "decoupled_ppo",
    "distill",
    "dr_grpo",
    "grpo",
    "gspo",
    "in_order",
    "milestone_quality",
    "most_spread",
    "order_room",
    "overlong_penalty",
    "reinforce_pp",
    "rloo",
    "shuffle_rewards",
    "teacher_terms",
    "term_shares",
    "turn_credits",
    "turn_quality",
    "turn_terms",
]
