"""OpenInference traces: spans with ``openinference.span.kind``, in OTLP JSON or as rows of a span table.

Each span is put under the names of the GenAI conventions; the rest is as for OTLP. Messages stand in numbered
attributes (``llm.input_messages.0.message.content``, ``….message.tool_calls.0.tool_call.function.name``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from flightschool.records import Json
from flightschool.traces.formats.otlp import OtlpImporter
from flightschool.traces.formats.span import Span
from flightschool.traces.loading import result_value

__all__ = ["OpenInferenceImporter", "from_openinference"]

_KIND = "openinference.span.kind"
_OPERATIONS = {"LLM": "chat", "TOOL": "execute_tool", "AGENT": "invoke_agent"}
_MESSAGE = re.compile(r"llm\.(input|output)_messages\.(\d+)\.message\.(.+)")
_CALL = re.compile(r"tool_calls\.(\d+)\.tool_call\.(?:function\.)?(id|name|arguments)")
_PART = re.compile(r"contents\.(\d+)\.message_content\.(type|text)")
_TOOL = re.compile(r"llm\.tools\.(\d+)\.tool\.json_schema")


class OpenInferenceImporter(OtlpImporter):
    """Importer of OpenInference spans."""

    format = "openinference"

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether the beginning of the file names a kind of OpenInference."""
        del path
        return _KIND.encode() in head or (b'"openinference"' in head and b'"context' in head)

    def translated(self, span: Span) -> Span:
        """The span under the names of the GenAI conventions."""
        return from_openinference(span)


def from_openinference(span: Span) -> Span:
    """The span with the attributes of the GenAI conventions added; one of another dialect as it is."""
    kind = span.attributes.get(_KIND)
    if not isinstance(kind, str):
        return span
    added: dict[str, Json] = {}
    if kind.upper() in _OPERATIONS:
        added["gen_ai.operation.name"] = _OPERATIONS[kind.upper()]
    if kind.upper() == "LLM":
        added |= _content(span.attributes)
    elif kind.upper() == "TOOL":
        added["gen_ai.tool.name"] = span.attributes.get("tool.name") or span.name
        parameters = span.attributes.get("tool.parameters")
        if span.attributes.get("input.value") is None and parameters is not None:
            added["gen_ai.tool.call.arguments"] = parameters
    return msgspec.structs.replace(span, attributes={**span.attributes, **added})


def _content(attributes: Mapping[str, Json]) -> dict[str, Json]:
    added: dict[str, Json] = {}
    for side in ("input", "output"):
        messages = _numbered(attributes, side) or _listed(attributes, side)
        if messages:
            added[f"gen_ai.{side}.messages"] = messages
    tools = [(int(match[1]), value) for key, value in attributes.items() if (match := _TOOL.fullmatch(key))]
    if tools:
        schemas = [result_value(value) if isinstance(value, str) else value for _, value in sorted(tools, key=_first)]
        added["gen_ai.tool.definitions"] = schemas
    return added


def _first(item: tuple[int, Json]) -> int:
    return item[0]


def _listed(attributes: Mapping[str, Json], side: str) -> list[Any]:
    """Messages as a list of objects, as span tables keep them; else the plain value of the span."""
    raw = attributes.get(f"llm.{side}_messages")
    raw = result_value(raw) if isinstance(raw, str) else raw
    if isinstance(raw, list):
        flat: dict[str, Json] = {}
        for index, item in enumerate(raw):
            for key, value in _leaves(item, ""):
                flat[f"llm.{side}_messages.{index}.{key}"] = value
        return _numbered(flat, side)
    value = attributes.get(f"{side}.value")
    if not isinstance(value, str) or not value:
        return []
    parsed = result_value(value) if attributes.get(f"{side}.mime_type") == "application/json" else value
    if isinstance(parsed, dict) and isinstance(parsed.get("messages"), list):
        messages: list[Any] = parsed["messages"]
        return messages
    return [{"role": "user" if side == "input" else "assistant", "content": value}]


def _leaves(value: Json, prefix: str) -> list[tuple[str, Json]]:
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in _leaves(inner, f"{prefix}.{key}" if prefix else key)]
    if isinstance(value, list):
        return [leaf for index, inner in enumerate(value) for leaf in _leaves(inner, f"{prefix}.{index}")]
    return [(prefix, value)]


def _numbered(attributes: Mapping[str, Json], side: str) -> list[Any]:
    found: dict[int, dict[str, Any]] = {}
    calls: dict[int, dict[int, dict[str, Json]]] = {}
    parts: dict[int, dict[int, dict[str, Json]]] = {}
    for key, value in attributes.items():
        match = _MESSAGE.fullmatch(key)
        if match is None or match[1] != side:
            continue
        number, field = int(match[2]), match[3]
        message = found.setdefault(number, {"role": "user" if side == "input" else "assistant", "content": ""})
        if call := _CALL.fullmatch(field):
            calls.setdefault(number, {}).setdefault(int(call[1]), {})[call[2]] = value
        elif part := _PART.fullmatch(field):
            parts.setdefault(number, {}).setdefault(int(part[1]), {})[part[2]] = value
        elif field in ("role", "content", "tool_call_id", "name"):
            message[field] = value
    for number, numbered in calls.items():
        found[number]["tool_calls"] = [
            {"id": call.get("id"), "function": {"name": call.get("name"), "arguments": call.get("arguments")}}
            for _, call in sorted(numbered.items())
        ]
    for number, numbered in parts.items():
        found[number]["content"] = found[number]["content"] or [part for _, part in sorted(numbered.items())]
    return [message for _, message in sorted(found.items())]
