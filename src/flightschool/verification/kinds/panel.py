"""Several independent rules on one question, which vote or veto."""

from __future__ import annotations

from collections.abc import Iterator

from flightschool.records import Json, PanelCheck, Vote
from flightschool.verification.kinds.base import Finding, Kind
from flightschool.verification.states import States
from flightschool.verification.voting import decide, tally, voting_problem

__all__ = ["PANEL"]


def _judge(rule: PanelCheck, states: States) -> Finding:
    from flightschool.verification.kinds import judge  # the table holds this kind

    found = [(member, judge(member.rule, states)) for member in rule.members]
    votes = tuple(Vote(voter=member.name, passed=one.passed, evidence=one.found) for member, one in found)
    return Finding(decide(rule.decision, votes, rule.veto), tally(votes), votes)


def _problem(rule: PanelCheck) -> str:
    from flightschool.verification.kinds import problem_of

    problem = voting_problem([member.name for member in rule.members], rule.decision, rule.veto)
    for member in rule.members:
        inner = problem_of(member.rule)
        problem = problem or (f"member {member.name!r}: {inner}" if inner else "")
    return problem


def _expected(rule: PanelCheck) -> Iterator[Json]:
    from flightschool.verification.kinds import expected_values

    for member in rule.members:
        yield from expected_values(member.rule)


PANEL = Kind(_judge, _problem, _expected)
