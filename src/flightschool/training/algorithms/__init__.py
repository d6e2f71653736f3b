"""Algorithms: pure functions from an episode group to credits, one file each, and the table of them.

The trainer does not know which algorithm runs: it sees advantages and a denominator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from flightschool.records import EpisodeGroup
from flightschool.training.algorithms.control import shuffle_rewards
from flightschool.training.algorithms.down_sampling import most_spread
from flightschool.training.algorithms.dr_grpo import dr_grpo
from flightschool.training.algorithms.grpo import grpo
from flightschool.training.algorithms.terms import GroupCredits, TermWeights

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "GroupCredits",
    "TermWeights",
    "dr_grpo",
    "grpo",
    "most_spread",
    "shuffle_rewards",
]

Denominator = Literal["token_mean", "constant"]


@dataclass(frozen=True)
class Algorithm:
    """How groups become credits, and what the summed loss of a step is divided by."""

    credits: Callable[[EpisodeGroup, TermWeights], GroupCredits]
    denominator: Denominator
    """``token_mean``: trained tokens of the step. ``constant``: members of the step × the token budget of one."""


ALGORITHMS: Mapping[str, Algorithm] = {
    "grpo": Algorithm(grpo, "token_mean"),
    "dr_grpo": Algorithm(dr_grpo, "constant"),
}
