"""How far the voices behind a check agree, over many attempts: members of a panel, or a judge with itself."""

from __future__ import annotations

from collections.abc import Iterable

from flightschool.errors import InputError
from flightschool.records import Record, Verdict
from flightschool.statistics import fleiss_kappa, krippendorff_alpha

__all__ = ["VoteAgreement", "vote_agreement"]


class VoteAgreement(Record, frozen=True, kw_only=True):
    """Agreement of the voters of one check."""

    check: str
    num_attempts: int
    """Attempts with at least two votes on it."""
    unanimous: float
    """Share of these in which all votes were the same."""
    alpha: float | None
    """Krippendorff's; None where all votes of all attempts were the same: nothing can be said of chance then."""
    fleiss: float | None
    """Fleiss' kappa; None as above, or where attempts differ in their number of votes."""


def vote_agreement(verdicts: Iterable[Verdict], check_id: str) -> VoteAgreement:
    """Agreement on one check over many verdicts.

    Raises:
        InputError: in none of them has the check two votes.
    """
    rows = [
        [vote.passed for vote in check.votes]
        for verdict in verdicts
        for check in verdict.checks
        if check.id == check_id and len(check.votes) >= 2
    ]
    if not rows:
        raise InputError(
            f"no votes on check {check_id!r}",
            where="verdicts",
            expected="verdicts whose check was decided by several voices: a judge or a panel",
            mend="name such a check",
        )
    varied = len({vote for row in rows for vote in row}) > 1
    even = len({len(row) for row in rows}) == 1
    return VoteAgreement(
        check=check_id,
        num_attempts=len(rows),
        unanimous=sum(len(set(row)) == 1 for row in rows) / len(rows),
        alpha=krippendorff_alpha(rows) if varied else None,
        fleiss=fleiss_kappa(rows) if varied and even else None,
    )
