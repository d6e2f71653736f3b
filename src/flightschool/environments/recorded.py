"""A world that answers from recordings, and says so when it cannot.

Its state is the list of successful writes so far; an answer is given only for exactly the state in which it was
recorded. Anything else is the typed error ``{"error": "not recorded", …}``: no nearest match, no imitation, since a
reward built on an invented answer is worth nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from flightschool.digest import canonical_json
from flightschool.environments.recordings import Recordings, extend_history
from flightschool.protocols import WorldReply
from flightschool.records import Json, ToolCall, ToolSpec

__all__ = ["DECLINE", "NOT_RECORDED", "RecordedWorld", "decline_reply"]

NOT_RECORDED = "not recorded"
"""Value of ``error`` in the answer to a call that no recording covers."""

DECLINE = ToolSpec(
    name="decline",
    description="End the task without doing it, because the rules forbid it. Read what shows this first.",
    parameters={
        "type": "object",
        "properties": {"reason": {"type": "string", "description": "the rule and the fact that forbid it"}},
        "required": ["reason"],
    },
)
"""The explicit act of abstaining, added to environments whose traces have none. It changes nothing in the world."""


class RecordedWorld:
    """One attempt's state over shared recordings (``protocols.World``).

    Args:
        recordings: all answers of the environment; shared, never changed.
        scope: initial state of the attempt's task.
        writes: names of the tools that change state.
        declines: whether this world answers ``decline`` itself.
    """

    def __init__(self, recordings: Recordings, scope: str, writes: Collection[str], *, declines: bool = False) -> None:
        self._recordings = recordings
        self._scope = scope
        self._writes = writes
        self._declines = declines
        self._done: tuple[dict[str, Json], ...] = ()
        self._history = ""

    def execute(self, call: ToolCall) -> WorldReply:
        """The recorded answer, or the typed error."""
        if self._declines and call.name == DECLINE.name:
            return decline_reply(call)
        found = self._recordings.find(self._scope, self._history, call.name, call.arguments)
        if found is None:
            value = {"error": NOT_RECORDED, "tool": call.name, "writes_before": len(self._done)}
            return WorldReply(value=value, is_error=True, served_by="none")
        if call.name in self._writes and not found.is_error:
            self._done = (*self._done, {"name": call.name, "arguments": call.arguments})
            self._history = extend_history(self._history, call.name, call.arguments)
        return WorldReply(value=found.value, is_error=found.is_error, served_by="recording")

    def snapshot(self) -> bytes:
        """``{"scope": …, "writes": [{"name", "arguments"}]}`` in canonical JSON."""
        return canonical_json({"scope": self._scope, "writes": self._done})

    def fork(self) -> RecordedWorld:
        """An independent copy; recordings are shared."""
        copy = RecordedWorld(self._recordings, self._scope, self._writes, declines=self._declines)
        copy._done, copy._history = self._done, self._history
        return copy

    def close(self) -> None:
        """Nothing to let go: the recordings belong to the environment."""


def decline_reply(call: ToolCall) -> WorldReply:
    """Answer of the added ``decline`` tool: it succeeds if a reason is given."""
    reason = call.arguments.get("reason")
    if not isinstance(reason, str) or not reason.strip():
        return WorldReply(value={"error": "give a reason"}, is_error=True)
    return WorldReply(value={"declined": True, "reason": reason})
