"""Nothing that has to be read may stand in the agent's view before it reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flightschool.audit.examination import Examination
from flightschool.audit.probes.base import barring
from flightschool.audit.trajectories.facts import SHORTEST_SEALED, sealed_texts
from flightschool.audit.view import agent_view, leaks, secrets_of
from flightschool.records import Finding, Severity

NAME = "leak"


def probe(exam: Examination) -> Iterable[Finding]:
    """Look for each secret in each place of the view; a coincidence in a shared text is told, but bars nothing."""
    view = agent_view(exam.task, exam.specs)
    secrets = secrets_of(exam.task, exam.reference, exam.oracle.attempt.events, exam.neighbourhood.specs)
    marks = [("the end state's digest", exam.oracle.attempt.end_state)]
    for where, text, event in _sealed_in_results(exam):
        yield barring(NAME, f"a result of {event} holds text of the sealed checks ({where})", text[:200], exam.oracle)
    for place, secret in leaks(view, [*secrets, *marks]):
        where, value = secret
        what = f"{value!r}, needed by {where}, stands in the agent's view"
        if exam.neighbourhood.texts.tells(view[place], secret):
            yield barring(NAME, what, f"place: {place}")
        else:
            evidence = f"place: {place}, shared with tasks of other answers"
            yield Finding(probe=NAME, severity=Severity.WARNING, what=what, evidence=evidence)


def _sealed_in_results(exam: Examination) -> Iterator[tuple[str, str, str]]:
    """(check, text, tool) where a tool's answer gives away what only the grader holds: queries, criteria …"""
    for check in exam.reference.checks:
        for text in sealed_texts(check.rule):
            for event in exam.oracle.attempt.events:
                if len(text) >= SHORTEST_SEALED and text in event.result.content:
                    yield check.id, text, event.call.name
