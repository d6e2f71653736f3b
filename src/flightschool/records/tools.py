"""Tools, calls of them and what came back: what passes through the tool boundary."""

from __future__ import annotations

from enum import StrEnum

from flightschool.records.base import Json, Record


class Effect(StrEnum):
    """What a tool does to the world; permissions and caching hang on it."""

    READ = "read"  # changes nothing
    WRITE = "write"  # changes state that can be changed back
    SEND = "send"  # reaches a person or a system outside; cannot be taken back
    DESTROY = "destroy"  # removes what cannot be restored


class Latency(Record, frozen=True, kw_only=True):
    """Latency distribution of a tool on the virtual clock: lognormal, ``median_ms`` · exp(``sigma`` · z)."""

    median_ms: float = 100.0
    sigma: float = 0.0


class ToolSpec(Record, frozen=True, kw_only=True):
    """A tool as the policy sees it, with what the boundary must know about it."""

    name: str
    description: str
    parameters: dict[str, Json]
    """JSON Schema of the arguments: an object schema."""
    effect: Effect = Effect.READ
    idempotent: bool = False
    """Whether calling twice with equal arguments leaves the same state as calling once."""
    latency: Latency = Latency()


class ToolCall(Record, frozen=True, kw_only=True):
    """One call that the policy asks for."""

    id: str
    name: str
    arguments: dict[str, Json]


class Fault(Record, frozen=True, kw_only=True):
    """Ground truth of an injected fault; the policy never sees this record."""

    kind: str
    """For instance ``timeout_before_write`` or ``stale_read``."""
    family: str
    """Family of faults, so that whole families can be held out."""
    detail: str = ""


class Permission(Record, frozen=True, kw_only=True):
    """The boundary's decision about one call."""

    allowed: bool
    rule: str
    """Name of the rule that decided; ``default`` when none matched."""
    reason: str = ""


class ToolResult(Record, frozen=True, kw_only=True):
    """What came back from one call. ``content`` and ``is_error`` are all that the policy sees."""

    call_id: str
    content: str
    is_error: bool = False
    served_by: str = "code"
    """Rung of the ladder that answered: ``code``, ``recording``, ``cache``, ``fault``, ``boundary`` …"""
    fault: Fault | None = None
    permission: Permission | None = None


class ToolEvent(Record, frozen=True, kw_only=True):
    """A call with its result as the boundary logged it."""

    index: int
    """Position in the attempt, counted from 0."""
    turn: int
    """Assistant turn that asked for it; calls of one turn ran in parallel."""
    call: ToolCall
    result: ToolResult
    effect: Effect
    start_ms: float
    """Virtual clock at the start of the call."""
    end_ms: float
    """Virtual clock at its end."""
