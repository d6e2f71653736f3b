"""OpenAI chat format: one JSON object a line with ``messages`` (or one JSON array of them).

Beside the conversation a line may carry ``tools`` and ``metadata`` (see ``hints``); tool messages may carry
``is_error``, ``start_ms``, ``end_ms``, ``complete`` and ``fault``, assistant messages ``reasoning_content``, ``model``
and ``usage``; other readers ignore them. Legacy
``function_call`` messages and calls without ids are read; content in parts is joined, parts that are no text are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from flightschool.digest import canonical_json
from flightschool.records import Json, Message, ToolSpec
from flightschool.traces.conversation import tool_specs
from flightschool.traces.formats.assembly import assemble, converse
from flightschool.traces.formats.lines import line_facts
from flightschool.traces.formats.own import call_extras, shared_losses, turn_extras
from flightschool.traces.hints import metadata_table
from flightschool.traces.loading import broken, place
from flightschool.traces.records import RecordedCall, RecordedEpisode
from flightschool.traces.streaming import json_objects

__all__ = ["OpenAIChatImporter", "chat_losses", "chat_tool", "export_chat"]


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
    return assemble(
        converse(messages, where),
        id=f"{path.stem}-{number}",
        source=f"{path.name}:{line}",
        facts=line_facts(raw, where, "id"),
        tools=tool_specs(raw.get("tools"), where),
    )


def export_chat(episodes: Iterable[RecordedEpisode]) -> Iterator[bytes]:
    """One line an episode, canonical JSON: equal episodes give equal bytes."""
    for episode in episodes:
        if not episode.messages:
            continue  # named by ``chat_losses``
        calls = {call.id: call for call in episode.calls}
        turns = {turn.turn: turn for turn in episode.turns}
        messages: list[dict[str, Json]] = []
        spoken = 0
        for message in episode.messages:
            extras = turn_extras(turns[spoken]) if message.role == "assistant" and spoken in turns else {}
            spoken += message.role == "assistant"
            messages.append(_message(message, calls) | extras)
        line: dict[str, Json] = {
            "messages": messages,
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


def chat_losses(episode: RecordedEpisode) -> list[str]:
    """Kinds of what a line does not hold."""
    lost = shared_losses(episode)
    if not episode.messages:
        lost.append("episodes without messages")
    return [*lost, "sub-agents and branches"] if episode.children else lost


def _message(message: Message, calls: dict[str, RecordedCall]) -> dict[str, Json]:
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
        "name": call.name,
        "content": message.content,
    }
    return line | call_extras(call)
