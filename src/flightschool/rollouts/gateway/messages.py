"""Messages and tool calls of a request, key by key: what the model is shown, what changes nothing, what is refused.

A key that was dropped unseen would leave a program in the belief that the model read it. So a key with a meaning that
is lost here is refused by its place; one that only repeats or annotates (what clients add when they send an answer
back: ``annotations``, ``parsed``, an ``index``) is ignored, and the answer lists it. Null says nothing, whatever the
key: clients write out their whole record of a message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from flightschool.records import Json, Message, ToolCall
from flightschool.tools.wire import unusable_value

__all__ = ["ApiError", "read_call", "read_message", "text_of", "wrong"]

_SHOWN = frozenset({"role", "content"})
_SHOWN_OF: Mapping[str, frozenset[str]] = MappingProxyType(
    {"assistant": frozenset({"tool_calls", "refusal"}), "tool": frozenset({"tool_call_id"})}
)
_LOST = frozenset({"audio", "function_call", "reasoning", "reasoning_content", "refusal", "tool_call_id", "tool_calls"})
"""Keys that say something which the model would not be shown; empty ones say nothing."""
_UNUSED = frozenset(
    {"annotations", "cache_control", "name", "parsed", "prompt_cache_breakpoint", "provider_specific_fields"}
)
"""Keys of messages and parts that change nothing: speakers have no names in our turns, the rest is bookkeeping."""
_UNUSED_IN_CALLS = frozenset({"index", "parsed_arguments", "provider_specific_fields"})


class ApiError(Exception):
    """A request that is answered with an error, in the OpenAI shape."""

    def __init__(self, status: int, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


def read_message(row: Json, where: str, unused: set[str]) -> Message:
    """A message in the OpenAI shape.

    Args:
        row: the message.
        where: its place in the request.
        unused: takes the keys that were given and change nothing.

    Raises:
        ApiError: 400, naming the place.
    """
    if not isinstance(row, dict):
        raise wrong(where, "an object")
    role = row.get("role")
    if role not in ("system", "developer", "user", "assistant", "tool"):
        raise wrong(f"{where}.role", "system, developer, user, assistant or tool")
    _check_keys(row, where, "messages", _SHOWN | _SHOWN_OF.get(role, frozenset()), _UNUSED, unused)
    calls = row.get("tool_calls") or []
    if not isinstance(calls, list):
        raise wrong(f"{where}.tool_calls", "a list")
    return Message(
        role="system" if role == "developer" else role,
        content=_content_of(row, where, unused),
        tool_calls=tuple(read_call(call, f"{where}.tool_calls[{i}]", unused) for i, call in enumerate(calls)),
        tool_call_id=text_of(row.get("tool_call_id"), f"{where}.tool_call_id") if role == "tool" else "",
    )


def _content_of(row: dict[str, Json], where: str, unused: set[str]) -> str:
    """What a message says: of an assistant that refused, the words of the refusal."""
    content, refusal = row.get("content"), row.get("refusal")
    if not refusal:
        return _content(content, f"{where}.content", unused, may_lack=row["role"] == "assistant")
    if content:
        raise wrong(f"{where}.refusal", "content or a refusal, not both")
    return text_of(refusal, f"{where}.refusal")


def _content(value: Json, where: str, unused: set[str], *, may_lack: bool) -> str:
    if value is None and may_lack:
        return ""
    if isinstance(value, list):
        parts = []
        for index, part in enumerate(value):
            kind = part.get("type") if isinstance(part, dict) else None
            if kind not in ("text", "refusal"):
                raise wrong(f"{where}[{index}]", "a part of type text: this model reads nothing else")
            _check_keys(part, f"{where}[{index}]", "messages.content", frozenset({"type", kind}), _UNUSED, unused)
            parts.append(text_of(part.get(kind), f"{where}[{index}].{kind}"))
        return "\n".join(parts)
    return text_of(value, where)


def _check_keys(
    row: Mapping[str, Json], where: str, group: str, shown: frozenset[str], known: frozenset[str], unused: set[str]
) -> None:
    """Refuse what would be lost, note what changes nothing (under the name of its group).

    Raises:
        ApiError: 400, naming the key.
    """
    for name in sorted(row):
        if name in shown or row[name] is None:
            continue
        if name in known:
            unused.add(f"{group}.{name}")
        elif name not in _LOST:
            place = f"{where}.{name[:60]}"
            raise ApiError(400, f"unknown key {place!r}", code="unknown_parameter", param=place)
        elif row[name] not in ("", [], {}):
            place = f"{where}.{name}"
            raise ApiError(
                400,
                f"{place} is not supported here: the model would not be shown it",
                code="unsupported_parameter",
                param=place,
            )


def read_call(row: Json, where: str, unused: set[str] | None = None) -> ToolCall:
    """A tool call in the OpenAI shape, or as ``{"id", "name", "arguments"}``; arguments as text or as an object.

    Arguments are not judged here: a policy may have written what no tool can carry, and the boundary tells it so.

    Args:
        row: the call.
        where: its place in the request.
        unused: takes the keys that were given and change nothing.

    Raises:
        ApiError: 400, naming the place.
    """
    unused = set() if unused is None else unused
    if not isinstance(row, dict):
        raise wrong(where, "an object")
    if row.get("type", "function") != "function":
        raise wrong(f"{where}.type", "function")
    inner, spoken = row.get("function", row), frozenset({"name", "arguments"})
    if not isinstance(inner, dict):
        raise wrong(f"{where}.function", "an object")
    outer = frozenset({"id", "type"}) | (spoken if inner is row else {"function"})
    _check_keys(row, where, "messages.tool_calls", outer, _UNUSED_IN_CALLS, unused)
    if inner is not row:
        _check_keys(inner, f"{where}.function", "messages.tool_calls.function", spoken, _UNUSED_IN_CALLS, unused)
    arguments = inner.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, dict):
        raise wrong(f"{where}.arguments", "a JSON object, or the text of one")
    name = text_of(inner.get("name"), f"{where}.name")
    return ToolCall(id=text_of(row.get("id") or "", f"{where}.id"), name=name, arguments=arguments)


def text_of(value: Json, where: str) -> str:
    """A text, or an error that names its place. Raises ``ApiError``."""
    if not isinstance(value, str):
        raise wrong(where, "text")
    if unusable_value(value) is not None:
        raise wrong(where, "valid Unicode text")
    return value


def wrong(param: str, expected: str) -> ApiError:
    """The error for a value that is not what was expected."""
    return ApiError(400, f"{param}: expected {expected}", code="invalid_value", param=param)
