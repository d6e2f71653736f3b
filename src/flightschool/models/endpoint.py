"""Where a text model answers, and what it said."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urlsplit

from flightschool.errors import InfrastructureError, InputError
from flightschool.records import Message, Record

__all__ = [
    "ANTHROPIC",
    "OPENAI",
    "CallCompletion",
    "ChatModel",
    "Completion",
    "Endpoint",
    "RawCall",
    "RefusedRequestError",
    "parse_endpoint",
]

OPENAI, ANTHROPIC = "openai", "anthropic"


class Endpoint(Record, frozen=True, kw_only=True):
    """A server, and the model asked for there."""

    url: str
    """Base address, without ``/chat/completions`` or ``/messages`` and without a slash at its end."""
    model: str
    dialect: str = OPENAI
    """``openai``: the OpenAI chat format; ``anthropic``: Anthropic's Messages format."""
    key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; empty: the server wants none. The key itself is in no record."""

    def __str__(self) -> str:
        return f"{self.dialect}:{self.url}#{self.model}"

    def key(self) -> str:
        """The key, from the environment.

        Raises:
            InputError: the variable is not set.
        """
        if not self.key_env:
            return ""
        found = os.environ.get(self.key_env, "").strip()
        if not found or not found.isascii() or not found.isprintable():
            raise InputError(
                f"no usable key in the environment variable {self.key_env}",
                where=str(self),
                expected="a key in the environment; keys are read from nowhere else",
                mend=f"export {self.key_env}=…, or name no variable if the server wants no key",
            )
        return found


class Completion(Record, frozen=True, kw_only=True):
    """What a model answered."""

    text: str
    finish: str
    """As the server names it: ``stop``, ``length``, ``content_filter`` …"""
    model: str = ""
    """The model that the server says it ran."""
    num_prompt_tokens: int = 0
    num_completion_tokens: int = 0
    num_tries: int = 1
    """Requests that it took."""


class RawCall(Record, frozen=True, kw_only=True):
    """A tool call as the model wrote it."""

    id: str
    name: str
    arguments: str
    """What should be a JSON object; the model may have written anything."""


class CallCompletion(Record, frozen=True, kw_only=True):
    """What a model with tools answered."""

    said: Completion
    calls: tuple[RawCall, ...] = ()


class RefusedRequestError(InfrastructureError):
    """The server works, and refuses this very request: too long, filtered, malformed. Not to be tried again."""


class ChatModel(Protocol):
    """A plain text model. Safe to share between threads."""

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Completion:
        """The next assistant message.

        Raises:
            InfrastructureError: no answer after all retries.
            RefusedRequestError: the server refuses this request and would accept others.
        """
        ...


def parse_endpoint(text: str, *, key_env: str = "OPENAI_API_KEY", dialects: Sequence[str] = (OPENAI,)) -> Endpoint:
    """``openai:URL#MODEL`` as an endpoint; ``anthropic:URL#MODEL`` where that dialect is allowed.

    Raises:
        InputError: it is not of that form, or holds a user name, a password or a query.
    """
    dialect, _, rest = text.partition(":")
    url, _, model = rest.partition("#")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    plain = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc and not parts.query
    if dialect not in dialects or not plain or not model.strip() or any(c.isspace() for c in url):
        forms = " or ".join(f"{name}:URL#MODEL" for name in dialects)
        raise InputError(
            "not an endpoint of a text model",  # the text itself may hold a key
            where=f"{parts.scheme}://{parts.hostname}" if plain else "endpoint",
            expected=f"{forms}, for instance openai:http://localhost:8000/v1#my-model, without user or query",
            mend="give the base address of the server and the model; keys come from the environment",
        )
    return Endpoint(url=url.rstrip("/"), model=model.strip(), dialect=dialect, key_env=key_env)
