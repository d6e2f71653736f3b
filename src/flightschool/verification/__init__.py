"""Verification: declared checks on immutable evidence, and one reward made of them.

``flightschool.verification.worker`` is run as a program of its own and therefore not imported here.
"""

from flightschool.verification.agreement import VoteAgreement, all_votes, vote_agreement, vote_words
from flightschool.verification.commands import IsolatedCommands, files_room
from flightschool.verification.declaring import RULES, load_checks, parse_checks
from flightschool.verification.keeping import current_reward, keep_reward, reward_of
from flightschool.verification.panel import Panel, Seat
from flightschool.verification.regrade import GradeItem, SeparateGrader, agree, regrade
from flightschool.verification.reward import OutcomeReward, RewardSettings
from flightschool.verification.rules import FAULTS_THAT_TOOK_EFFECT, expected_values, took_effect
from flightschool.verification.shaping import milestone_potentials, shaping, sums_to_go
from flightschool.verification.states import Resources
from flightschool.verification.verifier import JUDGE_VERSION, CheckVerifier, rules_in, tools_in

__all__ = [
    "FAULTS_THAT_TOOK_EFFECT",
    "JUDGE_VERSION",
    "RULES",
    "CheckVerifier",
    "GradeItem",
    "IsolatedCommands",
    "OutcomeReward",
    "Panel",
    "Resources",
    "RewardSettings",
    "Seat",
    "SeparateGrader",
    "VoteAgreement",
    "agree",
    "all_votes",
    "current_reward",
    "expected_values",
    "files_room",
    "keep_reward",
    "load_checks",
    "milestone_potentials",
    "parse_checks",
    "regrade",
    "reward_of",
    "rules_in",
    "shaping",
    "sums_to_go",
    "took_effect",
    "tools_in",
    "vote_agreement",
    "vote_words",
]
