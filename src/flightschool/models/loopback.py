"""A model server on this machine's loopback: scripted, or recording a real one once and replaying it ever after.

Tests talk real HTTP to it, so nothing of the client is left out. A *cassette* is a file of JSON lines, one a request:
its key (a digest of the request, random fences masked) and the reply. No header is kept, hence no key of any server.
"""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from flightschool.digest import digest
from flightschool.errors import FlightschoolError, InputError
from flightschool.models.client import ChatClient
from flightschool.models.endpoint import OPENAI, Completion, Endpoint, RefusedRequestError
from flightschool.records import Json, Message

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler

__all__ = ["Cassette", "LoopbackServer", "Reply", "chat_reply", "message_reply"]

_MOST_BYTES = 32 << 20
_RANDOM = re.compile(r"[0-9a-f]{32}")
_NO_FENCE = "0" * 32
_MESSAGES = "/v1/messages"
_PATHS = frozenset({"/v1/chat/completions", _MESSAGES})
_NO_VERSION = {
    "type": "error",
    "error": {"type": "invalid_request_error", "message": "anthropic-version: header is required"},
}


@dataclass(frozen=True)
class Reply:
    """What a server answers to one request."""

    body: Json
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Respond = Callable[[dict[str, Json]], Reply]


def chat_reply(text: str, *, finish: str = "stop", model: str = "loopback") -> Reply:
    """A reply of the chat format that says ``text``."""
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 0, "completion_tokens": len(text.split()), "total_tokens": len(text.split())}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return Reply({"object": "chat.completion", "model": model, "choices": [choice], "usage": usage})


def message_reply(text: str, *calls: tuple[str, str, Mapping[str, Json]], stop: str = "") -> Reply:
    """A reply of Anthropic's Messages format that says ``text`` and asks for calls, each (id, tool, arguments)."""
    said: list[Json] = [{"type": "text", "text": text}] if text else []
    asked: list[Json] = [{"type": "tool_use", "id": key, "name": name, "input": dict(a)} for key, name, a in calls]
    return Reply(
        {
            "id": "msg_loopback",
            "type": "message",
            "role": "assistant",
            "model": "loopback",
            "content": said + asked,
            "stop_reason": stop or ("tool_use" if calls else "end_turn"),
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": len(text.split()) + len(calls)},
        }
    )


class LoopbackServer:
    """Serves ``POST /v1/chat/completions`` and ``/v1/messages`` on 127.0.0.1, on a port of the system's choice; a
    context manager.

    Args:
        respond: body of a request → reply; called by one thread a connection.
    """

    def __init__(self, respond: Respond) -> None:
        from http.server import ThreadingHTTPServer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(respond))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> LoopbackServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def reference(self, model: str = "loopback", dialect: str = OPENAI) -> str:
        """``openai:URL#MODEL`` of this server, or ``anthropic:URL#MODEL``."""
        base = f"http://127.0.0.1:{self._server.server_address[1]}"
        return f"{dialect}:{base}/v1#{model}" if dialect == OPENAI else f"{dialect}:{base}#{model}"


class Cassette:
    """Replies by request, kept in a file; what it does not hold is asked of ``upstream``, if there is one.

    The n-th request of a kind gets the n-th reply recorded for it; after the last, the last again.

    Args:
        path: the file; made when first recorded into.
        upstream: the real server to record; None: replay only.

    Raises:
        InputError: the file is no cassette.
    """

    def __init__(self, path: Path, upstream: Endpoint | None = None) -> None:
        self._path = path
        self._client = None if upstream is None else ChatClient(upstream)
        self._lock = threading.Lock()
        self._replies: defaultdict[str, list[Reply]] = defaultdict(list)
        self._served: defaultdict[str, int] = defaultdict(int)
        if path.exists():
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                self._load(line, number)

    def __call__(self, request: dict[str, Json]) -> Reply:
        """The reply to one request."""
        key = request_key(request)
        with self._lock:
            known, served = self._replies[key], self._served[key]
            if served < len(known) or (known and self._client is None):
                self._served[key] += 1
                return _with_fence(known[min(served, len(known) - 1)], _NO_FENCE, _fence_of(request))
        if self._client is None:
            return Reply({"error": {"message": "this request was never recorded"}}, status=404)
        reply = self._ask(self._client, request)
        kept = _with_fence(reply, _fence_of(request), _NO_FENCE)
        with self._lock:
            self._replies[key].append(kept)
            self._served[key] += 1
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "status": kept.status, "body": kept.body}) + "\n")
        return reply

    def close(self) -> None:
        """Close the connections to the real server."""
        if self._client is not None:
            self._client.close()

    def _ask(self, client: ChatClient, request: dict[str, Json]) -> Reply:
        messages = [Message(role=str(m["role"]), content=str(m["content"])) for m in request["messages"]]
        try:
            answer: Completion = client.complete(
                messages,
                max_tokens=int(request.get("max_tokens", 512)),
                temperature=float(request.get("temperature", 0.0)),
                seed=request.get("seed"),
            )
        except RefusedRequestError as error:
            return Reply({"error": {"message": error.what}}, status=400)
        except FlightschoolError as error:
            return Reply({"error": {"message": error.what}}, status=502)
        return chat_reply(answer.text, finish=answer.finish, model=answer.model)

    def _load(self, line: str, number: int) -> None:
        try:
            row = json.loads(line)
            self._replies[str(row["key"])].append(Reply(row["body"], status=int(row["status"])))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"no line of a cassette: {error}",
                where=f"{self._path}:{number}",
                expected='{"key", "status", "body"}',
                mend="record it anew",
            ) from error


def request_key(request: Mapping[str, Json]) -> str:
    """Digest of a request in which every random fence (32 hexadecimal digits) counts as the same."""
    text = json.dumps(request, sort_keys=True, ensure_ascii=False)
    return digest(_RANDOM.sub(_NO_FENCE, text).encode("utf-8", "surrogatepass"))


def _fence_of(request: Mapping[str, Json]) -> str:
    found = _RANDOM.search(json.dumps(request, ensure_ascii=False))
    return found.group() if found else _NO_FENCE


def _with_fence(reply: Reply, old: str, new: str) -> Reply:
    """A judge repeats the fence of its request: a kept reply is served with the fence of the present one."""
    return Reply(json.loads(json.dumps(reply.body).replace(old, new)), reply.status, reply.headers)


def _handler(respond: Respond) -> type[BaseHTTPRequestHandler]:
    from http.server import BaseHTTPRequestHandler

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", "0"))
            data = self.rfile.read(min(length, _MOST_BYTES))
            try:
                request = json.loads(data)
                known = self.path in _PATHS and isinstance(request, dict)
                reply = respond(request) if known else Reply({"error": {"message": "no such service"}}, status=404)
                if known and self.path == _MESSAGES and "anthropic-version" not in self.headers:
                    reply = Reply(_NO_VERSION, status=400)  # as the real service
            except ValueError as error:
                reply = Reply({"error": {"message": str(error)}}, status=400)
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's own name
            """Say nothing: the standard error is the caller's."""

    return Handler
