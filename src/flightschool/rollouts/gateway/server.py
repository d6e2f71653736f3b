"""A small HTTP/1.1 server for loopback, on asyncio streams.

The core depends on no web framework, and four routes need none. What is spoken: requests with ``Content-Length``,
kept-alive connections, ``Expect: 100-continue``. What is not is refused by its status: chunked bodies (411), heads and
bodies over their bounds (431, 413), broken requests (400). Every connection is a task of its own with time limits, so
a slow or broken client holds up itself only. When a client goes away while its answer is made, the handler is
cancelled: nothing is sampled for no one.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

__all__ = ["HttpServer", "Limits", "Request", "Response"]

_SEPARATOR = b"\r\n\r\n"


@dataclass(frozen=True)
class Limits:
    """What a client may use up."""

    most_head_bytes: int = 32 << 10
    most_body_bytes: int = 8 << 20
    most_connections: int = 1024
    idle_s: float = 600.0
    """A kept-alive connection without a request is closed after this."""
    transfer_s: float = 30.0
    """Longest time for a body to arrive, or for an answer to be taken."""


@dataclass(frozen=True)
class Request:
    """One request; names of headers in lower case."""

    method: str
    path: str
    """Without the query."""
    headers: Mapping[str, str]
    body: bytes = b""
    query: str = ""


@dataclass(frozen=True)
class Response:
    """One answer."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


class _RefusedError(Exception):
    """The request cannot be read any further; the connection ends with this status."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


Handle = Callable[[Request], Awaitable[Response]]
Admit = Callable[[Request], "Response | None"]
Refuse = Callable[[int, str], Response]
Upgrade = Callable[[Request, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class HttpServer:
    """Serves 127.0.0.1 on a port that the system chooses, unless told otherwise.

    Args:
        handle: answers a whole request.
        admit: sees a request before its body is read; a response refuses it.
        refuse: body of an answer to what could not be read.
        limits: see there.
        upgrade: takes over a connection whose request asks for a WebSocket; without it, such requests are plain ones.
    """

    def __init__(
        self,
        handle: Handle,
        *,
        admit: Admit,
        refuse: Refuse,
        limits: Limits | None = None,
        upgrade: Upgrade | None = None,
    ) -> None:
        self._handle = handle
        self._admit = admit
        self._refuse = refuse
        self._limits = limits or Limits()
        self.upgrade = upgrade
        self.on_end: Callable[[], None] | None = None
        """Called when an adopted connection has ended."""
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_server(
            self._connected, host, port, family=socket.AF_INET, limit=self._limits.most_head_bytes
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def listen_at(self, listener: socket.socket) -> None:
        """Begin to listen at a socket that was made elsewhere."""
        self._server = await asyncio.start_server(self._connected, sock=listener, limit=self._limits.most_head_bytes)
        self.port = listener.getsockname()[1]

    async def adopt(self, connection: socket.socket) -> None:
        """Serve a connection that was accepted elsewhere."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=self._limits.most_head_bytes, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, self._adopted, loop=loop)
        await loop.connect_accepted_socket(lambda: protocol, connection)

    async def close(self) -> None:
        """Stop listening and end all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._connections) >= self._limits.most_connections:
            writer.close()
            return
        self._connections.add(task)
        try:
            await _Connection(self, reader, writer).serve()
        except asyncio.CancelledError:
            pass  # the server is closing; whoever closes it waits for the connection's end, not for its answer
        finally:
            self._connections.discard(task)
            writer.close()

    async def _adopted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._connected(reader, writer)
        finally:
            if self.on_end is not None:
                self.on_end()

    # ------------------------------------------------------------------ what a connection needs

    @property
    def limits(self) -> Limits:
        """What a client may use up."""
        return self._limits

    def admit(self, request: Request) -> Response | None:
        """Refuse a request by its head."""
        return self._admit(request)

    async def handle(self, request: Request) -> Response:
        """Answer a request."""
        return await self._handle(request)

    def refuse(self, status: int, message: str) -> Response:
        """An answer to what could not be read."""
        return self._refuse(status, message)


class _Connection:
    """One client, request after request."""

    def __init__(self, server: HttpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._ahead = b""
        """A byte of the next request, read while the client was watched."""

    async def serve(self) -> None:
        try:
            while await self._one():
                pass
        except _RefusedError as refused:
            await self._tell(self._server.refuse(refused.status, str(refused)), keep=False)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return  # the client is gone or too slow; there is no one to tell

    async def _one(self) -> bool:
        """Serve one request; whether another may follow."""
        request = await self._head()
        refusal = self._server.admit(request)
        if refusal is not None:
            await self._tell(refusal, keep=False)  # its body was not read
            return False
        if self._server.upgrade is not None and request.headers.get("upgrade", "").lower() == "websocket":
            await self._server.upgrade(request, self._reader, self._writer)
            return False
        response = await self._answer(await self._with_body(request))
        if response is None:
            return False
        keep = request.headers.get("connection", "").lower() != "close"
        await self._tell(response, keep=keep)
        return keep

    async def _head(self) -> Request:
        limits = self._server.limits
        try:
            head = self._ahead + await asyncio.wait_for(self._reader.readuntil(_SEPARATOR), limits.idle_s)
        except asyncio.LimitOverrunError:
            raise _RefusedError(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head of more than {limits.most_head_bytes} bytes"
            ) from None
        self._ahead = b""
        return _parse_head(head)

    async def _with_body(self, request: Request) -> Request:
        length = _body_length(request, self._server.limits.most_body_bytes)
        if not length:
            return request
        if request.headers.get("expect", "").lower() == "100-continue":
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await asyncio.wait_for(self._reader.readexactly(length), self._server.limits.transfer_s)
        return Request(request.method, request.path, request.headers, body, request.query)

    async def _answer(self, request: Request) -> Response | None:
        """The handler's answer, or None when the client went away."""
        work = asyncio.ensure_future(self._server.handle(request))
        watch = asyncio.ensure_future(self._reader.readexactly(1))
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
            if watch.done() and not self._still_there(watch):
                return None
            return await work
        finally:
            for task in (work, watch):
                task.cancel()
            await asyncio.gather(work, watch, return_exceptions=True)
            if not watch.cancelled():
                self._still_there(watch)

    def _still_there(self, watch: asyncio.Future[bytes]) -> bool:
        """Whether a watch ended since the next request came early; its byte is kept."""
        if watch.exception() is not None:
            return False
        self._ahead = watch.result()
        return True

    async def _tell(self, response: Response, *, keep: bool) -> None:
        phrase = HTTPStatus(response.status).phrase
        lines = [
            f"HTTP/1.1 {response.status} {phrase}",
            f"Content-Type: {response.content_type}",
            f"Content-Length: {len(response.body)}",
            f"Connection: {'keep-alive' if keep else 'close'}",
            *(f"{name}: {value}" for name, value in response.headers.items()),
        ]
        self._writer.write("\r\n".join(lines).encode("latin-1", "replace") + _SEPARATOR + response.body)
        await asyncio.wait_for(self._writer.drain(), self._server.limits.transfer_s)


def _parse_head(head: bytes) -> Request:
    """Request line and headers (RFC 9112)."""
    first, *rows = head[: -len(_SEPARATOR)].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _RefusedError(HTTPStatus.BAD_REQUEST, "not an HTTP/1.1 request")
    headers: dict[str, str] = {}
    for row in rows:
        name, colon, value = row.partition(":")
        if not colon or not name or name != name.strip():
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "a broken header")
        name = name.lower()
        if name in headers and name in ("content-length", "authorization"):
            raise _RefusedError(HTTPStatus.BAD_REQUEST, f"two headers {name}")
        headers[name] = value.strip()
    path, _, query = words[1].partition("?")
    return Request(words[0], path, headers, query=query)


def _body_length(request: Request, most: int) -> int:
    if "transfer-encoding" in request.headers:
        raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "send the body with Content-Length, not in chunks")
    told = request.headers.get("content-length", "0")
    if not (told.isascii() and told.isdigit()):
        raise _RefusedError(HTTPStatus.BAD_REQUEST, "Content-Length is no number")
    if len(told) > 12 or int(told) > most:
        raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body of more than {most} bytes")
    return int(told)
