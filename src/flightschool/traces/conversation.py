"""Pairing: from a list of chat messages to calls with their answers.

Shared by every format that keeps conversations. A call is matched with the first unanswered answer of its id; where
ids are missing, by order, and by name if the answer names its tool. An answer that no call asked for is an error of
the file, since nothing says what it answers.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from flightschool.errors import TraceError
from flightschool.records import Json, Message, ToolCall, ToolSpec
from flightschool.traces.effects import looks_like_error
from flightschool.traces.loading import broken, result_value
from flightschool.traces.records import RecordedCall, RecordedTurn, Usage

__all__ = ["Conversation", "content_text", "number", "tool_specs", "usage_of"]

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


_TEXT_TYPES = frozenset({"text", "input_text", "output_text", "summary_text"})


class Conversation:
    """Builds messages and calls of one episode, message by message.

    Args:
        where: file, line and element, for errors.
        lenient: name and leave out answers that no call asked for, and number ids used twice, where the format itself
            may begin or be cut in the middle of a conversation.
    """

    def __init__(self, where: str, *, lenient: bool = False) -> None:
        self.where = where
        self.lenient = lenient
        self.turns: list[RecordedTurn] = []
        self.messages: list[Message] = []
        self.issues: list[str] = []
        self._calls: dict[str, RecordedCall] = {}
        self._pending: list[tuple[str, str]] = []  # (id as recorded, unique id)
        self._seen: dict[str, int] = {}
        self._turn = -1

    def add(self, raw: Json, index: int) -> None:
        """One message in the shape of the OpenAI chat format."""
        where = f"{self.where}, message {index}"
        if not isinstance(raw, dict):
            raise broken("a message is no object", where, "{role, content, …}", "mend the message")
        role = raw.get("role")
        if role == "function":
            self._answer(raw, where, legacy=True)
        elif not isinstance(role, str) or role not in ROLES:
            raise broken(f"unknown role {role!r}", where, f"one of {', '.join(ROLES)}", "rename the role")
        elif role == "tool":
            self._answer(raw, where, legacy=False)
        elif role == "assistant":
            self._assistant(raw, where)
        else:
            self.messages.append(Message(role=ROLES[role], content=self._text(raw.get("content"), where)))

    @property
    def num_turns(self) -> int:
        """Assistant messages so far."""
        return self._turn + 1

    def open_calls(self) -> list[RecordedCall]:
        """The calls that have no answer so far."""
        return [self._calls[unique] for _, unique in self._pending]

    def calls(self) -> tuple[RecordedCall, ...]:
        """All calls in the order asked; unanswered ones are incomplete and named in ``issues``."""
        for _, unique in self._pending:
            self.issues.append(f"call {unique} has no answer")
            self._calls[unique] = msgspec.structs.replace(self._calls[unique], complete=False)
        self._pending = []
        return tuple(self._calls.values())

    def _assistant(self, raw: dict[str, Any], where: str) -> None:
        self._turn += 1
        raw_calls = raw.get("tool_calls") or []
        if not isinstance(raw_calls, list):
            raise broken("tool_calls is no list", where, "a list of calls", "mend the message")
        if raw.get("function_call"):
            raw_calls = [*raw_calls, {"function": raw["function_call"]}]
        calls = tuple(self._call(item, f"{where}, call {number}") for number, item in enumerate(raw_calls))
        self.messages.append(Message(role="assistant", content=self._text(raw.get("content"), where), tool_calls=calls))
        self.note_turn(self._turn, raw)

    def note_turn(self, number_of_turn: int, raw: dict[str, Any]) -> None:
        """Keep what a message says about itself: thought, model, times, usage."""
        reasoning, _ = content_text(raw.get("reasoning_content") or raw.get("reasoning"))
        turn = RecordedTurn(
            turn=number_of_turn,
            model=raw["model"] if isinstance(raw.get("model"), str) else "",
            reasoning=reasoning or "",
            start_ms=number(raw.get("start_ms")),
            end_ms=number(raw.get("end_ms")),
            usage=usage_of(raw.get("usage")),
        )
        if turn != RecordedTurn(turn=number_of_turn):
            self.turns.append(turn)

    def _call(self, raw: Json, where: str) -> ToolCall:
        function = raw.get("function", raw) if isinstance(raw, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
            raise broken(
                "a tool call has no name", where, "{id, function: {name, arguments}}", "mend or remove the call"
            )
        recorded_id = raw.get("id")
        if recorded_id is not None and not isinstance(recorded_id, str):
            raise broken("a call id is no text", where, "a string", "write the id as a string")
        recorded_id = recorded_id or f"call-{len(self._calls)}"
        if any(recorded_id == pending for pending, _ in self._pending):
            if self.lenient:
                self.issues.append(f"call id {recorded_id} is used twice before it is answered")
            else:
                raise self._used_twice(recorded_id, where)
        unique = self._unique(recorded_id)
        arguments, complete = self._arguments(function.get("arguments"), unique)
        self._calls[unique] = RecordedCall(
            turn=self._turn, id=unique, name=function["name"], arguments=arguments, complete=complete
        )
        self._pending.append((recorded_id, unique))
        return ToolCall(id=unique, name=function["name"], arguments=arguments)

    def _used_twice(self, recorded_id: str, where: str) -> TraceError:
        return broken(
            f"call id {recorded_id!r} is used twice before it is answered",
            where,
            "ids that tell calls apart",
            "number the calls",
        )

    def _unique(self, recorded_id: str) -> str:
        self._seen[recorded_id] = self._seen.get(recorded_id, 0) + 1
        count = self._seen[recorded_id]
        return recorded_id if count == 1 else f"{recorded_id}#{count}"

    def _arguments(self, raw: Json, unique: str) -> tuple[dict[str, Json], bool]:
        value = raw
        if raw is None or raw == "":
            value = {}
        elif isinstance(raw, str):
            value = result_value(raw)
        if isinstance(value, dict):
            return value, True
        self.issues.append(f"arguments of call {unique} are no JSON object")
        return {}, False

    def _answer(self, raw: dict[str, Any], where: str, *, legacy: bool) -> None:
        unique = self._take_pending(raw, where, legacy=legacy)
        if not unique:
            self.issues.append(
                f"a tool result answers no call: {raw.get('tool_call_id') or raw.get('name') or 'no id'}"
            )
            return
        text = self._text(raw.get("content"), where)
        value = result_value(text)
        flag = raw.get("is_error")
        self._calls[unique] = msgspec.structs.replace(
            self._calls[unique],
            text=text,
            value=value,
            is_error=flag if isinstance(flag, bool) else looks_like_error(value),
            start_ms=number(raw.get("start_ms")),
            end_ms=number(raw.get("end_ms")),
            complete=self._calls[unique].complete and raw.get("complete") is not False,
            fault=raw["fault"] if isinstance(raw.get("fault"), str) else "",
        )
        self.messages.append(Message(role="tool", content=text, tool_call_id=unique))

    def _take_pending(self, raw: dict[str, Any], where: str, *, legacy: bool) -> str:
        wanted, name = raw.get("tool_call_id"), raw.get("name")
        for position, (recorded_id, unique) in enumerate(self._pending):
            by_id = wanted in (recorded_id, unique) and bool(wanted)
            by_name = (legacy or not wanted) and (not name or self._calls[unique].name == name)
            if by_id or by_name:
                del self._pending[position]
                return unique
        if self.lenient:
            return ""
        raise broken(
            f"a tool result answers no call: {wanted or name or 'no id'!r}",
            where,
            "a result after the assistant message that asked for it, with its id",
            "restore the missing assistant message or remove the result",
        )

    def _text(self, content: Json, where: str) -> str:
        text, skipped = content_text(content)
        if text is None:
            raise broken(
                "content is neither text nor parts", where, "a string, null or a list of parts", "mend the message"
            )
        self.issues += [f"a part of type {kind} was left out" for kind in skipped]
        return text


def content_text(content: Json) -> tuple[str | None, list[str]]:
    """Text of a content, and the types of its parts that are no text; (None, …) if it is of no known shape."""
    if content is None:
        return "", []
    if isinstance(content, str):
        return content, []
    if isinstance(content, dict) and isinstance(content.get("text"), str) and content.get("type") in _TEXT_TYPES:
        return content["text"], []
    if isinstance(content, dict | int | float | bool):
        return json.dumps(content, ensure_ascii=False), []  # some harnesses keep parsed tool results
    texts: list[str] = []
    skipped: list[str] = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif isinstance(part, dict):
            skipped.append(str(part.get("type", "unknown")))
        else:
            return None, []
    return "".join(texts), skipped


def tool_specs(raw: Json, where: str) -> tuple[tuple[ToolSpec, ...], tuple[str, ...]]:
    """Tool definitions in the shape of the OpenAI format (with or without the ``function`` envelope).

    Returns the definitions, and the names of those that state an effect (``x-flightschool`` or MCP's annotations).
    """
    if raw is None:
        return (), ()
    if not isinstance(raw, list):
        raise broken("tools is no list", where, "a list of tool definitions", "mend or remove it")
    specs: list[ToolSpec] = []
    stated: list[str] = []
    for number, item in enumerate(raw):
        place = f"{where}, tool {number}"
        function = item.get("function", item) if isinstance(item, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise broken("a tool definition has no name", place, "{name, description, parameters}", "name it")
        extra = _stated(function)
        if "effect" in extra:
            stated.append(function["name"])
        specs.append(_spec(function, extra, place))
    return tuple(specs), tuple(stated)


def _stated(function: dict[str, Any]) -> dict[str, Json]:
    """What a definition says about effect, idempotence and latency."""
    extra = function.get("x-flightschool")
    if isinstance(extra, dict):
        return {key: extra[key] for key in ("effect", "idempotent", "latency") if key in extra}
    hints = function.get("annotations")
    if not isinstance(hints, dict):
        return {}
    found: dict[str, Json] = {}
    if hints.get("readOnlyHint") is True:
        found["effect"] = "read"
    elif hints.get("destructiveHint") is True:
        found["effect"] = "destroy"
    elif hints.get("readOnlyHint") is False:
        found["effect"] = "write"
    if isinstance(hints.get("idempotentHint"), bool):
        found["idempotent"] = hints["idempotentHint"]
    return found


def _spec(function: dict[str, Any], extra: dict[str, Json], where: str) -> ToolSpec:
    parameters = function.get("parameters") or function.get("inputSchema") or {"type": "object", "properties": {}}
    if not isinstance(parameters, dict):
        raise broken("parameters of a tool are no object", where, "a JSON Schema", "mend the definition")
    spec = {
        "name": function["name"],
        "description": str(function.get("description") or ""),
        "parameters": parameters,
        **extra,
    }
    try:
        return msgspec.convert(spec, ToolSpec)
    except msgspec.ValidationError as error:
        raise broken(
            f"a tool definition cannot be used: {error}", where, "effect, idempotent, latency as documented", "mend it"
        ) from error


def number(value: Json) -> float | None:
    """A JSON number as a float; None for everything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def usage_of(raw: Json) -> Usage | None:
    """Usage under the names that providers use; None if nothing of it is known.

    Prompt tokens *include* cached ones in the OpenAI convention; Anthropic counts them apart, and they are added here.
    """
    if not isinstance(raw, dict):
        return None
    details = raw.get("prompt_tokens_details") or raw.get("input_tokens_details") or {}
    given = _count(raw, "input_tokens", "prompt_tokens", "input", "total_prompt_tokens")
    cached = _count(raw, "cached_tokens", "cached_input_tokens", "total_cached_tokens")
    cached = cached if cached is not None or not isinstance(details, dict) else _count(details, "cached_tokens")
    apart = [_count(raw, "cache_read_input_tokens"), _count(raw, "cache_creation_input_tokens")]
    if given is not None and any(apart):
        given += sum(count or 0 for count in apart)
        cached = apart[0]
    usage = Usage(
        input_tokens=given,
        output_tokens=_count(raw, "output_tokens", "completion_tokens", "output", "total_completion_tokens"),
        cached_tokens=cached,
        cost_usd=next((number(raw[key]) for key in ("cost_usd", "total_cost_usd", "total_cost") if key in raw), None),
    )
    return None if usage == Usage() else usage


def _count(raw: dict[str, Any], *names: str) -> int | None:
    found = (raw.get(name) for name in names)
    return next((int(v) for v in found if isinstance(v, int | float) and not isinstance(v, bool) and v >= 0), None)
