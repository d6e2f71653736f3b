"""How several independent votes become one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

from flightschool.records import Vote

__all__ = ["Decision", "decide", "tally", "voting_problem"]

Decision: TypeAlias = Literal["majority", "all", "veto"]


def decide(decision: Decision, votes: Sequence[Vote], veto: Collection[str] = ()) -> bool:
    """Whether the votes pass. A tie does not: doubt is no proof of work."""
    in_favour = sum(vote.passed for vote in votes)
    if decision == "all":
        return in_favour == len(votes) > 0
    if decision == "veto" and any(not vote.passed for vote in votes if vote.voter in veto):
        return False
    return 2 * in_favour > len(votes)


def tally(votes: Sequence[Vote]) -> str:
    """The votes in words."""
    sides = {side: [vote.voter for vote in votes if vote.passed is side] for side in (True, False)}
    text = f"{len(sides[True])} of {len(votes)} pass"
    return text + (f"; against: {', '.join(sides[False])}" if sides[False] else "")


def voting_problem(names: Sequence[str], decision: Decision, veto: Collection[str]) -> str:
    """Why such a panel is not usable; empty if it is."""
    if len(names) < 2:
        return "a panel needs at least two members"
    if len(set(names)) < len(names) or not all(names):
        return "members of a panel need names of their own"
    if (decision == "veto") != bool(veto):
        return "decision 'veto' and the members who have it go together"
    unknown = sorted(set(veto) - set(names))
    return f"{unknown[0]!r} has a veto and is no member" if unknown else ""
