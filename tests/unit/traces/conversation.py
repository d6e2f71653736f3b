"""One conversation, which tests of formats write in every dialect and read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flightschool.traces import RecordedEpisode, import_traces

ASKED = "State of A1?"
ARGUMENTS = {"order": "A1"}
ANSWER = '{"state": "open"}'
TOLD = "It is open."
FUNCTION = {"name": "find_order", "arguments": json.dumps(ARGUMENTS)}
CALL = {"id": "c1", "type": "function", "function": FUNCTION}


def write(path: Path, *values: Any) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def read(path: Path, format_name: str) -> RecordedEpisode:
    traces = import_traces(path)
    assert traces.format == format_name
    (episode,) = traces.episodes
    return episode


def check_conversation(episode: RecordedEpisode, system: str = "") -> None:
    """Every dialect below tells this: a question, one call, its answer, the reply."""
    roles = ["user", "assistant", "tool", "assistant"]
    assert [m.role for m in episode.messages] == (["system", *roles] if system else roles)
    assert episode.guidance == system
    assert episode.instruction == ASKED
    (call,) = episode.calls
    assert (call.name, call.arguments, call.value, call.turn) == ("find_order", ARGUMENTS, json.loads(ANSWER), 0)
    assert call.complete
    assert not call.is_error
    assert episode.messages[-1].content == TOLD
