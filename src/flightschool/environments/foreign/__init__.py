"""Environments of other ecosystems: one world, one record, one way of judging; who opens sessions differs."""

from flightschool.environments.foreign.content import ForeignContent, ForeignTask, reward_checks
from flightschool.environments.foreign.environment import ForeignEnvironment
from flightschool.environments.foreign.world import (
    OBSERVE,
    ForeignSession,
    ForeignWorld,
    LostSessionError,
    Observed,
)

__all__ = [
    "OBSERVE",
    "ForeignContent",
    "ForeignEnvironment",
    "ForeignSession",
    "ForeignTask",
    "ForeignWorld",
    "LostSessionError",
    "Observed",
    "reward_checks",
]
