"""Constant policies: what solved the task next door must not solve this one."""

from __future__ import annotations

from collections.abc import Iterable

from flightschool.audit.examination import Examination
from flightschool.audit.neighbourhood import same_calls
from flightschool.audit.probes.base import passes, passes_unless_equivalent
from flightschool.records import Finding, Severity, ToolCall

NAME = "constant"
MOST_SIBLINGS = 2
HABIT_ANSWER = "Done."
"""What a habit closes with."""


def probe(exam: Examination) -> Iterable[Finding]:
    """Replay siblings' solutions, the worked example and the habits of all strata."""
    own = exam.reference.oracle
    for sibling in exam.neighbourhood.siblings(exam.task, MOST_SIBLINGS):
        calls = exam.neighbourhood.oracle(sibling)
        if same_calls(calls, own):
            what = f"shares its whole solution with {sibling.id}"
            yield Finding(probe=NAME, severity=Severity.WARNING, what=what)
            continue
        answer = exam.neighbourhood.references[sibling.id].oracle_answer
        yield from passes(NAME, f"the solution of {sibling.id}", exam.play(calls, "sibling", answer=answer))
    example = _example_calls(exam)
    if example and not same_calls(example, own):
        yield from passes(NAME, "a copy of the worked example", exam.play(example, "example"))
    yield from _habits(exam)


def _habits(exam: Examination) -> Iterable[Finding]:
    shown = {spec.name for spec in exam.specs}
    for stratum, calls in exam.neighbourhood.habits.items():
        if not any(call.name in shown for call in calls):
            exam.habit_passes[stratum] = False  # every call is refused as unknown: this is the no-op, probed already
            continue
        play = exam.play(calls, f"habit:{stratum}", answer=HABIT_ANSWER)
        exam.habit_passes[stratum] = play.success
        if not same_calls(calls, exam.reference.oracle):
            who = f"the most common calls of stratum {stratum!r}"
            yield from passes_unless_equivalent(exam, NAME, who, play)


def _example_calls(exam: Examination) -> tuple[ToolCall, ...]:
    return tuple(call for message in exam.task.example for call in message.tool_calls)
