"""Conversations with real servers, recorded once and replayed ever after, as HTTP transports of the client.

A file of JSON lines, one an exchange: method, path, body, status, text of the reply. No header is kept, hence no key.
Replay is strict: what was not asked when it was recorded is an error, so a client that changes what it asks must be
recorded again. Of equal requests the n-th gets the n-th reply.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2

from flightschool.digest import digest

__all__ = ["RecordingTransport", "ReplayTransport"]

_UNKEPT = ("weights_path", "model_path")
"""Paths of the machine that recorded."""


class RecordingTransport(httpx2.AsyncBaseTransport):
    """Passes requests on, and keeps both sides.

    Args:
        path: the file; an old one is replaced.
        hide: texts of replies that are not kept (folders of the machine).
        keep: path → keys of its JSON reply that are kept; of other paths, all are.
    """

    def __init__(self, path: Path, hide: Sequence[str] = (), keep: Mapping[str, Sequence[str]] | None = None) -> None:
        self._inner = httpx2.AsyncHTTPTransport()
        self._hide, self._keep = tuple(hide), keep or {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Ask the server; the reply is read whole before it is given on."""
        response = await self._inner.handle_async_request(request)
        data = await response.aread()
        row = {
            "method": request.method,
            "path": request.url.raw_path.decode(),
            "body": _kept(request),
            "status": response.status_code,
            "text": self._shown(request.url.path, data.decode()),
        }
        self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._file.flush()
        return httpx2.Response(response.status_code, content=data)

    def _shown(self, path: str, text: str) -> str:
        if path in self._keep:
            table = json.loads(text)
            text = json.dumps({key: table[key] for key in self._keep[path] if key in table})
        for part in self._hide:
            text = text.replace(part, "FOLDER")
        return text

    async def aclose(self) -> None:
        """Close the connection and the file."""
        await self._inner.aclose()
        self._file.close()


class ReplayTransport(httpx2.AsyncBaseTransport):
    """Answers from a recording.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._replies: defaultdict[str, deque[dict[str, Any]]] = defaultdict(deque)
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            self._replies[digest([row["method"], row["path"], row["body"]])].append(row)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The reply that was recorded."""
        replies = self._replies[digest([request.method, request.url.raw_path.decode(), _kept(request)])]
        if not replies:
            raise AssertionError(f"never recorded: {request.method} {request.url.path} {_kept(request)}")
        row = replies.popleft()
        return httpx2.Response(row["status"], content=row["text"].encode())

    @property
    def left(self) -> int:
        """Exchanges that were not replayed yet."""
        return sum(len(replies) for replies in self._replies.values())


def _kept(request: httpx2.Request) -> Any:
    body = json.loads(request.content) if request.content else None
    if isinstance(body, dict):
        for table in (body, body.get("kwargs")):
            if isinstance(table, dict):
                table.update(dict.fromkeys((key for key in _UNKEPT if key in table), "FOLDER"))
    return body
