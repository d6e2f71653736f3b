"""What a trace is, whatever its format: episodes of messages and calls, as they were recorded.

Importers fill these records and nothing else; everything after them (inventory, environments, summaries) reads them.
Text that came from a tool is data: it is kept as it was, and nothing in it is ever obeyed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from flightschool.digest import canonical_json
from flightschool.records import Json, Message, Record, ToolCall, ToolSpec

__all__ = [
    "RecordedCall",
    "RecordedEpisode",
    "RecordedTurn",
    "SetDigest",
    "TaskHint",
    "TraceSet",
    "Usage",
    "episode_json",
    "total_usage",
]


class Usage(Record, frozen=True, kw_only=True):
    """Tokens and money; None where the trace does not say."""

    input_tokens: int | None = None
    """Tokens of the prompt, those from a cache included."""
    output_tokens: int | None = None
    cached_tokens: int | None = None
    """Of ``input_tokens``, those read from a cache."""
    cost_usd: float | None = None


class RecordedTurn(Record, frozen=True, kw_only=True):
    """What a trace says about one assistant message beside its words."""

    turn: int
    """The assistant message, counted from 0."""
    model: str = ""
    reasoning: str = ""
    """Thought that the model wrote apart from the message. Never shown to tools or users, hence no message."""
    start_ms: float | None = None
    """Milliseconds since the first recorded instant of the episode."""
    end_ms: float | None = None
    usage: Usage | None = None


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
    turns: tuple[RecordedTurn, ...] = ()
    """Models, thoughts, times and costs, for the assistant messages that have any."""
    labels: dict[str, Json] = msgspec.field(default_factory=dict)
    """Every named score or judgement of the trace; ``success`` and ``reward`` are read from one of them."""
    started_at: str = ""
    """First recorded instant, ISO 8601 in UTC; empty when the trace has no clock."""
    usage: Usage | None = None
    """Of the whole episode, where the trace says so; else see ``total_usage``."""
    children: tuple[RecordedEpisode, ...] = ()
    """Conversations that belong to this one: of sub-agents, and branches that were left. No task is made of them."""
    relation: str = ""
    """Of a child: ``sub-agent`` or ``branch``."""
    parent_call: str = ""
    """Of a child: id of the parent's call that started it, if known."""

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
        digest = SetDigest()
        for episode in self.episodes:
            digest.add(episode_json(episode))
        return digest.value(self.format)


class SetDigest:
    """Digest of a trace set, taken one episode after the other; equal to ``TraceSet.digest``."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256(b'{"episodes":[')
        self._first = True

    def add(self, episode: bytes) -> None:
        """The next episode, as ``episode_json`` gives it."""
        self._hash.update(episode if self._first else b"," + episode)
        self._first = False

    def value(self, format: str) -> str:  # noqa: A002  the word that users type
        """The digest, once all episodes are in."""
        whole = self._hash.copy()
        whole.update(b'],"format":' + canonical_json(format) + b"}")
        return "sha256:" + whole.hexdigest()


_LATER = ("turns", "labels", "started_at", "usage", "children", "relation", "parent_call")
"""Fields that the first version of the record did not have; all of them are empty by default."""


def episode_json(episode: RecordedEpisode) -> bytes:
    """Canonical JSON of an episode. Later fields at their defaults are left out, so that digests outlive them."""
    plain = msgspec.to_builtins(episode)
    _without_defaults(plain)
    return canonical_json(plain)


def _without_defaults(plain: dict[str, Json]) -> None:
    for key in _LATER:
        if not plain[key]:
            del plain[key]
    for child in plain.get("children", ()):
        _without_defaults(child)


def total_usage(episode: RecordedEpisode) -> Usage | None:
    """Usage of an episode: as stated, else the sum over its turns; without children. None if nothing is known."""
    if episode.usage is not None:
        return episode.usage
    known = [turn.usage for turn in episode.turns if turn.usage is not None]
    if not known:
        return None
    return Usage(
        input_tokens=_sum(usage.input_tokens for usage in known),
        output_tokens=_sum(usage.output_tokens for usage in known),
        cached_tokens=_sum(usage.cached_tokens for usage in known),
        cost_usd=_sum_of_floats(usage.cost_usd for usage in known),
    )


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _sum_of_floats(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
