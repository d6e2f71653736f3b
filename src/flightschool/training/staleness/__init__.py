"""Staleness: the rule that holds it, checks that notice when it is broken, and a simulator that compares rules.

No torch anywhere; ``docs/design/staleness.md`` has the argument.
"""

from flightschool.training.staleness.bound import most_steps
from flightschool.training.staleness.checks import check_bound, check_fresh, check_tags, oldest_version
from flightschool.training.staleness.lengths import LAWS, LengthLaw, bimodal, heavy_tail, lognormal
from flightschool.training.staleness.measures import GroupRecord, Measured, measure
from flightschool.training.staleness.rules import Accounts, AdmissionRule, DiscardRule, HoldRule, StalenessRule
from flightschool.training.staleness.simulator import Plant, simulate

__all__ = [
    "LAWS",
    "Accounts",
    "AdmissionRule",
    "DiscardRule",
    "GroupRecord",
    "HoldRule",
    "LengthLaw",
    "Measured",
    "Plant",
    "StalenessRule",
    "bimodal",
    "check_bound",
    "check_fresh",
    "check_tags",
    "heavy_tail",
    "lognormal",
    "measure",
    "most_steps",
    "oldest_version",
    "simulate",
]
