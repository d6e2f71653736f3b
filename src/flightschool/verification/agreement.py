"""How far the voices behind a check agree, over many attempts: members of a panel, or a judge with itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flightschool.errors import InputError
from flightschool.records import Record, Verdict
from flightschool.statistics import Interval, fleiss_kappa, krippendorff_alpha, wilson

__all__ = ["VoteAgreement", "all_votes", "vote_agreement", "vote_words"]


class VoteAgreement(Record, frozen=True, kw_only=True):
    """Agreement of the voters of one check."""

    check: str
    num_attempts: int
    """Attempts with at least two votes on it."""
    unanimous: Interval
    """Share of these in which all votes were the same, with the interval of independent attempts."""
    alpha: float | None
    """Krippendorff's; None where all votes of all attempts were the same: nothing can be said of chance then."""
    fleiss: float | None
    """Fleiss' kappa; None as above, or where attempts differ in their number of votes."""


def vote_agreement(verdicts: Iterable[Verdict], check_id: str) -> VoteAgreement:
    """Agreement on one check over many verdicts.

    Raises:
        InputError: in none of them has the check two votes.
    """
    found = next((one for one in all_votes(verdicts) if one.check == check_id), None)
    if found is None:
        raise InputError(
            f"no votes on check {check_id!r}",
            where="verdicts",
            expected="verdicts whose check was decided by several voices: a judge or a panel",
            mend="name such a check",
        )
    return found


def all_votes(verdicts: Iterable[Verdict]) -> tuple[VoteAgreement, ...]:
    """Agreement on each check that several voices decided anywhere, in the order of first sight."""
    rows: dict[str, list[list[bool]]] = {}
    for verdict in verdicts:
        for check in verdict.checks:
            if len(check.votes) >= 2:
                rows.setdefault(check.id, []).append([vote.passed for vote in check.votes])
    return tuple(_agreement(check, votes) for check, votes in rows.items())


def _agreement(check_id: str, rows: Sequence[Sequence[bool]]) -> VoteAgreement:
    varied = len({vote for row in rows for vote in row}) > 1
    even = len({len(row) for row in rows}) == 1
    return VoteAgreement(
        check=check_id,
        num_attempts=len(rows),
        unanimous=wilson(sum(len(set(row)) == 1 for row in rows), len(rows)),
        alpha=krippendorff_alpha(rows) if varied else None,
        fleiss=fleiss_kappa(rows) if varied and even else None,
    )


def vote_words(found: VoteAgreement) -> str:
    """An agreement in one sentence, as people are told it."""
    share = found.unanimous
    alpha = "one vote throughout, no alpha" if found.alpha is None else f"alpha {found.alpha:.2f}"
    return (
        f"voters of check {found.check} were of one mind on {share.value:.1%} [{share.low:.1%}, {share.high:.1%}] "
        f"of {found.num_attempts} attempts: {alpha}"
    )
