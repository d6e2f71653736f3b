"""Content of GenAI spans: messages and tool calls under the present names of the conventions and the older ones.

Three generations are read: message lists in attributes (``gen_ai.input.messages`` …, as JSON text or as structured
values), numbered attributes (``gen_ai.prompt.0.role`` …), and span events (``gen_ai.user.message`` …). Whatever is
truncated or missing is *named* and never filled in.
"""

from __future__ import annotations

import json
import re
from typing import Any

from flightschool.records import Json
from flightschool.traces.loading import result_value
from flightschool.traces.otlp_spans import Span

__all__ = ["INFERENCE", "chat_messages", "first_of", "looks_truncated", "operation"]

INFERENCE = frozenset({"chat", "text_completion", "generate_content", "invoke_agent", "invoke_workflow"})
_TRUNCATED = re.compile(
    r"(?:\[|<|\()\s*(?:\.{3}|…)?\s*truncated[^\])>]{0,40}(?:\]|>|\))\s*$|(?:\.{3}|…)\s*truncated\s*$", re.I
)
_NUMBERED = re.compile(r"(?:gen_ai|llm)\.(?:prompt|completion|prompts|completions)\.(\d+)\.(.+)")
_EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}


def first_of(attributes: dict[str, Json], *names: str) -> Json:
    """The first attribute of these names that is there."""
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)


def operation(span: Span) -> str:
    """The GenAI operation of a span; empty for spans that are none."""
    named = first_of(span.attributes, "gen_ai.operation.name", "llm.request.type")
    if isinstance(named, str) and named:
        return {"completion": "text_completion", "execute_tool_call": "execute_tool"}.get(named, named)
    if first_of(span.attributes, "gen_ai.tool.name", "gen_ai.tool.call.id") is not None:
        return "execute_tool"
    if any(key.startswith(("gen_ai.prompt", "gen_ai.completion", "gen_ai.input.messages")) for key in span.attributes):
        return "chat"
    if any(name in _EVENT_ROLES for name, _ in span.events):
        return "chat"
    return ""


def looks_truncated(text: str) -> bool:
    """Whether a text ends in a marker that exporters leave where they cut."""
    return _TRUNCATED.search(text[-80:]) is not None


def chat_messages(span: Span, issues: list[str]) -> list[dict[str, Any]]:
    """The messages of an inference span in the shape of the chat format: instructions, input, output.

    Appends to ``issues`` what was truncated; a list that cannot be read as a whole is left out as a whole.
    """
    messages: list[dict[str, Any]] = []
    system = _listed(span, ("gen_ai.system_instructions", "gen_ai.system.instructions"), issues)
    if system:
        text = "".join(str(part.get("content", part.get("text", ""))) for part in system if isinstance(part, dict))
        messages.append({"role": "system", "content": text})
    given = _listed(span, ("gen_ai.input.messages", "gen_ai.prompt"), issues)
    made = _listed(span, ("gen_ai.output.messages", "gen_ai.completion"), issues)
    for message in (*given, *made):
        messages += _flattened(message, span, issues)
    return messages or _numbered(span) or _from_events(span)


def _listed(span: Span, names: tuple[str, ...], issues: list[str]) -> list[Any]:
    raw = first_of(span.attributes, *names)
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError):
            if raw.lstrip().startswith(("[", "{")):
                issues.append(f"span {span.id}: {names[0]} is truncated")
                return []
            return [{"role": "user" if "input" in names[0] else "assistant", "content": raw}]
    if isinstance(raw, dict):
        raw = raw.get("messages", [raw])
    return raw if isinstance(raw, list) else []


def _flattened(message: Json, span: Span, issues: list[str]) -> list[dict[str, Any]]:
    """One message with parts as one or more chat messages (each tool response is a message of its own)."""
    if not isinstance(message, dict):
        issues.append(f"span {span.id}: a message is no object and was left out")
        return []
    parts = message.get("parts")
    if not isinstance(parts, list):
        return [message]
    texts: list[str] = []
    calls: list[dict[str, Json]] = []
    answers: list[dict[str, Any]] = []
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else "text" if isinstance(part, str) else None
        if kind == "text":
            texts.append(part if isinstance(part, str) else str(part.get("content", part.get("text", ""))))
        elif kind == "tool_call":
            function = {"name": part.get("name"), "arguments": part.get("arguments")}
            calls.append({"id": part.get("id"), "function": function})
        elif kind == "tool_call_response":
            answers.append(_answer(part))
        elif kind != "reasoning":  # the policy's private thought is no part of the conversation
            issues.append(f"span {span.id}: a part of type {kind} was left out")
    text = "".join(texts)
    if answers:
        return answers
    if any(looks_truncated(piece) for piece in texts):
        issues.append(f"span {span.id}: a message is truncated")
    flat: dict[str, Any] = {"role": message.get("role"), "content": text}
    return [flat | {"tool_calls": calls}] if calls else [flat]


def _answer(part: dict[str, Any]) -> dict[str, Any]:
    response = first_of(part, "response", "result", "content")
    content = response if isinstance(response, str) else json.dumps(response, ensure_ascii=False)
    return {"role": "tool", "tool_call_id": part.get("id"), "content": content}


def _numbered(span: Span) -> list[dict[str, Any]]:
    """The older dialect of numbered attributes: ``gen_ai.prompt.0.tool_calls.1.name``."""
    found: dict[tuple[bool, int], dict[str, Any]] = {}
    calls: dict[tuple[bool, int], dict[int, dict[str, Json]]] = {}
    for key, value in span.attributes.items():
        match = _NUMBERED.fullmatch(key)
        if match is None:
            continue
        slot = ("completion" in key.split(".")[1], int(match[1]))
        field = match[2]
        call = re.fullmatch(r"tool_calls\.(\d+)\.(?:function\.)?(id|name|arguments)", field)
        message = found.setdefault(slot, {"role": "assistant" if slot[0] else "user", "content": ""})
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


def _from_events(span: Span) -> list[dict[str, Any]]:
    """The older dialect of span events."""
    messages: list[dict[str, Any]] = []
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
        messages.append(message)
    return messages
