"""A model that somebody else speaks for: an OpenAI-compatible endpoint on loopback, answered from over the pipe.

verifiers runs its own loop and asks a model. Here the model is whoever acts in our episode: a request waits until the
next action is there, and what the loop asks next is what the action brought about. One address a session, so that
nothing can be answered in another's place.
"""

from __future__ import annotations

import json
import queue
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

__all__ = ["MODEL", "Asked", "Ended", "Exchange", "serve"]

MODEL = "policy"


class Asked(NamedTuple):
    """The loop wants the next message of the model."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]


class Ended(NamedTuple):
    """The loop is over."""

    reward: float
    broken: str
    """What broke that no model could have caused; empty: nothing."""


class Exchange:
    """What one session asks and is told. ``hear`` and ``say`` in turn, from one thread."""

    def __init__(self) -> None:
        self.key = secrets.token_urlsafe(16)
        self._asked: queue.SimpleQueue[Asked | Ended] = queue.SimpleQueue()
        self._said: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def hear(self, timeout_s: float) -> Asked | Ended:
        """What the loop asks next, or that it is over. Raises ``queue.Empty`` when neither comes in time."""
        return self._asked.get(timeout=timeout_s)

    def say(self, message: dict[str, Any] | None) -> None:
        """The model's message; None: there will be none, since the session is closed."""
        self._said.put(message)

    def ask(self, asked: Asked) -> dict[str, Any] | None:
        """The other side of ``hear`` and ``say``: waits."""
        self._asked.put(asked)
        return self._said.get()

    def end(self, ended: Ended) -> None:
        """The loop is over."""
        self._asked.put(ended)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.exchanges: dict[str, Exchange] = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def open(self) -> tuple[Exchange, str]:
        """A new session and the base URL of its model."""
        made = Exchange()
        self.exchanges[made.key] = made
        return made, f"http://127.0.0.1:{self.server_address[1]}/{made.key}/v1"

    def forget(self, exchange: Exchange) -> None:
        """The session is over: whoever still waits for an answer is told so."""
        self.exchanges.pop(exchange.key, None)
        exchange.say(None)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """``/KEY/v1/chat/completions``."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        exchange = self.server.exchanges.get(self.path.strip("/").partition("/")[0])
        if exchange is None or not self.path.endswith("/chat/completions"):
            return self._answer(404, {"error": {"message": "no such model"}})
        asked = json.loads(body)
        message = exchange.ask(Asked(asked["messages"], asked.get("tools") or []))
        if message is None:
            return self._answer(410, {"error": {"message": "the session is closed"}})
        return self._answer(200, _completion(message))

    def do_GET(self) -> None:
        """``/KEY/v1/models``: the one model."""
        self._answer(200, {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "policy"}]})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name that the base gives it
        """Nothing is logged."""

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def _completion(message: dict[str, Any]) -> dict[str, Any]:
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "id": "chatcmpl-" + secrets.token_hex(8),
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


_made: list[_Server] = []


def serve() -> _Server:
    """The one server of this process."""
    if not _made:
        _made.append(_Server())
    return _made[0]
