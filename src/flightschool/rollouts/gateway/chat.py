"""The OpenAI chat format: requests read into messages and tools, completions and errors written back.

Which parameters are taken, ignored or refused is told by the three tables below. How a policy is sampled belongs to
the run that trains it: a program that could set its own temperature would train on another distribution than the
trainer scores. Such parameters are ignored, and every answer lists those that were. What would change the *meaning* of
an answer (several choices, a forced call, a response format) is refused by its name. ``messages`` does the same for the
keys of messages.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from flightschool.records import Json, Message, SpanKind, TokenSpan, ToolCall, ToolSpec
from flightschool.rollouts.gateway.messages import ApiError, read_message, text_of, wrong
from flightschool.tools.wire import unusable_value

__all__ = [
    "Ask",
    "Said",
    "completion",
    "error_body",
    "event_stream",
    "read_ask",
    "read_object",
    "said_of",
    "shown_message",
    "shown_tool",
]

TAKEN = frozenset({"messages", "model", "n", "return_token_ids", "stream", "stream_options", "tool_choice", "tools"})
IGNORED = frozenset(
    {
        "frequency_penalty", "max_completion_tokens", "max_tokens", "metadata", "parallel_tool_calls",
        "presence_penalty", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort", "safety_identifier",
        "seed", "service_tier", "store", "temperature", "top_p", "user", "verbosity",
    }
)  # fmt: skip
NEUTRAL: Mapping[str, tuple[Json, ...]] = {
    "audio": (None,),
    "function_call": (None,),
    "functions": (None, []),
    "logit_bias": (None, {}),
    "logprobs": (None, False),
    "modalities": (None, ["text"]),
    "n": (None, 1),
    "prediction": (None,),
    "response_format": (None, {"type": "text"}),
    "stop": (None, "", []),
    "tool_choice": (None, "auto"),
    "top_logprobs": (None, 0),
    "web_search_options": (None,),
}
"""Parameters that are refused unless they say what is done anyway."""
_PIECE = 48
"""Characters of a streamed piece of text."""


@dataclass(frozen=True)
class Ask:
    """A request for a completion."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    model: str
    stream: bool = False
    include_usage: bool = False
    token_ids: bool = False
    """Whether the answer shows its tokens."""
    ignored: tuple[str, ...] = ()
    """Parameters given that change nothing here, and keys of messages, as ``messages.name``."""


@dataclass(frozen=True)
class Said:
    """What was completed."""

    number: int
    message: Message
    finish: str
    """``stop``, ``length`` or ``tool_calls``."""
    span: TokenSpan | None
    """None for policies without tokens."""
    num_prompt_tokens: int

    @property
    def usage(self) -> dict[str, int]:
        """Tokens before and in the completion."""
        num = len(self.span.token_ids_T) if self.span else 0
        prompt = self.num_prompt_tokens
        return {"prompt_tokens": prompt, "completion_tokens": num, "total_tokens": prompt + num}


# ------------------------------------------------------------------------------------------------ requests


def read_ask(body: bytes) -> Ask:
    """A request for a completion.

    Raises:
        ApiError: 400, naming the parameter.
    """
    table = read_object(body)
    for name in sorted(table):
        if name in NEUTRAL:
            if not any(table[name] is value or table[name] == value for value in NEUTRAL[name]):
                raise ApiError(400, f"{name} is not supported here", code="unsupported_parameter", param=name)
        elif name not in TAKEN and name not in IGNORED:
            raise ApiError(400, f"unknown parameter {name[:60]!r}", code="unknown_parameter", param=name[:60])
    options = table.get("stream_options") or {}
    if not isinstance(options, dict):
        raise wrong("stream_options", "an object")
    messages = table.get("messages")
    if not isinstance(messages, list) or not messages:
        raise wrong("messages", "a list of at least one message")
    tools, unused = _tools(table.get("tools") or []), set[str]()
    read = [read_message(row, f"messages[{i}]", unused) for i, row in enumerate(messages)]
    return Ask(
        messages=_with_tools_shown(_leading_system(read), tools),
        tools=tools,
        model=text_of(table.get("model", ""), "model"),
        stream=_flag(table, "stream"),
        include_usage=_flag(options, "include_usage"),
        token_ids=_flag(table, "return_token_ids"),
        ignored=tuple(sorted({name for name in IGNORED if table.get(name) is not None} | unused)),
    )


def read_object(body: bytes) -> dict[str, Json]:
    """The JSON object of a body."""
    try:
        table = msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:  # a decoding error is a ValueError
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(table, dict):
        raise ApiError(400, "the body must be a JSON object", code="invalid_json")
    problem = unusable_value({name: value for name, value in table.items() if name not in ("messages", "tools")})
    if problem is not None:
        raise ApiError(400, problem, code="invalid_value")
    return table


def _tools(rows: Json) -> tuple[ToolSpec, ...]:
    if not isinstance(rows, list):
        raise wrong("tools", "a list")
    return tuple(_tool(row, f"tools[{index}]") for index, row in enumerate(rows))


def _tool(row: Json, where: str) -> ToolSpec:
    inner = row.get("function") if isinstance(row, dict) and row.get("type") == "function" else None
    if not isinstance(inner, dict):
        raise wrong(where, '{"type": "function", "function": {…}}')
    parameters = inner.get("parameters") or {"type": "object", "properties": {}}
    if not isinstance(parameters, dict) or not _is_schema(parameters):
        raise wrong(f"{where}.function.parameters", "a JSON Schema of an object")
    return ToolSpec(
        name=text_of(inner.get("name"), f"{where}.function.name"),
        description=text_of(inner.get("description") or "", f"{where}.function.description"),
        parameters=parameters,
    )


def _is_schema(parameters: dict[str, Json]) -> bool:
    required = parameters.get("required", [])
    named = isinstance(required, list) and all(isinstance(name, str) for name in required)
    return named and isinstance(parameters.get("properties", {}), dict) and unusable_value(parameters) is None


def _leading_system(messages: list[Message]) -> list[Message]:
    """System messages at the head joined into one: tools are shown in it, and once."""
    num = next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
    if num < 2:
        return messages
    joined = "\n\n".join(message.content for message in messages[:num] if message.content)
    return [Message(role="system", content=joined), *messages[num:]]


def _with_tools_shown(messages: list[Message], tools: tuple[ToolSpec, ...]) -> tuple[Message, ...]:
    """Tools are rendered into the system turn, so there must be one."""
    bare = bool(tools) and messages[0].role != "system"
    return (Message(role="system"), *messages) if bare else tuple(messages)


def _flag(table: Mapping[str, Json], name: str) -> bool:
    value = table.get(name)
    if value is not None and not isinstance(value, bool):
        raise wrong(name, "true or false")
    return bool(value)


# ------------------------------------------------------------------------------------------------ answers


def completion(ask: Ask, said: Said, created: int | None = None) -> dict[str, Json]:
    """The answer as one object."""
    choice: dict[str, Json] = {
        "index": 0,
        "message": {"role": "assistant", "content": _shown_content(said), "refusal": None},
        "logprobs": None,
        "finish_reason": said.finish,
    }
    if said.message.tool_calls:
        choice["message"]["tool_calls"] = [_shown_call(call) for call in said.message.tool_calls]
    if ask.token_ids and said.span is not None:
        choice |= shown_tokens(said.span)
    return {**_envelope(ask, said, created, "chat.completion"), "choices": [choice], "usage": said.usage}


def event_stream(ask: Ask, said: Said, created: int | None = None) -> bytes:
    """The answer as server-sent events, as the OpenAI client accumulates them."""
    message = said.message
    deltas: list[dict[str, Json]] = [{"role": "assistant", "content": "" if message.content else None}]
    text = message.content
    deltas += [{"content": text[start : start + _PIECE]} for start in range(0, len(text), _PIECE)]
    for index, call in enumerate(message.tool_calls):
        shown = _shown_call(call)
        function = shown["function"]
        deltas.append({"tool_calls": [{"index": index, **shown, "function": {**function, "arguments": ""}}]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": function["arguments"]}}]})
    envelope = _envelope(ask, said, created, "chat.completion.chunk")
    chunks = [_chunk(envelope, delta, None) for delta in deltas]
    chunks.append(_chunk(envelope, {}, said.finish))
    if ask.token_ids and said.span is not None:
        chunks[-1]["choices"][0] |= shown_tokens(said.span)
    if ask.include_usage:
        chunks = [{**chunk, "usage": None} for chunk in chunks]
        chunks.append({**envelope, "choices": [], "usage": said.usage})
    events = [json.dumps(chunk, ensure_ascii=False, separators=(",", ":")) for chunk in chunks]
    return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()


def shown_tokens(span: TokenSpan) -> dict[str, Json]:
    """What was sampled, token by token: ids, log-probabilities, and the weights' step that drew each."""
    return {
        "token_ids": list(span.token_ids_T),
        "token_logprobs": list(span.logprobs_T),
        "token_versions": [run.step for run in span.versions for _ in range(run.count)],
        "span": span.id,
    }


def said_of(number: int, message: Message, spans: Sequence[TokenSpan], *, cut: bool) -> Said:
    """The completion just written: the last span of the forest, and the length of what stands above it."""
    span = spans[-1] if spans and spans[-1].kind is SpanKind.COMPLETION else None
    num_prompt, above = 0, span.parent if span else None
    while above is not None:
        num_prompt += len(spans[above].token_ids_T)
        above = spans[above].parent
    finish = "length" if cut else "tool_calls" if message.tool_calls else "stop"
    return Said(number, message, finish, span, num_prompt)


def shown_tool(spec: ToolSpec) -> dict[str, Json]:
    """A tool in the OpenAI shape."""
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}


def shown_message(message: Message) -> dict[str, Json]:
    """A message in the OpenAI shape."""
    shown: dict[str, Json] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        shown |= {
            "content": message.content or None,
            "tool_calls": [_shown_call(call) for call in message.tool_calls],
        }
    if message.role == "tool":
        shown["tool_call_id"] = message.tool_call_id
    return shown


def error_body(status: int, message: str, *, code: str | None = None, param: str | None = None) -> bytes:
    """An error in the OpenAI shape."""
    kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
    kind = kinds.get(status, "invalid_request_error" if status < 500 else "server_error")
    error = {"message": message, "type": kind, "param": param, "code": code}
    return json.dumps({"error": error}, ensure_ascii=False).encode()


def _envelope(ask: Ask, said: Said, created: int | None, kind: str) -> dict[str, Any]:
    created = int(time.time()) if created is None else created
    return {"id": f"chatcmpl-{said.number}", "object": kind, "created": created, "model": ask.model}


def _chunk(envelope: Mapping[str, Json], delta: Mapping[str, Json], finish: str | None) -> dict[str, Any]:
    choice = {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish}
    return {**envelope, "choices": [choice]}


def _shown_content(said: Said) -> str | None:
    return said.message.content if said.message.content or not said.message.tool_calls else None


def _shown_call(call: ToolCall) -> dict[str, Any]:
    plain = unusable_value(call.arguments) is None
    arguments = json.dumps(call.arguments, ensure_ascii=not plain)  # a lone surrogate can only be told escaped
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
