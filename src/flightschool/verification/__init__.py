"""Verification: declared checks on immutable evidence, and one reward made of them.

``flightschool.verification.worker`` is run as a program of its own and therefore not imported here.
"""

from flightschool.verification.keeping import current_reward, keep_reward, reward_of
from flightschool.verification.regrade import GradeItem, SeparateGrader, agree, regrade
from flightschool.verification.reward import OutcomeReward, RewardSettings
from flightschool.verification.rules import FAULTS_THAT_TOOK_EFFECT, took_effect
from flightschool.verification.verifier import JUDGE_VERSION, CheckVerifier

__all__ = [
    "FAULTS_THAT_TOOK_EFFECT",
    "JUDGE_VERSION",
    "CheckVerifier",
    "GradeItem",
    "OutcomeReward",
    "RewardSettings",
    "SeparateGrader",
    "agree",
    "current_reward",
    "keep_reward",
    "regrade",
    "reward_of",
    "took_effect",
]
