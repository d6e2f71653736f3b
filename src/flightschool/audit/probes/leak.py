"""Nothing that has to be read may stand in the agent's view before it reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from flightschool.audit.examination import Examination
from flightschool.audit.listing import Pair
from flightschool.audit.neighbourhood import Neighbourhood
from flightschool.audit.probes.base import barring
from flightschool.audit.trajectories.facts import SHORTEST_SEALED, sealed_texts
from flightschool.audit.values import values_in
from flightschool.audit.view import SMALLEST_SECRET_NUMBER, agent_view, leaks, secrets_of
from flightschool.records import Effect, Finding, Severity, Task

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
    read = {str(value) for value in values_in(e for e in exam.oracle.attempt.events if e.effect is Effect.READ)}
    for place, pair in listed(exam.task, view, exam.neighbourhood):
        if pair[1] in read:
            yield barring(NAME, as_told(pair), f"place: {place}")


def listed(task: Task, view: Mapping[str, str], neighbourhood: Neighbourhood) -> Iterator[tuple[str, Pair]]:
    """(place, pair) of small numbers of the task that stand in an answer key; larger ones are secrets of their own."""
    for place, text in view.items():
        for pair in neighbourhood.listed.told(task.id, text) if place != "instruction" else ():
            if abs(float(pair[1])) < SMALLEST_SECRET_NUMBER:
                yield place, pair


def as_told(pair: Pair) -> str:
    """A pair of an answer key in words."""
    return f"{pair[1]} stands beside {pair[0]!r} in the agent's view, in a list with other tasks' answers"


def _sealed_in_results(exam: Examination) -> Iterator[tuple[str, str, str]]:
    """(check, text, tool) where a tool's answer gives away what only the grader holds: queries, criteria …"""
    for check in exam.reference.checks:
        for text in sealed_texts(check.rule):
            for event in exam.oracle.attempt.events:
                if len(text) >= SHORTEST_SEALED and text in event.result.content:
                    yield check.id, text, event.call.name
