"""How far the voices behind checks agree: members of a panel, and a judge that is asked more than once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from flightschool.cli import output

if TYPE_CHECKING:
    from flightschool.records import Attempt
    from flightschool.verification import VoteAgreement

__all__ = ["tell_votes", "votes_on"]


def votes_on(attempts: Iterable[Attempt]) -> tuple[VoteAgreement, ...]:
    """Of each check with several votes; empty where no check has any."""
    from flightschool.verification import all_votes

    return all_votes(attempt.verdict for attempt in attempts if attempt.verdict is not None)


def tell_votes(found: Sequence[VoteAgreement]) -> None:
    """One line a check."""
    from flightschool.verification import vote_words

    for one in found:
        output.say(vote_words(one))
