"""Imperfect operators: how people at the desk really work, as scripts.

They make the shipped traces. Each is a function from a task to the assistant messages of one episode: it knows
the right acts and departs from them in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from flightschool.environments.desk.environment import DeskEnvironment
from flightschool.records import Effect, Json, Message, Task, ToolCall

__all__ = ["OPERATORS", "Operator"]

Operator = Callable[[DeskEnvironment, Task], list[Message]]


def careful(desk: DeskEnvironment, task: Task) -> list[Message]:
    """Looks up, then acts, then says so."""
    return _turns(desk.reference(task.id).oracle)


def hasty(desk: DeskEnvironment, task: Task) -> list[Message]:
    """Skips the look-up and writes what it remembers from another day."""
    acts = [call for call in desk.reference(task.id).oracle if not _reads(desk, call)]
    return _turns([_misremembered(call, task) for call in acts])


def mistaken(desk: DeskEnvironment, task: Task) -> list[Message]:
    """Looks up, then writes another value than the one it read."""
    oracle = desk.reference(task.id).oracle
    return _turns([*oracle[:-1], _misremembered(oracle[-1], task)])


def forgetful(desk: DeskEnvironment, task: Task) -> list[Message]:
    """Stops before the last act and believes it done."""
    return _turns(desk.reference(task.id).oracle[:-1])


def clumsy(desk: DeskEnvironment, task: Task) -> list[Message]:
    """First names an argument wrongly, reads the error, then does it right."""
    oracle = desk.reference(task.id).oracle
    slip = msgspec.structs.replace(oracle[0], arguments={"id": next(iter(oracle[0].arguments.values()))})
    return _turns([slip, *oracle])


def bold(desk: DeskEnvironment, task: Task) -> list[Message]:
    """Acts where it should decline, and without the approval that it should ask for; else works twice."""
    reference = desk.reference(task.id)
    calls = list(reference.oracle)
    if reference.twin and reference.abstain:
        calls = _transposed(desk.reference(reference.twin).oracle, desk.task(reference.twin), task)
    asked = {"request_approval", "get_approval"}
    acts = [call for call in calls if desk.own_name(call.name) not in asked]
    return _turns(acts if len(acts) < len(calls) else [*calls, calls[-1]])


OPERATORS: dict[str, tuple[Operator, int]] = {
    "careful": (careful, 8),
    "hasty": (hasty, 3),
    "mistaken": (mistaken, 2),
    "forgetful": (forgetful, 2),
    "clumsy": (clumsy, 3),
    "bold": (bold, 2),
}
"""Operator → its script and how many of twenty shifts it works."""


def _turns(calls: Sequence[ToolCall]) -> list[Message]:
    numbered = [msgspec.structs.replace(call, id=f"call_{number}_0") for number, call in enumerate(calls)]
    turns = [Message(role="assistant", tool_calls=(call,)) for call in numbered]
    return [*turns, Message(role="assistant", content="Done.")]


def _reads(desk: DeskEnvironment, call: ToolCall) -> bool:
    return any(tool.name == call.name and tool.effect is Effect.READ for tool in desk.tools())


def _misremembered(call: ToolCall, task: Task) -> ToolCall:
    """The call with the last argument that the instruction does not tell replaced by that of the worked example."""
    remembered = {
        name: value
        for message in task.example
        for shown in message.tool_calls
        if shown.name == call.name
        for name, value in shown.arguments.items()
    }
    untold = [name for name, value in call.arguments.items() if str(value) not in _words(task)]
    wrong: dict[str, Json] = {name: remembered[name] for name in untold[-1:] if name in remembered}
    return msgspec.structs.replace(call, arguments=call.arguments | wrong)


def _transposed(calls: Sequence[ToolCall], source: Task, target: Task) -> list[ToolCall]:
    """Calls that solve ``source``, with the words of its instruction exchanged for those of ``target``'s."""
    words = zip(_words(source), _words(target), strict=True)
    exchange = {old: new for old, new in words if old != new}
    return [
        msgspec.structs.replace(call, arguments={k: exchange.get(str(v), v) for k, v in call.arguments.items()})
        for call in calls
    ]


def _words(task: Task) -> list[str]:
    return [word.strip(".,;:") for word in task.instruction.split()]
