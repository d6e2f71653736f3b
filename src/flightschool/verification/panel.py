"""Several independent verifiers on one task: each gives a whole verdict, and they vote or veto.

The panel's verdict has one functional check, one constraint check where any member has constraints, and the members'
process checks; the members' own verdicts are kept inside it. Where they differ, ``Verdict.disagreement`` is true:
such attempts go to review, whichever way the vote went.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from flightschool.digest import digest
from flightschool.errors import InputError
from flightschool.protocols import Verifier
from flightschool.records import Check, CheckKind, Evidence, MemberVerdict, Verdict, Vote
from flightschool.verification.voting import Decision, decide, tally, voting_problem

__all__ = ["Panel", "Seat"]


@dataclass(frozen=True)
class Seat:
    """One member of a panel."""

    name: str
    verifier: Verifier
    veto: bool = False
    """Whether its no alone decides (decision ``veto``)."""


class Panel:
    """A verifier made of verifiers (``protocols.Verifier``).

    Args:
        seats: at least two, with names of their own.
        decision: ``majority`` (more than half), ``all``, or ``veto`` (a majority, and no seat with a veto is against).

    Raises:
        InputError: fewer than two seats, names twice, or vetoes without that decision (and the reverse).
    """

    def __init__(self, seats: Sequence[Seat], decision: Decision = "majority") -> None:
        self._seats = tuple(seats)
        self._decision = decision
        self._veto = frozenset(seat.name for seat in self._seats if seat.veto)
        problem = voting_problem([seat.name for seat in self._seats], decision, self._veto)
        if problem:
            raise InputError(
                problem, where="panel", expected="independent verifiers that vote", mend="correct the panel"
            )
        members = [[seat.name, seat.verifier.digest, seat.veto] for seat in self._seats]
        self._digest = digest({"panel": 1, "decision": decision, "members": members})

    @property
    def digest(self) -> str:
        """Digest of the members' verifiers and of how they decide."""
        return self._digest

    def verify(self, evidence: Evidence) -> Verdict:
        """Ask all members and decide.

        Raises:
            InfrastructureError: a member cannot judge; a vote with a member missing would be another panel's.
        """
        members = tuple(
            MemberVerdict(name=seat.name, verdict=seat.verifier.verify(evidence), veto=seat.veto)
            for seat in self._seats
        )
        checks = [self._check("panel", CheckKind.FUNCTIONAL, members)]
        if any(check.kind is CheckKind.CONSTRAINT for member in members for check in member.verdict.checks):
            checks.append(self._check("panel-constraints", CheckKind.CONSTRAINT, members))
        checks += [
            msgspec.structs.replace(check, id=f"{member.name}/{check.id}")
            for member in members
            for check in member.verdict.checks
            if check.kind is CheckKind.PROCESS
        ]
        return Verdict(checks=tuple(checks), verifier_digest=self._digest, members=members)

    def _check(self, name: str, kind: CheckKind, members: Sequence[MemberVerdict]) -> Check:
        votes = tuple(vote for member in members if (vote := _vote(member, kind)) is not None)
        veto = self._veto & {vote.voter for vote in votes}
        return Check(
            id=name,
            kind=kind,
            weight=1.0,
            passed=decide(self._decision, votes, veto),
            evidence=tally(votes),
            author="panel",
            votes=votes,
        )


def _vote(member: MemberVerdict, kind: CheckKind) -> Vote | None:
    """What a member says of the outcome, or of constraints; None where it has no such check: it abstains."""
    checks = [check for check in member.verdict.checks if check.kind is kind]
    if not checks:
        return None
    failed = [check.id for check in checks if not check.passed]
    found = f"failed: {', '.join(failed)}" if failed else f"{len(checks)} checks passed"
    return Vote(voter=member.name, passed=not failed, evidence=found[:600])
