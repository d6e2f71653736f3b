"""The same work gets the same verdict, always: judged again, and done again under other seeds."""

from __future__ import annotations

from collections.abc import Iterable

from flightschool.audit.examination import Examination, Play
from flightschool.audit.probes.base import barring
from flightschool.records import Finding
from flightschool.verification import CheckVerifier

NAME = "flake"
NUM_JUDGEMENTS = 3


def probe(exam: Examination) -> Iterable[Finding]:
    """Judge the oracle and a mutant repeatedly; run the oracle again under other seeds."""
    verifier = CheckVerifier(exam.reference.checks)
    mutant = exam.refused_mutant
    for who, play in (("the oracle", exam.oracle), ("a mutant", mutant)):
        if play is not None:
            yield from _judged_again(verifier, who, play)
    for again in exam.reruns:
        if again.attempt.end_state != exam.oracle.attempt.end_state:
            yield barring(
                NAME, "the same calls end in another state", f"seeds {exam.seed} and {again.attempt.seed}", again
            )
        elif again.passed != exam.oracle.passed:
            yield barring(NAME, "the same calls get another verdict", again.shortfall, again)


def _judged_again(verifier: CheckVerifier, who: str, play: Play) -> Iterable[Finding]:
    for _ in range(NUM_JUDGEMENTS):
        verdict = verifier.verify(play.evidence)
        passed = tuple((check.id, check.passed) for check in verdict.checks)
        if passed != play.passed:
            differing = [a[0] for a, b in zip(passed, play.passed, strict=False) if a != b]
            yield barring(NAME, f"{who} is judged differently on the same evidence", ", ".join(differing))
            return
