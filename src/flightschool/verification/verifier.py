"""The verifier of declared checks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from flightschool.digest import digest
from flightschool.errors import FlightschoolError, InfrastructureError, InputError
from flightschool.records import (
    CallCheck,
    Check,
    CheckRule,
    CheckSpec,
    CommandCheck,
    Evidence,
    JudgeCheck,
    MilestoneCheck,
    MinefieldCheck,
    PanelCheck,
    Verdict,
)
from flightschool.verification.judging import PROMPT_VERSION
from flightschool.verification.rules import judge, problem_of
from flightschool.verification.states import Resources, States

__all__ = ["JUDGE_VERSION", "CheckVerifier", "rules_in", "tools_in"]

JUDGE_VERSION = "2"
"""Raised whenever the meaning of a rule changes; part of every verifier's digest."""


IMITATED = "imitation"
"""``served_by`` of answers that were invented: what they lead to is worth no reward."""


class CheckVerifier:
    """Judges evidence by checks that are data (``protocols.Verifier``). Stateless and safe to share.

    Args:
        checks: the declared checks, ids distinct.
        resources: what checks by commands and by judges need; the defaults make sandboxes and connections as asked.

    Raises:
        InputError: a check could never fail, could never pass the same way twice, or has no usable weight.
    """

    def __init__(self, checks: Sequence[CheckSpec], resources: Resources | None = None) -> None:
        self._checks = tuple(checks)
        self._resources = resources or Resources()
        seen: set[str] = set()
        for check in self._checks:
            problem = "its id is used twice" if check.id in seen else _problem(check)
            if problem:
                raise InputError(
                    f"check {check.id!r} is not usable: {problem}",
                    where=f"check {check.id}",
                    expected="a check that can pass and can fail, the same way every time",
                    mend="correct the check's declaration",
                )
            seen.add(check.id)
        asks = any(isinstance(rule, JudgeCheck) for check in self._checks for rule in rules_in(check.rule))
        prompt = {"prompt": PROMPT_VERSION} if asks else {}
        self._digest = digest({"judge": JUDGE_VERSION, "checks": self._checks, **prompt})

    @property
    def checks(self) -> tuple[CheckSpec, ...]:
        """The declared checks."""
        return self._checks

    @property
    def waits(self) -> bool:
        """Whether judging waits for sandboxes or models, so that an event loop should leave it to a thread."""
        rules = (rule for check in self._checks for rule in rules_in(check.rule))
        return any(isinstance(rule, JudgeCheck | CommandCheck) for rule in rules)

    @property
    def digest(self) -> str:
        """Digest of the checks and of the version of the code that judges them."""
        return self._digest

    def verify(self, evidence: Evidence) -> Verdict:
        """Judge all checks.

        Raises:
            InfrastructureError: one of them cannot be judged; there is no default verdict. Nor is there one on an
                attempt that was shown an invented answer.
        """
        invented = next((event for event in evidence.events if event.result.served_by == IMITATED), None)
        if invented is not None:
            raise InfrastructureError(
                f"a language model invented the answer to {invented.call.name}",
                where=f"call {invented.call.id}",
                expected="answers that were executed, inferred or recorded",
                mend="build the environment without --imitate for training and measuring",
            )
        with States(evidence, self._resources) as states:
            judged = tuple(self._one(check, states) for check in self._checks)
        return Verdict(checks=judged, verifier_digest=self._digest)

    def _one(self, spec: CheckSpec, states: States) -> Check:
        try:
            passed, found, votes = judge(spec.rule, states)
        except FlightschoolError as error:  # a broken query, a key that is not in the environment, a lost sandbox
            where = f"check {spec.id}" + (f": {error.where}" if error.where else "")
            raise InfrastructureError(error.what, where=where, expected=error.expected, mend=error.mend) from error
        except Exception as error:  # the judge's own fault must never become a 0 or a 1
            raise InfrastructureError(
                f"judging raised {type(error).__name__}: {error}",
                where=f"check {spec.id}",
                expected="a verdict",
                mend="mend the check or the verifier; the attempt is judged again from its stored evidence",
            ) from error
        return Check(
            id=spec.id,
            kind=spec.kind,
            weight=spec.weight,
            passed=passed,
            evidence=found,
            author=spec.author,
            votes=votes,
        )


def _problem(check: CheckSpec) -> str:
    """Why a check is not usable, or an empty string."""
    if not 0.0 < check.weight < math.inf:
        return f"weight {check.weight} is not a positive number"
    return problem_of(check.rule)


def rules_in(rule: CheckRule) -> Iterator[CheckRule]:
    """A rule with those inside it."""
    yield rule
    inner: list[CheckRule | None] = []
    if isinstance(rule, PanelCheck):
        inner = [member.rule for member in rule.members]
    elif isinstance(rule, MilestoneCheck):
        inner = [milestone.state for milestone in rule.milestones]
    elif isinstance(rule, MinefieldCheck):
        inner = [*(mine.state for mine in rule.mines), *(milestone.state for milestone in rule.milestones)]
    for one in inner:
        if one is not None:
            yield from rules_in(one)


def tools_in(rule: CheckRule) -> Iterator[str]:
    """Names of the tools that a rule, and those inside it, count calls of."""
    for one in rules_in(rule):
        if isinstance(one, CallCheck):
            yield one.tool
            yield from [one.before] if one.before is not None else []
        elif isinstance(one, MilestoneCheck | MinefieldCheck):
            yield from (milestone.tool for milestone in one.milestones if milestone.tool)
        if isinstance(one, MinefieldCheck):
            yield from (mine.tool for mine in one.mines if mine.tool)
