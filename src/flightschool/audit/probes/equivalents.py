"""Right work done a little differently must still succeed, otherwise the checks refuse correct work."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from flightschool.audit.examination import Examination, Play
from flightschool.audit.probes.base import barring
from flightschool.errors import InfrastructureError
from flightschool.records import Effect, Finding, Message, ToolCall

NAME = "equivalents"


def probe(exam: Examination) -> Iterable[Finding]:
    """Read everything twice; word the closing message differently."""
    if not exam.oracle.success:
        raise InfrastructureError("variants of a broken oracle prove nothing", mend="mend the oracle first")
    oracle, answer = exam.reference.oracle, exam.reference.oracle_answer
    twice = [Message(role="assistant", tool_calls=_doubled(exam, call)) for call in oracle]
    closing = Message(role="assistant", content=answer)
    yield from _refused("every read done twice", exam.play_turns((*twice, closing), "reads-twice"))
    reworded = f"To sum up: {answer} Anything else?"
    yield from _refused("another closing sentence", exam.play(oracle, "reworded", answer=reworded))


def _doubled(exam: Examination, call: ToolCall) -> tuple[ToolCall, ...]:
    spec = exam.neighbourhood.specs.get(call.name)
    if spec is None or spec.effect is not Effect.READ:
        return (call,)
    return (call, msgspec.structs.replace(call, id=f"{call.id}-again"))


def _refused(who: str, play: Play) -> Iterable[Finding]:
    if not play.success:
        yield barring(NAME, f"right work is refused: {who}", play.shortfall)
