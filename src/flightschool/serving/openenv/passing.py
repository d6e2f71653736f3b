"""The way from one server process to a sibling: a session lives in one, its requests may arrive at any.

Ids of sessions begin with the number of their process. A request for a session elsewhere is handed on over loopback,
a WebSocket is spliced; the sibling asks for the token itself.
"""

from __future__ import annotations

import asyncio
import mmap
import re
import struct
from collections.abc import Sequence
from urllib.parse import parse_qs

import msgspec

from flightschool.rollouts.gateway.server import Request, Response

__all__ = ["Passage", "Tally"]

_CHUNK = 1 << 16
_PLACE = struct.Struct("=Q")
_OWNER = re.compile(r"p(\d{1,4})-")


class _Params(msgspec.Struct):
    session_id: str | None = None


class _Named(msgspec.Struct):
    params: _Params | None = None


class Tally:
    """How many sessions each process holds, in memory that they share. Each writes its own place alone.

    Args:
        num_processes: places.
    """

    def __init__(self, num_processes: int) -> None:
        self._memory = mmap.mmap(-1, _PLACE.size * num_processes)
        self._num = num_processes

    def set(self, index: int, count: int) -> None:
        """What a process holds now."""
        _PLACE.pack_into(self._memory, _PLACE.size * index, count)

    def total_without(self, index: int) -> int:
        """What all others hold."""
        places = range(self._num)
        return sum(_PLACE.unpack_from(self._memory, _PLACE.size * place)[0] for place in places if place != index)


class Passage:
    """Where siblings listen, and how many sessions they hold.

    Args:
        index: number of this process.
        ports: loopback port of each process; empty: there is one only.
        tally: shared by all processes of a server.
    """

    def __init__(self, index: int = 0, ports: Sequence[int] = (), tally: Tally | None = None) -> None:
        self._index = index
        self._ports = tuple(ports)
        self._tally = tally
        self.prefix = f"p{index}-" if ports else ""

    def num_elsewhere(self) -> int:
        """Sessions in other processes."""
        return 0 if self._tally is None else self._tally.total_without(self._index)

    def tell(self, count: int) -> None:
        """How many sessions this process holds now."""
        if self._tally is not None:
            self._tally.set(self._index, count)

    def port_of(self, request: Request) -> int:
        """Port of the sibling that owns the session of a request; 0 if it is for this process."""
        if not self._ports:
            return 0
        found = _OWNER.match(_session_of(request))
        owner = self._index if found is None else int(found.group(1))
        return 0 if owner == self._index or owner >= len(self._ports) else self._ports[owner]

    async def forward(self, request: Request, port: int) -> Response:
        """Let a sibling answer."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return Response(503, b'{"detail": "the process of this session is gone"}')
        try:
            writer.write(_head(request) + request.body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = dict(row.split(": ", 1) for row in head[1:] if ": " in row)
            body = await reader.readexactly(int(headers.get("Content-Length", 0)))
        except (OSError, asyncio.IncompleteReadError, ValueError):
            return Response(503, b'{"detail": "the process of this session is gone"}')
        finally:
            writer.close()
        kept = {name: value for name, value in headers.items() if name == "Mcp-Session-Id"}
        return Response(int(head[0].split(" ")[1]), body, headers=kept)

    async def splice(
        self, request: Request, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry a WebSocket's bytes to a sibling and back until one side ends."""
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return
        try:
            far_writer.write(_head(request))
            ways = [
                asyncio.ensure_future(_carry(reader, far_writer)),
                asyncio.ensure_future(_carry(far_reader, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            far_writer.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()


def _head(request: Request) -> bytes:
    """The request's head as it came, with one hop's ``Connection`` for plain requests."""
    target = request.path + (f"?{request.query}" if request.query else "")
    headers = dict(request.headers)
    headers.pop("expect", None)
    if "upgrade" not in headers:
        headers["connection"] = "close"
    rows = [f"{request.method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(rows) + "\r\n\r\n").encode("latin-1")


def _session_of(request: Request) -> str:
    if request.query:
        named = parse_qs(request.query).get("session_id", [""])[0]
        if named:
            return named
    header = request.headers.get("mcp-session-id", "")
    if header or request.path != "/mcp" or b"session_id" not in request.body:
        return header
    try:
        params = msgspec.json.decode(request.body, type=_Named).params
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return (params.session_id or "") if params is not None else ""
