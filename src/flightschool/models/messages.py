"""The same client in Anthropic's dialect: ``POST /v1/messages`` (API version 2023-06-01).

What differs from the OpenAI chat format: the key travels as ``x-api-key``; house rules stand in ``system``; a call is
a ``tool_use`` block of the assistant's message with its ``input`` as an object, and all results of one turn stand
together as ``tool_result`` blocks in *one* message of the user; ``max_tokens`` is required and counts thoughts, and
there is no seed. Newer models know no temperature, so one is sent only where one above 0 is asked for. Thoughts before
a call are signed and must come back unchanged: a reply that called tools is sent again as it came, as long as nobody
edited it. Reasons to stop are given by the names of the OpenAI format, so that nobody else must know both.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from flightschool.errors import InputError
from flightschool.models.client import Again, ChatClient, Retries, sendable
from flightschool.models.endpoint import (
    ANTHROPIC,
    OPENAI,
    CallCompletion,
    Completion,
    Endpoint,
    RawCall,
    parse_endpoint,
)
from flightschool.records import Json, Message, ToolSpec

__all__ = ["MessagesClient", "client_of", "usual_key_env"]

API_VERSION = "2023-06-01"
_OURS = frozenset({"text", "tool_use"})
"""Kinds of blocks that a ``Message`` holds."""
_MOST_REPLIES = 4096
_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


def client_of(
    text: str,
    *,
    key_env: str,
    dialects: Sequence[str] = (OPENAI, ANTHROPIC),
    retries: Retries | None = None,
    timeout_s: float = 60.0,
) -> ChatClient:
    """A client for ``openai:URL#MODEL`` or ``anthropic:URL#MODEL``. Raises as ``parse_endpoint`` and ``ChatClient``."""
    endpoint = parse_endpoint(text, key_env=key_env, dialects=dialects)
    kind = MessagesClient if endpoint.dialect == ANTHROPIC else ChatClient
    return kind(endpoint, retries=retries, timeout_s=timeout_s)


def usual_key_env(text: str) -> str:
    """The variable that holds the key of an endpoint; a server on this machine wants none unless one is set."""
    name = "ANTHROPIC_API_KEY" if text.startswith(f"{ANTHROPIC}:") else "OPENAI_API_KEY"
    local = any(host in text for host in ("://127.0.0.1", "://localhost", "://[::1]"))
    return "" if local and not os.environ.get(name) else name


class MessagesClient(ChatClient):
    """Asks one model of a server of Anthropic's Messages format (see ``ChatClient``)."""

    _format = "Anthropic Messages format"

    def __init__(self, endpoint: Endpoint, *, timeout_s: float = 60.0, retries: Retries | None = None) -> None:
        super().__init__(endpoint, timeout_s=timeout_s, retries=retries)
        self._replies: OrderedDict[str, list[Json]] = OrderedDict()
        """First call's id → content of the reply that asked for it."""

    def _headers(self, key: str) -> dict[str, str]:
        return {"anthropic-version": API_VERSION, **({"x-api-key": key} if key else {})}

    def _address(self) -> str:
        """With or without ``/v1`` at its end: vendors' own clients want the base without."""
        return f"{self.endpoint.url.removesuffix('/v1')}/v1/messages"

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Completion:
        """The next assistant message. ``seed`` is not sent: the format has none."""
        return self.call(messages, (), max_tokens=max_tokens, temperature=temperature, seed=seed).said

    def call(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        max_tokens: int = 1024,
        temperature: float = 0.0,
        seed: int | None = None,  # noqa: ARG002 - the format has none
    ) -> CallCompletion:
        """The next assistant message of a model that may call tools.

        Raises:
            InputError: a temperature above 1.
            InfrastructureError, RefusedRequestError: as ``ChatClient.complete``.
        """
        if not 0 <= temperature <= 1:
            raise InputError(
                f"temperature {temperature:g}",
                where=str(self.endpoint),
                expected="0 to 1, the range of the Anthropic Messages format",
                mend="choose a lower temperature",
            )
        body: dict[str, Json] = {
            "model": self.endpoint.model,
            "max_tokens": max_tokens,
            "messages": _turns(messages, self._replies),
        }
        if temperature > 0:
            body["temperature"] = temperature
        rules = "\n\n".join(sendable(m.content) for m in messages if m.role == "system" and m.content)
        if rules:
            body["system"] = rules
        if tools:
            body["tools"] = [
                {"name": t.name, "description": t.description, "input_schema": {"type": "object", **t.parameters}}
                for t in tools
            ]
        return self._ask(body, self._read)

    def _read(self, data: bytes, number: int) -> CallCompletion | Again:
        answer = _read(data, number)
        if isinstance(answer, CallCompletion) and answer.calls:
            self._replies[answer.calls[0].id] = json.loads(data)["content"]
            while len(self._replies) > _MOST_REPLIES:
                self._replies.popitem(last=False)
        return answer


def _turns(messages: Sequence[Message], replies: Mapping[str, list[Json]]) -> list[Json]:
    """User and assistant in turn; what stands side by side on one side becomes blocks of one message."""
    turns: list[Json] = []
    for message in messages:
        blocks = [] if message.role == "system" else _blocks(message)
        if message.tool_calls:
            came = replies.get(message.tool_calls[0].id, [])
            blocks = came if [block for block in came if block["type"] in _OURS] == blocks else blocks
        if not blocks:  # an empty text is refused
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] = turns[-1]["content"] + blocks
        else:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: Message) -> list[Json]:
    text = sendable(message.content)
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": message.tool_call_id, "content": text}]
    said: list[Json] = [{"type": "text", "text": text}] if text.strip() else []
    calls = [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments} for c in message.tool_calls]
    return said + calls


def _read(data: bytes, number: int) -> CallCompletion | Again:
    try:
        reply: Any = json.loads(data)
        blocks = reply["content"]
        texts = [str(block["text"]) for block in blocks if block["type"] == "text"]
        calls = tuple(
            RawCall(id=str(block["id"]), name=str(block["name"]), arguments=json.dumps(block["input"]))
            for block in blocks
            if block["type"] == "tool_use"
        )
        stopped, usage = reply["stop_reason"] or "end_turn", reply.get("usage") or {}
        finish = _FINISH.get(stopped, stopped)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return Again(f"no message: {type(error).__name__}: {error}")
    cached = ("cache_creation_input_tokens", "cache_read_input_tokens")  # counted apart, and read all the same
    said = Completion(
        text="".join(texts),
        finish=str(finish),
        model=str(reply.get("model") or ""),
        num_prompt_tokens=sum(_count(usage.get(name)) for name in ("input_tokens", *cached)),
        num_completion_tokens=_count(usage.get("output_tokens")),
        num_tries=number,
    )
    return CallCompletion(said=said, calls=calls)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
