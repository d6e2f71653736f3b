"""Right work done a little differently must still succeed, otherwise the checks refuse correct work."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from flightschool.audit.examination import Examination, Play
from flightschool.audit.probes.base import barring
from flightschool.audit.values import parameter_schema
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
    spaced = "\r\n" + answer.replace("\n", "\r\n") + "  \r\n\t"
    yield from _refused("other line ends and white space around the answer", exam.play(oracle, "spaced", answer=spaced))
    turned = [msgspec.structs.replace(call, arguments=dict(reversed(call.arguments.items()))) for call in oracle]
    yield from _refused("arguments in another order", exam.play(turned, "keys-reversed"))
    as_floats = [_as_floats(exam, call) for call in oracle]
    if as_floats != list(oracle):
        yield from _refused("numbers with a decimal point", exam.play(as_floats, "floats"))
    extra = _harmless(exam)
    if extra is not None:
        yield from _refused(f"a look at something else first ({extra.name})", exam.play((extra, *oracle), "extra-read"))


def _as_floats(exam: Examination, call: ToolCall) -> ToolCall:
    """Whole numbers as 5.0 where the schema asks for a number: JSON knows one sort of numbers."""
    spec = exam.neighbourhood.specs.get(call.name)
    if spec is None:
        return call
    changed = {
        name: float(value)
        for name, value in call.arguments.items()
        if isinstance(value, int)
        and not isinstance(value, bool)
        and parameter_schema(spec, name).get("type") == "number"
    }
    return msgspec.structs.replace(call, arguments={**call.arguments, **changed}) if changed else call


def _harmless(exam: Examination) -> ToolCall | None:
    """A read that a neighbour's solution makes and this one does not, where turns are left for it."""
    if len(exam.reference.oracle) + 2 > exam.task.max_turns:
        return None
    own = [(call.name, call.arguments) for call in exam.reference.oracle]
    shown = {spec.name for spec in exam.specs}
    for other in exam.neighbourhood.siblings(exam.task, 3):
        for call in exam.neighbourhood.oracle(other):
            spec = exam.neighbourhood.specs.get(call.name)
            reads = spec is not None and spec.effect is Effect.READ and call.name in shown
            if reads and (call.name, call.arguments) not in own:
                return msgspec.structs.replace(call, id=f"{call.id}-extra")
    return None


def _doubled(exam: Examination, call: ToolCall) -> tuple[ToolCall, ...]:
    spec = exam.neighbourhood.specs.get(call.name)
    if spec is None or spec.effect is not Effect.READ:
        return (call,)
    return (call, msgspec.structs.replace(call, id=f"{call.id}-again"))


def _refused(who: str, play: Play) -> Iterable[Finding]:
    if not play.success:
        yield barring(NAME, f"right work is refused: {who}", play.shortfall, play)
