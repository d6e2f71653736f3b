"""The faults: each a small class that wraps one call.

``apply`` gets the call as a function, and may run it once or not at all. What it returns is all that the policy sees;
the truth stands in ``ToolResult.fault``. A fault that turns out not to change anything (a stale read of a state that
reads the same, a truncation of a single digit, a time-out after a write that the domain refused) returns the real
result *without* a fault: it did not happen, and the log must not claim it.

All faults here are transient: the same call made again, unstruck, works.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, TypeAlias

import msgspec

from flightschool.protocols import World
from flightschool.records import Effect, Fault, Json, ToolCall, ToolResult, ToolSpec
from flightschool.tools import render_reply

__all__ = ["FAULT_KINDS", "TIMEOUT_MS", "FaultStrike"]

TIMEOUT_MS = 10_000.0
"""Virtual milliseconds that a call waits before it is given up."""
_TIMEOUT_TEXT = f"timed out: no reply within {TIMEOUT_MS / 1000:g} s"
"""The same words whether or not the write happened: only a look at the state can tell."""
_RETRY_AFTER_S = 2
_SPIKE_FACTOR = 20.0
_SPIKE_LEAST_MS = 3_000.0

Struck: TypeAlias = tuple[ToolResult, float]
Run: TypeAlias = Callable[[], ToolResult]

READS = frozenset({Effect.READ})
CHANGES = frozenset({Effect.WRITE, Effect.SEND, Effect.DESTROY})
ALL = READS | CHANGES


class FaultStrike:
    """Base of all faults (``protocols.Strike``).

    Args:
        spec: the tool that is called.
        fraction: a number in [0, 1) drawn for this hit, for faults that have a size.
    """

    kind: ClassVar[str]
    family: ClassVar[str]
    """Faults of one family are held out together."""
    effects: ClassVar[frozenset[Effect]]
    """Effects of the tools that this fault can hit."""
    meaning: ClassVar[str]
    """One line for people."""

    def __init__(self, spec: ToolSpec, fraction: float) -> None:
        self._spec = spec
        self._fraction = fraction

    @property
    def fault(self) -> Fault:
        """Ground truth of this fault."""
        return Fault(kind=self.kind, family=self.family, detail=self._detail())

    def apply(self, run: Run, history: Sequence[World], call: ToolCall) -> Struck:
        """What the policy sees, and extra virtual milliseconds."""
        raise NotImplementedError

    def _detail(self) -> str:
        return ""

    def _error(self, call: ToolCall, text: str) -> ToolResult:
        content = json.dumps({"error": text}, ensure_ascii=False)
        return ToolResult(call_id=call.id, content=content, is_error=True, served_by="fault", fault=self.fault)

    def _altered(self, result: ToolResult, content: str) -> ToolResult:
        return msgspec.structs.replace(result, content=content, served_by="fault", fault=self.fault)


# ------------------------------------------------------------------------------------------------ explicit


class TimeoutBeforeWrite(FaultStrike):
    """The request was lost on its way: nothing happened."""

    kind = "timeout_before_write"
    family = "timeout"
    effects = CHANGES
    meaning = "time-out, and the write did not happen"

    def apply(self, run: Run, history: Sequence[World], call: ToolCall) -> Struck:  # noqa: ARG002
        return self._error(call, _TIMEOUT_TEXT), TIMEOUT_MS


class TimeoutAfterWrite(FaultStrike):
    """The reply was lost on its way back: the write happened, and a blind retry does it twice."""

    kind = "timeout_after_write"
    family = "timeout"
    effects = CHANGES
    meaning = "time-out, but the write did happen"

    def apply(self, run: Run, history: Sequence[World], call: ToolCall) -> Struck:  # noqa: ARG002
        result = run()
        if result.is_error:
            return result, 0.0  # the domain refused the write: nothing happened that could be hidden
        return self._error(call, _TIMEOUT_TEXT), TIMEOUT_MS


class TimeoutOfRead(FaultStrike):
    """A read that got no reply."""

    kind = "timeout_of_read"
    family = "timeout"
    effects = READS
    meaning = "time-out of a read"

    def apply(self, run: Run, history: Sequence[World], call: ToolCall) -> Struck:  # noqa: ARG002
        return self._error(call, _TIMEOUT_TEXT), TIMEOUT_MS


class RateLimited(FaultStrike):
    """429: the call was refused, unexecuted, and may be made again later."""

    kind = "rate_limited"
    family = "throttling"
    effects = ALL
    meaning = "429 with retry-after; nothing happened"

    def apply(self, run: Run, history: Sequence[World], call: ToolCall) -> Struck:  # noqa: ARG002
        return self._error(call, f"429 too many requests; retry after {_RETRY_AFTER_S} s"), _RETRY_AFTER_S * 1000.0


class ServerError(FaultStrike):
    """503: the service is briefly away; nothing happened."""

    kind = "server_error"
    family = "outage"
    effects = ALL
    meaning = "503; nothing happened"

    def apply(self, run: Run, history: Sequence[World], call: ToolCall) -> Struck:  # noqa: ARG002
        return self._error(call, "503 service unavailable; try again"), 0.0


# ------------------------------------------------------------------------------------------------ implicit


class StaleRead(FaultStrike):
    """The answer is true, but of an earlier moment: the newest earlier state that reads differently."""

    kind = "stale_read"
    family = "staleness"
    effects = READS
    meaning = "answer from an earlier real state of this episode"

    def apply(self, run: Run, history: Sequence[World], call: ToolCall) -> Struck:
        present = run()
        for world in reversed(history):
            earlier = render_reply(call, world.execute(call))
            if earlier.content != present.content or earlier.is_error != present.is_error:
                return msgspec.structs.replace(earlier, served_by="fault", fault=self.fault), 0.0
        return present, 0.0


class TruncatedJson(FaultStrike):
    """The answer breaks off in the middle; it is no JSON any more, and is not flagged as an error."""

    kind = "truncated_json"
    family = "corruption"
    effects = READS
    meaning = "answer cut in the middle"

    def apply(self, run: Run, history: Sequence[World], call: ToolCall) -> Struck:  # noqa: ARG002
        result = run()
        # cut somewhere in the middle half
        cut = int(len(result.content) * (0.25 + self._fraction / 2))
        content = result.content[:cut]
        if result.is_error or cut < 1 or _is_json(content):
            return result, 0.0
        return self._altered(result, content), 0.0

    def _detail(self) -> str:
        return f"cut at {0.25 + self._fraction / 2:.0%}"


class EmptyResult(FaultStrike):
    """There is data, and the answer says that there is none."""

    kind = "empty_result"
    family = "corruption"
    effects = READS
    meaning = "empty answer although there is data"

    def apply(self, run: Run, history: Sequence[World], call: ToolCall) -> Struck:  # noqa: ARG002
        result = run()
        content = None if result.is_error else _emptied(result.content)
        return (result, 0.0) if content is None else (self._altered(result, content), 0.0)


class LatencySpike(FaultStrike):
    """The call works and takes far longer than it should."""

    kind = "latency_spike"
    family = "latency"
    effects = ALL
    meaning = "the call works, slowly"

    def apply(self, run: Run, history: Sequence[World], call: ToolCall) -> Struck:  # noqa: ARG002
        result = run()
        extra_ms = max(_SPIKE_FACTOR * self._spec.latency.median_ms, _SPIKE_LEAST_MS)
        return msgspec.structs.replace(result, fault=self.fault), extra_ms


FAULT_KINDS: Mapping[str, type[FaultStrike]] = {
    fault.kind: fault
    for fault in (
        TimeoutBeforeWrite,
        TimeoutAfterWrite,
        TimeoutOfRead,
        RateLimited,
        ServerError,
        StaleRead,
        TruncatedJson,
        EmptyResult,
        LatencySpike,
    )
}
"""All faults by name."""


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _emptied(content: str) -> str | None:
    """The same shape without its data, or None when there is nothing to leave out."""
    try:
        value: Json = json.loads(content)
    except ValueError:
        return None
    empty: Json
    if isinstance(value, list):
        empty = []
    elif isinstance(value, dict):
        lists = [key for key, part in value.items() if isinstance(part, list)]
        empty = {key: [] if key in lists else part for key, part in value.items()} if lists else {}
    else:
        return None
    return None if empty == value else json.dumps(empty, ensure_ascii=False)
