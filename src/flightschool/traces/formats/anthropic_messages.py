"""Anthropic Messages: one JSON object a line with ``messages`` whose contents may be blocks.

A line is what was sent (``system``, ``messages``, ``tools``), beside it what came back (``response``), or
``{"request": …, "response": …}``. ``tool_use`` blocks are calls, ``tool_result`` blocks their answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flightschool.records import Json
from flightschool.traces.conversation import content_text, tool_specs
from flightschool.traces.formats.assembly import assemble, converse
from flightschool.traces.formats.dialects import to_chat
from flightschool.traces.formats.lines import exchange, line_facts
from flightschool.traces.loading import broken, place
from flightschool.traces.records import RecordedEpisode
from flightschool.traces.streaming import json_objects

__all__ = ["AnthropicMessagesImporter"]


class AnthropicMessagesImporter:
    """Importer of Anthropic messages."""

    format = "anthropic-messages"

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether the beginning of the file has messages with blocks, or tools with ``input_schema``."""
        del path
        marks = (b'"tool_use"', b'"tool_result"', b'"input_schema"', b'"end_turn"', b'"stop_reason"')
        return b'"messages"' in head and b'"parentUuid"' not in head and any(mark in head for mark in marks)

    def read(self, path: Path) -> Iterator[RecordedEpisode]:
        """Episodes of the file. Raises ``TraceError`` naming file and line."""
        for number, (line, raw) in enumerate(json_objects(path)):
            yield _episode(raw, path, line, number)


def _episode(raw: dict[str, Any], path: Path, line: int, number: int) -> RecordedEpisode:
    where = place(path, line, f"episode {number}")
    request, response = exchange(raw, where)
    given = request.get("messages")
    if not isinstance(given, list) or not given:
        raise broken("an episode has no messages", where, "messages: a list that is not empty", "record or remove it")
    issues: list[str] = []
    messages: list[Json] = []
    system, _ = content_text(request.get("system"))
    if system:
        messages.append({"role": "system", "content": system})
    messages += to_chat(given, issues.append)
    if response is not request and response.get("content") is not None:
        messages += to_chat({"role": "assistant", "content": response["content"]}, issues.append)
        last = next(m for m in reversed(messages) if m.get("role") == "assistant")
        last |= {"model": response.get("model"), "usage": response.get("usage")}
    return assemble(
        converse(messages, where),
        id=str(raw.get("id") or response.get("id") or f"{path.stem}-{number}"),
        source=f"{path.name}:{line}",
        facts=line_facts(raw, where),
        tools=tool_specs(_definitions(request.get("tools")), where),
        issues=issues,
    )


def _definitions(tools: Json) -> Json:
    """Tools in the shape of the OpenAI format; those of the provider have no schema to keep."""
    if not isinstance(tools, list):
        return tools
    plain = [tool for tool in tools if not isinstance(tool, dict) or "input_schema" in tool or "type" not in tool]
    return [
        {**tool, "parameters": tool.get("input_schema") or tool.get("parameters")} if isinstance(tool, dict) else tool
        for tool in plain
    ]
