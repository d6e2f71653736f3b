"""From a conversation and what is known about it to an episode: the last step of every importer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from flightschool.records import Json, ToolSpec
from flightschool.traces.clock import Clock
from flightschool.traces.conversation import Conversation
from flightschool.traces.hints import Facts, facts_of
from flightschool.traces.records import RecordedCall, RecordedEpisode, RecordedTurn

__all__ = ["assemble", "converse", "sane_calls"]


def converse(messages: Iterable[Json], where: str, *, lenient: bool = False) -> Conversation:
    """A conversation of chat messages. Raises ``TraceError`` naming the message."""
    conversation = Conversation(where, lenient=lenient)
    for index, message in enumerate(messages):
        conversation.add(message, index)
    return conversation


def assemble(
    conversation: Conversation,
    *,
    id: str,  # noqa: A002  the field's name
    source: str,
    facts: Facts | None = None,
    tools: tuple[tuple[ToolSpec, ...], tuple[str, ...]] = ((), ()),
    calls: tuple[RecordedCall, ...] | None = None,
    issues: Sequence[str] = (),
    clock: Clock | None = None,
    **more: Any,
) -> RecordedEpisode:
    """The episode. ``facts`` may name another id; ``more`` are further fields of the record."""
    facts = facts_of({}, source) if facts is None else facts
    calls = conversation.calls() if calls is None else calls
    doubts: list[str] = []
    calls = sane_calls(calls, doubts)
    turns = _sane_turns(conversation.turns, doubts)
    fields: dict[str, Any] = {
        "labels": facts.labels,
        "started_at": facts.started_at or (clock.started_at if clock is not None else ""),
        "usage": facts.usage,
        **more,
    }
    return RecordedEpisode(
        id=facts.id or id,
        source=source,
        messages=tuple(conversation.messages),
        calls=calls,
        tools=tools[0],
        stated_effects=tools[1],
        hint=facts.hint,
        success=facts.success,
        reward=facts.reward,
        metadata=facts.rest,
        issues=tuple(dict.fromkeys((*facts.issues, *issues, *conversation.issues, *doubts))),
        turns=turns,
        **fields,
    )


def sane_calls(calls: tuple[RecordedCall, ...], doubts: list[str]) -> tuple[RecordedCall, ...]:
    """Calls without times where the clock went back within one; such a duration teaches nothing."""
    kept = []
    for call in calls:
        if call.start_ms is not None and call.end_ms is not None and call.end_ms < call.start_ms:
            doubts.append(f"the clock went back during call {call.id}")
            call = msgspec.structs.replace(call, start_ms=None, end_ms=None)
        kept.append(call)
    return tuple(kept)


def _sane_turns(turns: Sequence[RecordedTurn], doubts: list[str]) -> tuple[RecordedTurn, ...]:
    kept = []
    for turn in turns:
        if turn.start_ms is not None and turn.end_ms is not None and turn.end_ms < turn.start_ms:
            doubts.append(f"the clock went back during turn {turn.turn}")
            turn = msgspec.structs.replace(turn, start_ms=None, end_ms=None)
        if msgspec.structs.replace(turn, turn=0) != RecordedTurn(turn=0):
            kept.append(turn)
    return tuple(kept)
