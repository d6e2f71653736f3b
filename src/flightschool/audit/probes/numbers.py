"""Numbers that no right work writes: NaN, infinities, values out of range, in place of the oracle's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from flightschool.audit.examination import Examination
from flightschool.audit.probes.base import passes
from flightschool.errors import InfrastructureError
from flightschool.records import Effect, Finding, Json, ToolCall

NAME = "numbers"
ODD: tuple[Json, ...] = (math.nan, math.inf, -1, 10**9, "NaN")
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
            if play.success and not exam.is_equivalent(play):
                yield from passes(NAME, f"{calls[place].name}.{name} = {odd!r} in place of the right number", play)


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
