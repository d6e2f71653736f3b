"""What our exports add to formats that have free room, so that an export can be imported again."""

from __future__ import annotations

import msgspec

from flightschool.records import Json
from flightschool.traces.records import RecordedCall, RecordedEpisode, RecordedTurn

__all__ = ["call_extras", "sequence_losses", "shared_losses", "turn_extras"]


def call_extras(call: RecordedCall) -> dict[str, Json]:
    """Flags and times of a call beside its answer."""
    extras: dict[str, Json] = {"is_error": call.is_error}
    known = {"start_ms": call.start_ms, "end_ms": call.end_ms, "fault": call.fault or None}
    extras |= {key: value for key, value in known.items() if value is not None}
    return extras if call.complete else extras | {"complete": False}


def turn_extras(turn: RecordedTurn) -> dict[str, Json]:
    """What is known of an assistant message beside its words, under the names that ``Conversation`` reads."""
    usage = None if turn.usage is None else msgspec.to_builtins(turn.usage)
    known = {
        "reasoning_content": turn.reasoning or None,
        "model": turn.model or None,
        "start_ms": turn.start_ms,
        "end_ms": turn.end_ms,
        "usage": usage,
    }
    return {key: value for key, value in known.items() if value is not None}


def shared_losses(episode: RecordedEpisode) -> list[str]:
    """What no format of conversations holds."""
    asked = {call.id for message in episode.messages for call in message.tool_calls}
    return ["calls without a conversation"] if any(call.id not in asked for call in episode.calls) else []


def sequence_losses(episode: RecordedEpisode) -> list[str]:
    """What formats lose that keep the answers of a turn together: the place of an answer that came late or split."""
    pending: set[str] = set()
    lost = False
    for message in episode.messages:
        if message.role == "tool":
            lost = lost or message.tool_call_id not in pending
            pending.discard(message.tool_call_id)
        else:
            pending = {call.id for call in message.tool_calls}
    return ["the place of answers that came after other messages"] if lost else []
