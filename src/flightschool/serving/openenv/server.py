"""An OpenEnv server: one process, one event loop.

Who may come in is decided before anything is read: the token, if there is one; else only programs of this machine, and
no web page (an ``Origin`` elsewhere) may speak to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import time
from dataclasses import dataclass, field
from types import TracebackType
from urllib.parse import urlsplit

from flightschool.environments.openenv.frames import MOST_MESSAGE_BYTES, Close
from flightschool.errors import InputError
from flightschool.rollouts.gateway.server import HttpServer, Limits, Request, Response
from flightschool.serving.episode import Offer
from flightschool.serving.openenv.passing import Passage
from flightschool.serving.openenv.routes import Mode, Routes, refuse
from flightschool.serving.openenv.session import SessionLimits
from flightschool.serving.openenv.sessions import Sessions
from flightschool.serving.openenv.sockets import Socket, serve_socket, upgraded
from flightschool.serving.openenv.words import FINAL_ANSWER, RESERVED
from flightschool.serving.tasks import TaskDesk

__all__ = ["OpenEnvServer", "ServerSettings"]

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", ""})
_PING_S = 20.0
_SILENT_S = 60.0
_HOUSEKEEPING_S = 1.0


@dataclass(frozen=True)
class ServerSettings:
    """How a server behaves."""

    most_sessions: int = 256
    """Sessions at once, over all processes."""
    limits: SessionLimits = field(default_factory=SessionLimits)
    mode: Mode = "simulation"
    token: str = ""
    """What clients must bring as ``Authorization: Bearer``; empty: nothing."""
    most_message_bytes: int = MOST_MESSAGE_BYTES


class OpenEnvServer:
    """Serves one environment; an asynchronous context manager, used in one event loop.

    Args:
        offer: what is served.
        desk: its tasks.
        settings: see there.
        passage: the way to sessions of sibling processes, if there are any.

    Raises:
        InputError: a tool has a name that is taken.
    """

    def __init__(
        self, offer: Offer, desk: TaskDesk, settings: ServerSettings | None = None, passage: Passage | None = None
    ) -> None:
        taken = sorted({spec.name for spec in offer.specs} & {*RESERVED, FINAL_ANSWER})
        if taken:
            raise InputError(
                f"the tool {taken[0]!r} has a name that the protocol or this server keeps for itself",
                where=f"environment {offer.environment.name!r}",
                expected=f"other names than {', '.join(sorted({*RESERVED, FINAL_ANSWER}))}",
                mend="rename the tool in the environment",
            )
        self._settings = settings or ServerSettings()
        self._passage = passage or Passage()
        self.sessions = Sessions(
            offer,
            desk,
            self._settings.limits,
            most=self._settings.most_sessions,
            passage=self._passage,
        )
        self._routes = Routes(offer, desk, self.sessions, self._settings.mode)
        limits = Limits(most_body_bytes=self._settings.most_message_bytes, most_connections=4096)
        self.http = HttpServer(self.handle, admit=self.refusal, refuse=refuse, limits=limits, upgrade=self._upgrade)
        self._sockets: set[Socket] = set()
        self._keeping: asyncio.Task[None] | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen, and begin to look after sessions."""
        await self.http.start(host, port)
        self.keep()

    def keep(self) -> None:
        """Look after sessions: close the forgotten, drop connections that nobody holds any more."""
        self._keeping = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        """Stop, and end all sessions."""
        if self._keeping is not None:
            self._keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeping
        await self.http.close()
        await self.sessions.close()

    async def __aenter__(self) -> OpenEnvServer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """Address without a path."""
        return f"http://127.0.0.1:{self.http.port}"

    # -------------------------------------------------------------------------------------------- requests

    def refusal(self, request: Request) -> Response | None:
        """Why a request is not let in, by its head."""
        if request.path != "/health" and not self._may(request):
            return refuse(401 if self._settings.token else 403, "this server does not know you")
        if request.headers.get("upgrade", "").lower() == "websocket":
            return None if request.path in ("/ws", "/mcp") else refuse(404, "Not Found")
        return self._routes.problem(request)

    def _may(self, request: Request) -> bool:
        token = self._settings.token
        if token:
            scheme, _, brought = request.headers.get("authorization", "").partition(" ")
            return scheme.lower() == "bearer" and hmac.compare_digest(_hidden(brought.strip()), _hidden(token))
        origin, host = request.headers.get("origin"), request.headers.get("host", "")
        return _is_here(f"//{host}") and (origin is None or _is_here(origin))

    async def handle(self, request: Request) -> Response:
        """Answer a plain request that was let in."""
        elsewhere = self._passage.port_of(request)
        if elsewhere:
            return await self._passage.forward(request, elsewhere)
        return await self._routes.handle(request)

    async def _upgrade(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        elsewhere = self._passage.port_of(request)
        if elsewhere:
            await self._passage.splice(request, elsewhere, reader, writer)
            return
        answer = upgraded(request)
        if answer is None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            return
        writer.write(answer)
        socket = Socket(reader, writer, self._settings.most_message_bytes)
        self._sockets.add(socket)
        try:
            await serve_socket(request, socket, self.sessions)
        finally:
            self._sockets.discard(socket)

    # -------------------------------------------------------------------------------------------- housekeeping

    async def _keep(self) -> None:
        pinged = 0.0
        while True:
            await asyncio.sleep(_HOUSEKEEPING_S)
            for session in self.sessions.forgotten():
                if session.socket is not None:
                    await session.socket.close(Close.GOING_AWAY, "idle for too long")
                    session.socket.drop()
                await self.sessions.end(session)
            now = time.monotonic()
            for socket in list(self._sockets):
                if socket.last_heard < now - _SILENT_S:
                    socket.drop()
                elif now - pinged > _PING_S:
                    with contextlib.suppress(OSError):
                        await socket.ping()
            if now - pinged > _PING_S:
                pinged = now


def _is_here(address: str) -> bool:
    try:
        return (urlsplit(address).hostname or "") in _LOOPBACK
    except ValueError:
        return False


def _hidden(word: str) -> bytes:
    return hashlib.sha256(word.encode("utf-8", "surrogateescape")).digest()
