"""The verifier of declared checks."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from flightschool.digest import digest
from flightschool.errors import InfrastructureError, InputError
from flightschool.records import AnswerCheck, CallCheck, Check, CheckSpec, Evidence, SqlCheck, Verdict
from flightschool.verification.rules import judge
from flightschool.verification.states import States

__all__ = ["JUDGE_VERSION", "CheckVerifier"]

JUDGE_VERSION = "1"
"""Raised whenever the meaning of a rule changes; part of every verifier's digest."""

_CLOCK = re.compile(r"'now'|\bcurrent_(?:timestamp|date|time)\b|\brandom(?:blob)?\s*\(", re.IGNORECASE)


class CheckVerifier:
    """Judges evidence by checks that are data (``protocols.Verifier``). Stateless and safe to share.

    Args:
        checks: the declared checks, ids distinct.

    Raises:
        InputError: a check could never fail, could never pass the same way twice, or has no usable weight.
    """

    def __init__(self, checks: Sequence[CheckSpec]) -> None:
        self._checks = tuple(checks)
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
        self._digest = digest({"judge": JUDGE_VERSION, "checks": self._checks})

    @property
    def checks(self) -> tuple[CheckSpec, ...]:
        """The declared checks."""
        return self._checks

    @property
    def digest(self) -> str:
        """Digest of the checks and of the version of the code that judges them."""
        return self._digest

    def verify(self, evidence: Evidence) -> Verdict:
        """Judge all checks.

        Raises:
            InfrastructureError: one of them cannot be judged; there is no default verdict.
        """
        with States(evidence) as states:
            judged = tuple(self._one(check, states) for check in self._checks)
        return Verdict(checks=judged, verifier_digest=self._digest)

    def _one(self, spec: CheckSpec, states: States) -> Check:
        try:
            passed, found = judge(spec.rule, states)
        except InfrastructureError:
            raise
        except Exception as error:  # the judge's own fault must never become a 0 or a 1
            raise InfrastructureError(
                f"judging raised {type(error).__name__}: {error}",
                where=f"check {spec.id}",
                expected="a verdict",
                mend="mend the check or the verifier; the attempt is judged again from its stored evidence",
            ) from error
        return Check(id=spec.id, kind=spec.kind, weight=spec.weight, passed=passed, evidence=found, author=spec.author)


def _problem(check: CheckSpec) -> str:
    """Why a check is not usable, or an empty string."""
    if not 0.0 < check.weight < math.inf:
        return f"weight {check.weight} is not a positive number"
    rule = check.rule
    if isinstance(rule, SqlCheck):
        return _sql_problem(rule)
    if isinstance(rule, CallCheck):
        if rule.least <= 0 and rule.most is None:
            return "any number of calls would pass"
        if rule.most is not None and rule.most < max(rule.least, 0):
            return f"no number of calls is at least {rule.least} and at most {rule.most}"
    if isinstance(rule, AnswerCheck) and not all(text.strip() for text in rule.contains or ("",)):
        return "an empty text is in every answer"
    return ""


def _sql_problem(rule: SqlCheck) -> str:
    match = _CLOCK.search(rule.query)
    if match is not None:
        return f"the query depends on {match.group()!r}, which differs from run to run"
    for row in rule.expected:
        for value in row:
            if isinstance(value, dict | list | tuple):
                return f"a query cannot return {value!r}"
    return ""
