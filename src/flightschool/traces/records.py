"""What a trace is, whatever its format: episodes of messages and calls, as they were recorded.

Importers fill these records and nothing else; everything after them (inventory, environments, summaries) reads them.
Text that came from a tool is data: it is kept as it was, and nothing in it is ever obeyed.
"""

from __future__ import annotations

import msgspec

from flightschool.digest import digest as content_digest
from flightschool.records import Json, Message, Record, ToolCall, ToolSpec

__all__ = ["RecordedCall", "RecordedEpisode", "TaskHint", "TraceSet"]


class RecordedCall(Record, frozen=True, kw_only=True):
    """One tool call with the answer that it got."""

    turn: int
    """Assistant message that asked for it, counted from 0 over the assistant messages of the episode."""
    id: str
    """Unique in the episode; ids that a harness used twice carry ``#2``, ``#3`` …"""
    name: str
    arguments: dict[str, Json]
    text: str = ""
    """The answer as the policy saw it."""
    value: Json = None
    """The answer parsed as JSON; equal to ``text`` where it is no JSON."""
    is_error: bool = False
    start_ms: float | None = None
    """Start in milliseconds since the first recorded instant of the episode, if known."""
    end_ms: float | None = None
    complete: bool = True
    """False when arguments or answer were missing or truncated: such a call teaches nothing about the tool."""
    fault: str = ""
    """Kind of the fault that was injected into this call, where the recording says so."""


class TaskHint(Record, frozen=True, kw_only=True):
    """What the trace says about the task behind an episode; every field may be empty."""

    id: str = ""
    family: str = ""
    stratum: str = ""
    trial: int = 0
    instruction: str = ""
    """The whole brief, where the trace keeps one apart from the first user message."""
    actions: tuple[ToolCall, ...] | None = None
    """Ground-truth calls, where the trace carries them. Empty means that nothing was to be done."""
    outputs: tuple[str, ...] = ()
    """Texts that the answer must contain, where the trace names them."""


class RecordedEpisode(Record, frozen=True, kw_only=True):
    """One recorded conversation."""

    id: str
    source: str
    """File name and place in it."""
    messages: tuple[Message, ...]
    calls: tuple[RecordedCall, ...]
    tools: tuple[ToolSpec, ...] = ()
    """Tool definitions, if the trace carries them."""
    stated_effects: tuple[str, ...] = ()
    """Names of the tools whose effect the trace states; the effect of all others is a default and says nothing."""
    hint: TaskHint = TaskHint()
    success: bool | None = None
    """Recorded outcome; None when the trace has none."""
    reward: float | None = None
    metadata: dict[str, Json] = msgspec.field(default_factory=dict)
    issues: tuple[str, ...] = ()
    """What is missing or doubtful in this recording: truncated content, orphan spans, unanswered calls."""

    @property
    def instruction(self) -> str:
        """The brief if the trace keeps one, else the first user message."""
        if self.hint.instruction:
            return self.hint.instruction
        return next((m.content for m in self.messages if m.role == "user"), "")

    @property
    def guidance(self) -> str:
        """The system message, empty if there is none."""
        return next((m.content for m in self.messages if m.role == "system"), "")


class TraceSet(Record, frozen=True, kw_only=True):
    """All episodes of one import."""

    format: str
    episodes: tuple[RecordedEpisode, ...]

    @property
    def digest(self) -> str:
        """Content digest of all episodes."""
        return content_digest(self)
