"""A world that answers each call from the best rung that knows it, and says which one did.

| rung | ``served_by`` | an answer |
|---|---|---|
| L0 | ``code`` | by the team's own function, where it has one (``code_world``, if every tool has) |
| L1 | ``inferred`` | by what was inferred of the tool, on the state as it is now |
| L2 | ``recording`` | as recorded, after the same successful writes |
| L3 | ``recording-subset`` | as recorded for other values of arguments that never mattered |
| L4 | ``none`` | the typed error ``not recorded`` |
| L5 | ``imitation`` | invented by a language model; reads only, off by default, never worth a reward |

What was inferred stands above the recordings where it agrees with every one of them, and below where it does not.
Successful writes change the state by whichever rung they were answered, so that later reads see them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from flightschool.digest import canonical_json
from flightschool.environments.coded import ToolFunction, run_function
from flightschool.environments.imitation import Imitator
from flightschool.environments.inferred import Answer, Database, Program, run, take_effect
from flightschool.environments.recorded import DECLINE, NOT_RECORDED, decline_reply
from flightschool.environments.recordings import Recording, extend_history
from flightschool.environments.subsets import SubsetIndex
from flightschool.protocols import WorldReply
from flightschool.records import Json, ToolCall

__all__ = ["RUNGS", "Ladder", "LadderWorld", "find_answer"]

RUNGS = {
    "code": "L0",
    "inferred": "L1",
    "recording": "L2",
    "recording-subset": "L3",
    "none": "L4",
    "imitation": "L5",
}
"""``served_by`` → rung."""


class AnswersOf(Protocol):
    """Recorded answers, looked up by key (``recordings.Recordings``)."""

    def find(self, scope: str, history: str, name: str, arguments: Mapping[str, Json]) -> Recording | None:
        """The recorded answer of exactly this call in exactly this state, or None."""
        ...


class Ladder(msgspec.Struct, frozen=True, kw_only=True):
    """What all worlds of an environment share. Never changed."""

    recordings: AnswersOf
    subsets: SubsetIndex
    programs: Mapping[str, Program]
    writes: frozenset[str]
    """Names of the tools that change state."""
    declines: bool = False
    """Whether worlds answer ``decline`` themselves."""
    imitator: Imitator | None = None
    functions: Mapping[str, ToolFunction] = msgspec.field(default_factory=dict)
    """Tools that code answers; it sees and changes the state that the others look at."""


class LadderWorld:
    """One attempt's state (``protocols.World``).

    Args:
        ladder: what answers.
        scope: name of the initial state.
        database: the state itself; its own.
    """

    def __init__(self, ladder: Ladder, scope: str, database: Database) -> None:
        self._ladder = ladder
        self._scope = scope
        self._database = database
        self._history = ""
        self._unplaced: tuple[dict[str, Json], ...] = ()
        self._num_writes = 0

    @property
    def bounded(self) -> bool:
        """Whether it answers by looking things up, without asking a model: a server may call it in its event loop."""
        return self._ladder.imitator is None and not self._ladder.functions

    def execute(self, call: ToolCall) -> WorldReply:
        """The answer of the best rung that knows one."""
        ladder = self._ladder
        if ladder.declines and call.name == DECLINE.name:
            return decline_reply(call)
        if call.name in ladder.functions:
            return self._executed(call)
        found, served_by = find_answer(ladder, self._scope, self._history, call, self._database)
        if found is None:
            return self._unknown(call)
        if call.name in ladder.writes and not found.is_error:
            self._wrote(call, found.value)
        return WorldReply(value=found.value, is_error=found.is_error, served_by=served_by)

    def _executed(self, call: ToolCall) -> WorldReply:
        """What code answers; what it changed stands in the rows."""
        answer = run_function(self._ladder.functions[call.name], call, self._database)
        if call.name in self._ladder.writes and not answer.is_error:
            self._num_writes += 1
            self._history = extend_history(self._history, call.name, call.arguments)
        return WorldReply(value=answer.value, is_error=answer.is_error, served_by="code")

    def _unknown(self, call: ToolCall) -> WorldReply:
        imitator = self._ladder.imitator
        if imitator is not None and call.name not in self._ladder.writes:
            return WorldReply(value=imitator.imitate(call), served_by="imitation")
        value = {"error": NOT_RECORDED, "tool": call.name, "writes_before": self._num_writes}
        return WorldReply(value=value, is_error=True, served_by="none")

    def _wrote(self, call: ToolCall, value: Json) -> None:
        program = self._ladder.programs.get(call.name)
        self._num_writes += 1
        self._history = extend_history(self._history, call.name, call.arguments)
        if program is not None and (program.puts or program.changes):
            take_effect(program, call.arguments, value, self._database)
        else:
            self._unplaced = (*self._unplaced, {"name": call.name, "arguments": call.arguments})

    def snapshot(self) -> bytes:
        """Table → changed and new rows; ``(scope)``; ``(writes)``: those of which no effect on a table is known."""
        return canonical_json({**self._database.changes(), "(scope)": self._scope, "(writes)": list(self._unplaced)})

    def fork(self) -> LadderWorld:
        """An independent copy; what was recorded and inferred is shared."""
        copy = LadderWorld(self._ladder, self._scope, self._database.fork())
        copy._history, copy._unplaced, copy._num_writes = self._history, self._unplaced, self._num_writes
        return copy

    def close(self) -> None:
        """Nothing to let go: only changed rows are this world's own."""


def find_answer(
    ladder: Ladder, scope: str, history: str, call: ToolCall, database: Database
) -> tuple[Answer | None, str]:
    """The answer of the best rung from L1 to L3 with its name, or (None, "none"). Changes nothing.

    Args:
        ladder: what answers.
        scope: name of the initial state.
        history: digest of the successful writes so far.
        call: what is asked.
        database: the state as it is.
    """
    program = ladder.programs.get(call.name)
    inferred = None if program is None else run(program, call.arguments, database)
    if inferred is not None and program is not None and program.num_explained == program.num_cases:
        return inferred, "inferred"
    recorded = ladder.recordings.find(scope, history, call.name, call.arguments)
    if recorded is not None:
        return _answer(recorded), "recording"
    if inferred is not None:
        return inferred, "inferred"
    alike = ladder.subsets.find(scope, history, call.name, call.arguments)
    return (None, "none") if alike is None else (_answer(alike), "recording-subset")


def _answer(recorded: Recording) -> Answer:
    return Answer(recorded.value, recorded.is_error)
