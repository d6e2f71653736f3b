"""The same server as an ASGI application, for runtimes that start one themselves (``server.app:app``).

``flightschool serve env`` does without: its own loop is several times cheaper a step.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from flightschool.records import Json
from flightschool.rollouts.gateway.server import Request, Response
from flightschool.serving.episode import Offer
from flightschool.serving.openenv.server import OpenEnvServer, ServerSettings
from flightschool.serving.openenv.sockets import serve_socket
from flightschool.serving.openenv.words import encode
from flightschool.serving.tasks import TaskDesk

__all__ = ["AsgiApp"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class AsgiApp:
    """An ASGI 3 application over one environment.

    Args:
        offer: what is served.
        desk: its tasks.
        settings: as for the server.
    """

    def __init__(self, offer: Offer, desk: TaskDesk, settings: ServerSettings | None = None) -> None:
        self._settings = settings or ServerSettings()
        self._server = OpenEnvServer(offer, desk, self._settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, or the life of the application."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await _answer(await self._http(scope, receive), send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._server.keep()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self._server.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _http(self, scope: Scope, receive: Receive) -> Response:
        request = _request(scope)
        refusal = self._server.refusal(request)
        if refusal is not None:
            return refusal
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._settings.most_message_bytes:
                return Response(413, b'{"detail": "the body is too long"}')
        return await self._server.handle(
            Request(request.method, request.path, request.headers, body, query=request.query)
        )

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        request = _request(scope)
        if self._server.refusal(request) is not None:
            await send({"type": "websocket.close", "code": 1008})
            return
        await send({"type": "websocket.accept"})
        socket = _AsgiSocket(receive, send)
        await serve_socket(request, socket, self._server.sessions)


class _AsgiSocket:
    """A WebSocket that the runtime speaks for us."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._closed = False
        self._reading: asyncio.Task[Any] | None = None

    async def messages(self) -> AsyncIterator[bytes]:
        self._reading = asyncio.current_task()
        while True:
            message = await self._receive()
            if message["type"] != "websocket.receive":
                self._closed = True
                return
            text = message.get("text")
            yield text.encode("utf-8", "surrogatepass") if text is not None else message.get("bytes") or b""

    async def send(self, message: Json) -> None:
        await self._send({"type": "websocket.send", "text": encode(message).decode()})

    async def close(self, code: int = 1000, reason: str = "") -> None:
        if not self._closed:
            self._closed = True
            await self._send({"type": "websocket.close", "code": int(code), "reason": reason})

    def drop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()


def _request(scope: Scope) -> Request:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    if scope["type"] == "websocket":
        headers["upgrade"] = "websocket"
    query = scope.get("query_string", b"").decode("latin-1")
    return Request(scope.get("method", "GET"), scope["path"], headers, query=query)


async def _answer(response: Response, send: Send) -> None:
    headers = {"content-type": response.content_type, "content-length": str(len(response.body)), **response.headers}
    rows = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": rows})
    await send({"type": "http.response.body", "body": response.body})
