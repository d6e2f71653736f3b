"""OpenAI chat format: one JSON object a line with ``messages`` (or one JSON array of them).

Beside the conversation a line may carry ``tools`` and ``metadata`` (see ``hints``); tool messages may carry
``is_error``, ``start_ms``, ``end_ms``, ``complete`` and ``fault``, which other readers ignore. Legacy
``function_call`` messages and calls without ids are read; content in parts is joined, parts that are no text are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from flightschool.digest import canonical_json
from flightschool.records import Json, Message, ToolSpec
from flightschool.traces.conversation import Conversation, tool_specs
from flightschool.traces.hints import facts_of, metadata_table
from flightschool.traces.loading import broken, json_objects, place
from flightschool.traces.records import RecordedCall, RecordedEpisode

__all__ = ["OpenAIChatImporter", "chat_tool", "export_chat"]

_TOP_LEVEL = ("id", "task", "task_id", "family", "stratum", "trial", "success", "outcome", "reward")


class OpenAIChatImporter:
    """Importer of the OpenAI chat format."""

    format = "openai-chat"

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether the beginning of the file mentions ``messages`` with roles."""
        del path
        return b'"messages"' in head and b'"role"' in head and b'"resourceSpans"' not in head

    def read(self, path: Path) -> Iterator[RecordedEpisode]:
        """Episodes of the file. Raises ``TraceError`` naming file and line."""
        for number, (line, raw) in enumerate(json_objects(path)):
            yield _episode(raw, path, line, number)


def _episode(raw: dict[str, Any], path: Path, line: int, number: int) -> RecordedEpisode:
    where = place(path, line, f"episode {number}")
    messages = raw.get("messages")
    if not isinstance(messages, list) or not messages:
        raise broken(
            "an episode has no messages", where, "messages: a list that is not empty", "record or remove the episode"
        )
    table = {} if raw.get("metadata") is None else raw["metadata"]
    if not isinstance(table, dict):
        raise broken("metadata is no object", where, "an object", "mend or remove it")
    facts = facts_of({key: raw[key] for key in _TOP_LEVEL if key in raw} | table, where)
    conversation = Conversation(where)
    for index, message in enumerate(messages):
        conversation.add(message, index)
    calls = conversation.calls()
    specs, stated = tool_specs(raw.get("tools"), where)
    return RecordedEpisode(
        id=facts.id or f"{path.stem}-{number}",
        source=f"{path.name}:{line}",
        messages=tuple(conversation.messages),
        calls=calls,
        tools=specs,
        stated_effects=stated,
        hint=facts.hint,
        success=facts.success,
        reward=facts.reward,
        metadata=facts.rest,
        issues=tuple(dict.fromkeys((*facts.issues, *conversation.issues))),
    )


def export_chat(episodes: Iterable[RecordedEpisode]) -> Iterator[bytes]:
    """One line an episode, canonical JSON: equal episodes give equal bytes."""
    for episode in episodes:
        calls = {call.id: call for call in episode.calls}
        names = {call.id: call.name for call in episode.calls}
        line: dict[str, Json] = {
            "messages": [_message(message, calls, names) for message in episode.messages],
            "metadata": metadata_table(episode),
        }
        if episode.tools:
            line["tools"] = [chat_tool(spec, spec.name in episode.stated_effects) for spec in episode.tools]
        yield canonical_json(line) + b"\n"


def chat_tool(spec: ToolSpec, stated: bool) -> dict[str, Json]:
    """A tool definition in the OpenAI shape; what we know beyond it stands under ``x-flightschool``."""
    function: dict[str, Json] = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    if stated:
        extra = {"effect": spec.effect, "idempotent": spec.idempotent, "latency": spec.latency}
        function["x-flightschool"] = msgspec.to_builtins(extra)
    return {"type": "function", "function": function}


def _message(message: Message, calls: dict[str, RecordedCall], names: dict[str, str]) -> dict[str, Json]:
    if message.role == "assistant" and message.tool_calls:
        asked = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": canonical_json(call.arguments).decode()},
            }
            for call in message.tool_calls
        ]
        return {"role": "assistant", "content": message.content or None, "tool_calls": asked}
    if message.role != "tool":
        return {"role": message.role, "content": message.content}
    call = calls[message.tool_call_id]
    line: dict[str, Json] = {
        "role": "tool",
        "tool_call_id": call.id,
        "name": names[call.id],
        "content": message.content,
        "is_error": call.is_error,
    }
    extra = {"start_ms": call.start_ms, "end_ms": call.end_ms, "fault": call.fault or None}
    line |= {key: value for key, value in extra.items() if value is not None}
    return line if call.complete else line | {"complete": False}
