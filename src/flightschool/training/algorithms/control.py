"""Negative control: the same run with rewards shuffled within each group must teach nothing."""

from __future__ import annotations

import msgspec

from flightschool.digest import derive_random
from flightschool.records import EpisodeGroup

__all__ = ["shuffle_rewards"]


def shuffle_rewards(group: EpisodeGroup, seed: int) -> EpisodeGroup:
    """The group with the rewards of its baseline permuted among those members, seeded by run and group.

    Mean, variance and state of the group stay as they are; only who earned what is lost.
    """
    places = [i for i, member in enumerate(group.members) if member.reward is not None]
    order = list(places)
    derive_random("shuffle-rewards", seed, group.id).shuffle(order)
    members = list(group.members)
    for place, taken_from in zip(places, order, strict=True):
        members[place] = msgspec.structs.replace(group.members[place], reward=group.members[taken_from].reward)
    return msgspec.structs.replace(group, members=tuple(members))
