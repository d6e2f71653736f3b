"""OpenAI Responses: one JSON object a line with ``input`` and ``output`` items, or with ``items``.

A line is a stored response, a request with its ``output``, or ``{"request": …, "response": …}``. Items of one model
response (thought, words, calls) are one assistant message. Encrypted thoughts are named and left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flightschool.traces.conversation import tool_specs
from flightschool.traces.formats.assembly import assemble, converse
from flightschool.traces.formats.dialects import to_chat
from flightschool.traces.formats.lines import exchange, line_facts
from flightschool.traces.loading import broken, place
from flightschool.traces.records import RecordedEpisode
from flightschool.traces.streaming import json_objects

__all__ = ["ResponsesImporter"]


class ResponsesImporter:
    """Importer of items of the Responses API."""

    format = "openai-responses"

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether the beginning of the file has items of the Responses API."""
        del path
        items = (b'"function_call_output"', b'"function_call"', b'"output_text"', b'"input_text"')
        listed = any(key in head for key in (b'"items"', b'"input"', b'"output"'))
        return listed and b'"payload"' not in head and b'"messages"' not in head and any(kind in head for kind in items)

    def read(self, path: Path) -> Iterator[RecordedEpisode]:
        """Episodes of the file. Raises ``TraceError`` naming file and line."""
        for number, (line, raw) in enumerate(json_objects(path)):
            yield _episode(raw, path, line, number)


def _episode(raw: dict[str, Any], path: Path, line: int, number: int) -> RecordedEpisode:
    where = place(path, line, f"episode {number}")
    request, response = exchange(raw, where)
    issues: list[str] = []
    messages: list[dict[str, Any]] = []
    instructions = request.get("instructions") or response.get("instructions")
    if isinstance(instructions, str) and instructions:
        messages.append({"role": "system", "content": instructions})
    given, made = request.get("input", request.get("items")), response.get("output")
    if given is None and made is None:
        raise broken("an episode has no items", where, "input and output, or items", "record or remove the episode")
    messages += to_chat(given, issues.append, role="user")
    answer = to_chat(made, issues.append, role="assistant")
    if answer and answer[-1].get("role") == "assistant":
        answer[-1] |= {"model": response.get("model"), "usage": response.get("usage")}
    error = response.get("error")
    if isinstance(error, dict) and error:
        issues.append(f"the response ended in an error: {error.get('code') or 'unknown'}")
    return assemble(
        converse(messages + answer, where),
        id=str(response.get("id") or f"{path.stem}-{number}"),
        source=f"{path.name}:{line}",
        facts=line_facts(raw, where),
        tools=tool_specs(_functions(request.get("tools")), where),
        issues=issues,
    )


def _functions(tools: Any) -> Any:
    """Definitions of functions; tools of the provider (search, code interpreter) have no schema to keep."""
    if not isinstance(tools, list):
        return tools
    return [tool for tool in tools if not isinstance(tool, dict) or tool.get("type", "function") == "function"]
