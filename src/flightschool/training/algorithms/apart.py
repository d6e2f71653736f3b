"""Clean and noisy attempts are compared apart.

A fault makes an episode harder: compared with clean attempts at the same task, a noisy one would be blamed for the
weather. Runs give whole groups the same weather; a group that nevertheless holds several (re-assembled, or of another
dispatcher) is split by noise profile, each part is normalised by itself, and a part with fewer than two scored members
has no baseline and gets no gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from flightschool.records import EpisodeGroup, GroupState
from flightschool.training.algorithms.terms import GroupCredits, TermWeights

__all__ = ["MakeCredits", "apart", "by_weather"]

MakeCredits: TypeAlias = Callable[[EpisodeGroup, TermWeights], GroupCredits]


def apart(make: MakeCredits) -> MakeCredits:
    """The same algorithm on each noise profile of a group by itself; nothing changes where there is one."""

    def credits_of(group: EpisodeGroup, weights: TermWeights) -> GroupCredits:
        parts = [make(part, weights) for part in by_weather(group)]
        if len(parts) == 1:
            return parts[0]
        by_attempt = {credit.attempt: credit for part in parts for credit in part.credits}
        states = {part.state for part in parts}
        for state in (GroupState.COMPLETE, GroupState.ZERO_ADVANTAGE):
            if state in states:
                ordered = tuple(by_attempt[m.id] for m in group.members if m.id in by_attempt)
                return GroupCredits(state=state, credits=ordered)
        return GroupCredits(state=GroupState.TOO_FEW)

    return credits_of


def by_weather(group: EpisodeGroup) -> list[EpisodeGroup]:
    """The group's members of each noise profile, in order of appearance; the group itself where there is one."""
    profiles = dict.fromkeys(member.noise for member in group.members)
    if len(profiles) < 2:
        return [group]
    return [
        msgspec.structs.replace(group, members=tuple(m for m in group.members if m.noise == profile))
        for profile in profiles
    ]
