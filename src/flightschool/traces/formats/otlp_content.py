"""Content of GenAI spans: messages and tool calls under the present names of the conventions and the older ones.

Three generations are read: message lists in attributes (``gen_ai.input.messages`` …, as JSON text or as structured
values), numbered attributes (``gen_ai.prompt.0.role`` …), and span events (``gen_ai.user.message`` …, and the newest
``gen_ai.client.inference.operation.details``). Whatever is truncated or missing is *named* and never filled in.
"""

from __future__ import annotations

import json
import re
from typing import Any

from flightschool.records import Json
from flightschool.traces.formats.dialects import to_chat
from flightschool.traces.formats.semconv import ALIASES, attribute
from flightschool.traces.formats.span import Span
from flightschool.traces.loading import result_value
from flightschool.traces.records import Usage

__all__ = ["AGENT", "INFERENCE", "chat_messages", "operation", "span_usage"]

INFERENCE = frozenset({"chat", "text_completion", "generate_content", "invoke_agent", "invoke_workflow"})
AGENT = frozenset({"invoke_agent", "invoke_workflow", "create_agent"})
_NUMBERED = re.compile(r"(?:gen_ai|llm)\.(?:prompt|completion|prompts|completions)\.(\d+)\.(.+)")
_EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}
_DETAILS = "gen_ai.client.inference.operation.details"
_OLD_OPERATIONS = {
    "completion": "text_completion",
    "execute_tool_call": "execute_tool",
    "workflow": "invoke_workflow",
    "agent": "invoke_agent",
    "tool": "execute_tool",
}


def operation(span: Span) -> str:
    """The GenAI operation of a span; empty for spans that are none."""
    named = attribute(span.attributes, "gen_ai.operation.name") or span.attributes.get("traceloop.span.kind")
    if isinstance(named, str) and named:
        return _OLD_OPERATIONS.get(named, named)
    if attribute(span.attributes, "gen_ai.tool.name") is not None or "gen_ai.tool.call.id" in span.attributes:
        return "execute_tool"
    if any(key.startswith(("gen_ai.prompt", "gen_ai.completion", "gen_ai.input.messages")) for key in span.attributes):
        return "chat"
    if any(name in _EVENT_ROLES or name == _DETAILS for name, _ in span.events):
        return "chat"
    return ""


def span_usage(span: Span) -> Usage | None:
    """Tokens and cost of one inference span; None if it names none."""

    def count(name: str) -> int | None:
        value = attribute(span.attributes, name)
        return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    cost = attribute(span.attributes, "gen_ai.usage.cost")
    usage = Usage(
        input_tokens=count("gen_ai.usage.input_tokens"),
        output_tokens=count("gen_ai.usage.output_tokens"),
        cached_tokens=count("gen_ai.usage.cache_read.input_tokens"),
        cost_usd=float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
    )
    return None if usage == Usage() else usage


def chat_messages(span: Span, issues: list[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What an inference span was given (instructions and input) and what it made, as chat messages.

    Appends to ``issues`` what was truncated; a list that cannot be read as a whole is left out as a whole.
    """
    given, made = _from_attributes(span.attributes, span, issues)
    if given or made:
        return given, made
    for name, attributes in span.events:
        if name == _DETAILS:
            given, made = _from_attributes(attributes, span, issues)
            if given or made:
                return given, made
    messages = _numbered(span)
    if messages:
        made = [message for message in messages if message.pop("made")]
        return [message for message in messages if message not in made], made
    return _from_events(span)


def _from_attributes(
    attributes: dict[str, Json], span: Span, issues: list[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    def note(text: str) -> None:
        issues.append(f"span {span.id}: {text}")

    given: list[dict[str, Any]] = []
    system = _listed(attributes, "gen_ai.system_instructions", note, "system")
    if system:
        texts = [p if isinstance(p, str) else str(p.get("content", p.get("text", ""))) for p in system if p]
        given.append({"role": "system", "content": "".join(texts)})
    given += to_chat(_listed(attributes, "gen_ai.input.messages", note, "user"), note, role="user")
    made = to_chat(_listed(attributes, "gen_ai.output.messages", note, "assistant"), note, role="assistant")
    return given, made


def _listed(attributes: dict[str, Json], name: str, note: Any, role: str) -> list[Any]:
    raw = attribute(attributes, name)
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError):
            if raw.lstrip().startswith(("[", "{")):
                used = next(known for known in (name, *ALIASES.get(name, ())) if attributes.get(known) is not None)
                note(f"{used} is truncated")
                return []
            return [raw] if role == "system" else [{"role": role, "content": raw}]
    if isinstance(raw, dict):
        raw = raw.get("messages", [raw])
    return raw if isinstance(raw, list) else []


def _numbered(span: Span) -> list[dict[str, Any]]:
    """The older dialect of numbered attributes: ``gen_ai.prompt.0.tool_calls.1.name``; ``made`` marks completions."""
    found: dict[tuple[bool, int], dict[str, Any]] = {}
    calls: dict[tuple[bool, int], dict[int, dict[str, Json]]] = {}
    for key, value in span.attributes.items():
        match = _NUMBERED.fullmatch(key)
        if match is None:
            continue
        slot = ("completion" in key.split(".")[1], int(match[1]))
        field = match[2]
        call = re.fullmatch(r"tool_calls\.(\d+)\.(?:function\.)?(id|name|arguments)", field)
        message = found.setdefault(slot, {"role": "assistant" if slot[0] else "user", "content": "", "made": slot[0]})
        if call is not None:
            calls.setdefault(slot, {}).setdefault(int(call[1]), {})[call[2]] = value
        elif field in ("role", "content", "tool_call_id", "name"):
            message[field] = value
    for slot, numbered in calls.items():
        found[slot]["tool_calls"] = [
            {"id": call.get("id"), "function": {"name": call.get("name"), "arguments": call.get("arguments")}}
            for _, call in sorted(numbered.items())
        ]
    return [message for _, message in sorted(found.items(), key=lambda item: item[0])]


def _from_events(span: Span) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The older dialect of span events."""
    given: list[dict[str, Any]] = []
    made: list[dict[str, Any]] = []
    for name, attributes in span.events:
        if name not in _EVENT_ROLES:
            continue
        body: dict[str, Any] = dict(attributes)
        inner = body.get("message")
        inner = result_value(inner) if isinstance(inner, str) else inner
        if isinstance(inner, dict):
            body |= inner
        calls = body.get("tool_calls")
        message: dict[str, Any] = {"role": body.get("role") or _EVENT_ROLES[name], "content": body.get("content")}
        if calls:
            message["tool_calls"] = result_value(calls) if isinstance(calls, str) else calls
        if message["role"] == "tool":
            message["tool_call_id"] = body.get("id") or body.get("tool_call_id")
        (made if name == "gen_ai.choice" else given).append(message)
    return given, made
