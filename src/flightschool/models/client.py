"""A client of the OpenAI chat format over HTTP, with retries.

What may pass by itself is tried again with growing, jittered pauses (or those that the server names in
``Retry-After``): refused connections, time-outs, 408, 409, 425, 429, 5xx, and bodies that are no answer. What cannot
pass is not: a wrong key, a missing model, a request that the server refuses for what it holds.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from flightschool.errors import InfrastructureError
from flightschool.models.endpoint import CallCompletion, Completion, Endpoint, RawCall, RefusedRequestError
from flightschool.records import Json, Message, ToolSpec

if TYPE_CHECKING:
    import httpx2

__all__ = ["ChatClient", "Retries"]

A = TypeVar("A")

_MOST_BYTES = 8 << 20
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_REFUSED = frozenset({400, 413, 422})
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_LONGEST_TOLD = 300


@dataclass(frozen=True)
class Retries:
    """How often and how patiently."""

    most_tries: int = 5
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0

    def pause_s(self, number: int, told_s: float | None, jitter: float) -> float:
        """Seconds before try ``number`` + 1: what the server told, else exponential back-off with full jitter.

        Full jitter (a uniform share of the exponential bound) spreads clients that failed together (M. Brooker, AWS
        Architecture Blog, 2015).
        """
        if told_s is not None:
            return min(max(told_s, 0.0), self.longest_pause_s)
        return float(jitter * min(self.longest_pause_s, self.first_pause_s * 2 ** (number - 1)))


@dataclass(frozen=True)
class Again:
    """A try that failed and may be repeated."""

    why: str
    told_s: float | None = None


class ChatClient:
    """Asks one model (``endpoint.ChatModel``). Keeps connections open; a context manager; safe to share by threads.

    Args:
        endpoint: server, model, and the variable that holds the key.
        timeout_s: seconds for one try, from connecting to the last byte of the answer.
        retries: see there.
        sleep: how pauses pass.

    Raises:
        InputError: the key is not in the environment.
    """

    _format = "OpenAI chat format"

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        timeout_s: float = 60.0,
        retries: Retries | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        import httpx2

        self.endpoint = endpoint
        self._timeout_s = timeout_s
        self._retries = retries or Retries()
        self._sleep = sleep
        key = endpoint.key()
        url = httpx2.URL(endpoint.url)
        self._http = httpx2.Client(
            headers=self._headers(key),
            timeout=timeout_s,
            follow_redirects=False,  # a redirect could carry the key elsewhere
            trust_env=url.host not in _LOOPBACK,  # a proxy does not reach this machine's own loopback
        )

    def _headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _address(self) -> str:
        return f"{self.endpoint.url}/chat/completions"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Completion:
        """The next assistant message (see ``ChatModel``)."""
        body: dict[str, Json] = {
            "model": self.endpoint.model,
            "messages": [{"role": message.role, "content": sendable(message.content)} for message in messages],
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
        if seed is not None:
            body["seed"] = seed
        return self._ask(body, _completion)

    def call(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        max_tokens: int = 1024,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> CallCompletion:
        """The next assistant message of a model that may call tools. Raises as ``complete``."""
        body: dict[str, Json] = {
            "model": self.endpoint.model,
            "messages": [_message(message) for message in messages],
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
        if tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": t.name, "description": t.description, "parameters": t.parameters},
                }
                for t in tools
            ]
        if seed is not None:
            body["seed"] = seed
        return self._ask(body, _call_completion)

    def _ask(self, body: dict[str, Json], read: Callable[[bytes, int], A | Again]) -> A:
        """Ask until there is an answer that can be read."""
        failures: list[str] = []
        for number in range(1, self._retries.most_tries + 1):
            answer = self._try(body, number, read)
            if not isinstance(answer, Again):
                return answer
            failures.append(answer.why)
            if number < self._retries.most_tries:
                # jitter is for the network's sake; nothing that is recorded depends on it
                self._sleep(self._retries.pause_s(number, answer.told_s, random.random()))
        raise InfrastructureError(
            f"the text model gave no answer in {len(failures)} tries: {failures[-1]}",
            where=str(self.endpoint),
            expected=f"an answer in the {self._format}",
            mend="see that the server runs and is not overloaded, then judge again",
        )

    async def complete_async(
        self, messages: Sequence[Message], *, max_tokens: int = 512, temperature: float = 0.0, seed: int | None = None
    ) -> Completion:
        """The same in an event loop, which goes on meanwhile."""
        return await asyncio.to_thread(
            self.complete, messages, max_tokens=max_tokens, temperature=temperature, seed=seed
        )

    def _try(self, body: dict[str, Json], number: int, read: Callable[[bytes, int], A | Again]) -> A | Again:
        import httpx2

        started = time.monotonic()
        try:
            with self._http.stream("POST", self._address(), json=body) as response:
                data = bytearray()
                for chunk in response.iter_bytes():
                    data += chunk
                    if len(data) > _MOST_BYTES:
                        return Again(f"an answer of more than {_MOST_BYTES} bytes")
                    if time.monotonic() - started > self._timeout_s:  # a server may send a byte now and then for ever
                        return Again(f"no whole answer in {self._timeout_s:g} s")
        except httpx2.HTTPError as error:
            return Again(f"{type(error).__name__}: {error}")
        if response.status_code == 200:
            return read(bytes(data), number)
        return self._failure(response, bytes(data))

    def _failure(self, response: httpx2.Response, data: bytes) -> Again:
        status = response.status_code
        told = data[:_LONGEST_TOLD].decode("utf-8", "replace")
        if status in _AGAIN:
            return Again(f"HTTP {status}: {told}", _told_s(response.headers.get("retry-after")))
        if status in _REFUSED:
            raise RefusedRequestError(
                f"the server refuses the request: HTTP {status}: {told}",
                where=str(self.endpoint),
                expected="a request within the model's context and the server's rules",
                mend="shorten the request, or see what the server says of it",
            )
        raise InfrastructureError(
            f"the server does not serve this: HTTP {status}: {told}",
            where=str(self.endpoint),
            expected="status 200",
            mend=_MENDS.get(status, "check the address"),
        )


_MENDS = {
    401: "check the key in the environment variable of the endpoint",
    403: "check what the key may do",
    404: "check the base address (it usually ends in /v1) and the model's name",
}


def _completion(data: bytes, number: int) -> Completion | Again:
    try:
        reply: Any = json.loads(data)
        choice = reply["choices"][0]
        text, usage = choice["message"].get("content"), reply.get("usage") or {}
        finish = choice.get("finish_reason") or "stop"
        if not isinstance(text, str | None) or not isinstance(finish, str):
            raise TypeError("content is no text")
        counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        return Again(f"no chat completion: {type(error).__name__}: {error}")
    prompt, completion = (count if isinstance(count, int) and count >= 0 else 0 for count in counts)
    model = reply.get("model")
    return Completion(
        text=text or "",
        finish=finish,
        model=model if isinstance(model, str) else "",
        num_prompt_tokens=prompt,
        num_completion_tokens=completion,
        num_tries=number,
    )


def _call_completion(data: bytes, number: int) -> CallCompletion | Again:
    plain = _completion(data, number)
    if isinstance(plain, Again):
        return plain
    try:
        asked = json.loads(data)["choices"][0]["message"].get("tool_calls") or []
        calls = tuple((str(one.get("id") or ""), _function(one)) for one in asked)
        named = tuple(RawCall(id=key, name=str(f["name"]), arguments=_text_of(f.get("arguments"))) for key, f in calls)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Again(f"no chat completion: {type(error).__name__}: {error}")
    return CallCompletion(said=plain, calls=named)


def _function(call: Any) -> dict[str, Any]:
    function = call["function"]
    if not isinstance(function, dict):
        raise TypeError("a call without a function")
    return function


def _text_of(arguments: Any) -> str:
    """Arguments as text: servers send JSON in a string, some the object itself."""
    return arguments if isinstance(arguments, str) else json.dumps({} if arguments is None else arguments)


def _message(message: Message) -> dict[str, Json]:
    line: dict[str, Json] = {"role": message.role, "content": sendable(message.content)}
    if message.tool_calls:
        line["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        line["tool_call_id"] = message.tool_call_id
    return line


def _told_s(header: str | None) -> float | None:
    """Seconds of a ``Retry-After`` header (RFC 9110, 10.2.3): a number, or a date."""
    if not header:
        return None
    try:
        seconds = float(header)
        return seconds if 0.0 <= seconds < float("inf") else None
    except ValueError:
        pass
    try:
        at = email.utils.parsedate_to_datetime(header)
    except (ValueError, TypeError):
        return None
    return max(0.0, at.timestamp() - time.time())


def sendable(text: str) -> str:
    """A lone surrogate has no UTF-8 form and would break the request."""
    return text.encode("utf-8", "backslashreplace").decode()
