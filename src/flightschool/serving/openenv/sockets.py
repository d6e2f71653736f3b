"""The WebSockets of OpenEnv: ``/ws``, one episode at a time, and ``/mcp``, JSON-RPC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Protocol
from urllib.parse import parse_qs

import msgspec

from flightschool.environments.openenv.frames import (
    Close,
    FrameError,
    FrameReader,
    Opcode,
    accept_key,
    close_frame,
    frame,
)
from flightschool.records import Json
from flightschool.rollouts.gateway.server import Request
from flightschool.serving.openenv.rpc import answer_rpc, read_rpc
from flightschool.serving.openenv.session import FailedError, Session
from flightschool.serving.openenv.sessions import FullError, Sessions
from flightschool.serving.openenv.words import (
    Code,
    InvalidError,
    Rpc,
    RpcError,
    encode,
    error_message,
    rpc_error,
    wrong,
)

__all__ = ["Channel", "Socket", "serve_socket", "upgraded"]

_CHUNK = 1 << 16
_KEYS = {
    "reset": {"type", "data"},
    "step": {"type", "data"},
    "state": {"type"},
    "close": {"type"},
    "mcp": {"type", "data"},
}


class Channel(Protocol):
    """A WebSocket as sessions see it."""

    def messages(self) -> AsyncIterator[bytes]:
        """Messages until the other side closes."""
        ...

    async def send(self, message: Json) -> None:
        """Send one JSON message."""
        ...

    async def close(self, code: int = ..., reason: str = ...) -> None:
        """Say goodbye; doing it again does nothing."""
        ...

    def drop(self) -> None:
        """End the connection without a word."""
        ...


class Socket:
    """One accepted WebSocket (``Channel``)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most_bytes: int) -> None:
        self.last_heard = time.monotonic()
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader(masked=True, most_bytes=most_bytes)
        self._closed = False

    async def messages(self) -> AsyncIterator[bytes]:
        """Messages until the other side closes or breaks the protocol; pings are answered in between."""
        while data := await self._reader.read(_CHUNK):
            self.last_heard = time.monotonic()
            try:
                found = self._frames.feed(data)
            except FrameError as error:
                await self.close(error.code, str(error))
                return
            for one in found:
                if one.opcode is Opcode.TEXT or one.opcode is Opcode.BINARY:
                    yield one.data
                elif one.opcode is Opcode.PING:
                    await self._write(frame(Opcode.PONG, one.data))
                elif one.opcode is Opcode.CLOSE:
                    await self.close(Close.NORMAL)
                    return

    async def send(self, message: Json) -> None:
        """Send one JSON message."""
        await self._write(frame(Opcode.TEXT, encode(message)))

    async def ping(self) -> None:
        """Ask the other side for a sign of life."""
        await self._write(frame(Opcode.PING, b""))

    async def close(self, code: int = Close.NORMAL, reason: str = "") -> None:
        """Say goodbye; doing it again does nothing."""
        if not self._closed:
            self._closed = True
            try:
                await self._write(close_frame(code, reason))
            except OSError:
                return  # nobody is there to hear it

    def drop(self) -> None:
        """End the connection without a word: nobody listens."""
        self._writer.transport.abort()

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


async def serve_socket(request: Request, socket: Channel, sessions: Sessions) -> None:
    """Serve a WebSocket to its end, and end the session that it owns."""
    named = parse_qs(request.query).get("session_id", [""])[0]
    rpc_only = request.path == "/mcp"
    session: Session | None = None
    try:
        try:
            session = _session(sessions, named, rpc_only=rpc_only)
        except FullError as error:
            await socket.send(_full(error, rpc_only=rpc_only))
            return
        except FailedError as error:
            await socket.send(error.frame)
            return
        session.socket = socket
        async for data in socket.messages():
            reply = await (_rpc(data, sessions, session) if rpc_only else _message(data, sessions, session))
            if reply is _GOODBYE:
                break
            if reply is not None:
                await socket.send(reply)
    except (ConnectionError, TimeoutError):
        return  # the client is gone; its session ends below
    finally:
        if session is not None:
            session.socket = None
            if not named:
                await sessions.end(session)
            else:
                session.attached = False
                if session.closing:
                    await sessions.end(session)
        await socket.close()


def upgraded(request: Request) -> bytes | None:
    """The answer that turns a request into a WebSocket, or None if it cannot."""
    key = request.headers.get("sec-websocket-key", "")
    if request.method != "GET" or request.headers.get("sec-websocket-version") != "13" or not key:
        return None
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept_key(key)}\r\n\r\n"
    ).encode("ascii")


def _session(sessions: Sessions, named: str, *, rpc_only: bool) -> Session:
    if not named:
        return sessions.create(starts_itself=rpc_only)
    session = sessions.find(named)
    if session is None:
        raise FailedError(Code.SESSION_ERROR, f"Unknown session_id: {named}")
    if session.attached:
        raise FailedError(Code.SESSION_ERROR, f"Session {named} already has an attached WebSocket")
    session.attached = True
    session.touch()
    return session


def _full(error: FullError, *, rpc_only: bool) -> Json:
    counts = {"active_sessions": error.active, "max_sessions": error.most}
    if rpc_only:
        return rpc_error(None, Rpc.SERVER_ERROR, str(error), counts)
    return error_message(Code.CAPACITY_REACHED, str(error), **counts)


_GOODBYE: dict[str, Json] = {}
"""Stands for the end that a client asks for."""


async def _message(data: bytes, sessions: Sessions, session: Session) -> dict[str, Json] | None:
    """The answer to one message of ``/ws``."""
    try:
        message = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return error_message(Code.INVALID_JSON, f"Invalid JSON: {error}")
    try:
        if not isinstance(message, dict):
            raise InvalidError(wrong("dict_type", (), "Input should be a valid dictionary", None))
        kind = message.get("type", "")
        known = _KEYS.get(kind) if isinstance(kind, str) else None
        if known is None:
            return error_message(Code.UNKNOWN_TYPE, f"Unknown message type: {str(kind)[:80]}")
        if not message.keys() <= known:
            extra = sorted(message.keys() - known)
            raise InvalidError(*(wrong("extra_forbidden", (key,), "Extra inputs are not permitted") for key in extra))
        return await _answer(kind, message, sessions, session)
    except InvalidError as error:
        return error_message(Code.VALIDATION_ERROR, "Invalid message", errors=error.errors)
    except FailedError as error:
        return error.frame


async def _answer(kind: str, message: dict[str, Json], sessions: Sessions, session: Session) -> dict[str, Json] | None:
    if kind == "step":
        if "data" not in message:
            raise InvalidError(wrong("missing", ("data",), "Field required", message))
        return {"type": "observation", "data": await session.step(message["data"])}
    if kind == "state":
        return {"type": "state", "data": session.state()}
    if kind == "close":
        return _GOODBYE
    data = message.get("data", {})
    if not isinstance(data, dict):
        raise InvalidError(wrong("dict_type", ("data",), "Input should be a valid dictionary", data))
    if kind == "reset":
        return {"type": "observation", "data": await session.reset(data)}
    reply = await answer_rpc(data, sessions, held=session)
    return None if reply.body is None else {"type": "mcp", "data": reply.body}


async def _rpc(data: bytes, sessions: Sessions, session: Session) -> dict[str, Json] | None:
    """The answer to one message of ``/mcp``."""
    try:
        message = read_rpc(data)
    except RpcError as error:
        return rpc_error(None, error.code, str(error))
    return (await answer_rpc(message, sessions, held=session)).body
