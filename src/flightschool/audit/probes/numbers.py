"""Numbers that no right work writes: values out of range and words for no number at all, in place of the oracle's.

A float that is NaN or infinite is not tried: JSON has none, so the boundary refuses such a call, whoever sends it, and
no tool ever sees it. What reaches a tool that turns text into numbers is the word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from flightschool.audit.examination import Examination, Play
from flightschool.audit.probes.base import passes
from flightschool.errors import InfrastructureError
from flightschool.records import Effect, Finding, Json, ToolCall

NAME = "numbers"
ODD: tuple[Json, ...] = (-1, 10**9, "NaN", "Infinity")
MOST_PLACES = 1
"""Arguments of one oracle that are tried."""


def probe(exam: Examination) -> Iterable[Finding]:
    """Play the oracle with one number replaced; whatever does the same work is no other work."""
    if not exam.oracle.success:
        raise InfrastructureError("variants of a broken oracle prove nothing", mend="mend the oracle first")
    calls = exam.reference.oracle
    for place, name in list(_numbers(exam))[:MOST_PLACES]:
        for odd in ODD:
            wrong = msgspec.structs.replace(calls[place], arguments={**calls[place].arguments, name: odd})
            play = exam.play((*calls[:place], wrong, *calls[place + 1 :]), f"number: {calls[place].name}.{name}={odd}")
            if play.success and _arrived(play, wrong) and not exam.is_equivalent(play):
                yield from passes(NAME, f"{calls[place].name}.{name} = {odd!r} in place of the right number", play)


def _arrived(play: Play, call: ToolCall) -> bool:
    """Whether the world took the call: one that was refused shows nothing of its number."""
    sent = (call.name, call.arguments)
    return any((e.call.name, e.call.arguments) == sent and not e.result.is_error for e in play.attempt.events)


def _numbers(exam: Examination) -> Iterator[tuple[int, str]]:
    """(call, parameter) of the numbers that the oracle writes."""
    for place, call in enumerate(exam.reference.oracle):
        if _changes(exam, call):
            for name, value in call.arguments.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    yield place, name


def _changes(exam: Examination, call: ToolCall) -> bool:
    spec = exam.neighbourhood.specs.get(call.name)
    return spec is not None and spec.effect is not Effect.READ
