"""One WebSocket to an OpenEnv server, blocking, with a deadline on everything."""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

import msgspec

from flightschool.environments.foreign.world import LostSessionError
from flightschool.environments.openenv.frames import (
    Close,
    FrameError,
    FrameReader,
    Opcode,
    accept_key,
    close_frame,
    frame,
    new_key,
)
from flightschool.errors import InputError
from flightschool.records import Json

__all__ = ["Link", "ask_http", "server_address"]

_CHUNK = 1 << 16
_MOST_HEAD = 64 << 10
_SECURE = {"https", "wss"}


def server_address(url: str) -> SplitResult:
    """A server's address, checked.

    Raises:
        InputError: it is none.
    """
    parts = urlsplit(url.rstrip("/"))
    try:
        usable = parts.scheme in {"http", "ws", *_SECURE} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or parts.username:
        raise InputError(
            f"not the address of an OpenEnv server: {url!r}",
            where="URL",
            expected="http://HOST:PORT (or https, ws, wss), tokens apart",
            mend="give the address without /ws and without parameters",
        )
    return parts


def ask_http(
    url: str, path: str, body: Json = None, *, headers: Mapping[str, str] | None = None, timeout_s: float = 30.0
) -> tuple[int, Json]:
    """(status, JSON) of one request; GET without a body.

    Raises:
        LostSessionError: nobody answers, or not with JSON.
    """
    parts = server_address(url)
    kind = http.client.HTTPSConnection if parts.scheme in _SECURE else http.client.HTTPConnection
    connection = kind(str(parts.hostname), parts.port, timeout=timeout_s)
    try:
        data = None if body is None else msgspec.json.encode(body)
        named = {"Content-Type": "application/json", **(headers or {})}
        connection.request("GET" if body is None else "POST", parts.path + path, body=data, headers=named)
        response = connection.getresponse()
        return response.status, msgspec.json.decode(response.read() or b"null")
    except (OSError, http.client.HTTPException, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _lost(f"{path} is not answered: {type(error).__name__}: {error}", url) from error
    finally:
        connection.close()


class Link:
    """A connected WebSocket.

    Args:
        url: the server's address; ``/ws`` is added.
        headers: sent with the request.
        query: put after the path, such as ``session_id=…``.
        connect_timeout_s: longest time until the connection stands.

    Raises:
        LostSessionError: nobody answers, or not with a WebSocket.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        query: str = "",
        connect_timeout_s: float = 10.0,
    ) -> None:
        self.url = url
        self._target = "/ws" + (f"?{query}" if query else "")
        self._frames = FrameReader(masked=False)
        self._waiting: deque[bytes] = deque()
        self._open = True
        parts = server_address(url)
        secure = parts.scheme in _SECURE
        try:
            self._socket: socket.socket = socket.create_connection(
                (str(parts.hostname), parts.port or (443 if secure else 80)), timeout=connect_timeout_s
            )
        except OSError as error:
            raise _lost(f"cannot be reached: {error}", url) from error
        try:
            if secure:
                self._socket = ssl.create_default_context().wrap_socket(self._socket, server_hostname=parts.hostname)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._shake_hands(parts, headers or {}, time.monotonic() + connect_timeout_s)
        except BaseException as error:
            self._socket.close()
            if isinstance(error, OSError | FrameError):
                raise _lost(f"the connection broke at its beginning: {error}", url) from error
            raise

    def send(self, message: Json) -> None:
        """Send one JSON message. Raises ``LostSessionError``."""
        self._write(frame(Opcode.TEXT, msgspec.json.encode(message), masked=True))

    def receive(self, timeout_s: float) -> Json:
        """The next JSON message.

        Raises:
            LostSessionError: none came in time, the other side closed, or it broke the protocol. The link is closed
                with that: a late answer must not be taken for that of a later request.
        """
        deadline = time.monotonic() + timeout_s
        while not self._waiting:
            self._read(deadline)
        data = self._waiting.popleft()
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._broken(f"a message that is no JSON: {error}") from error

    def nothing_waits(self) -> bool:
        """Whether no message has come that nobody asked for; what has arrived by now is looked at."""
        while self._open and not self._waiting:
            pending = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
            if not pending and not select.select([self._socket], [], [], 0)[0]:
                break
            self._read(time.monotonic() + 1.0)
        return not self._waiting and self._frames.is_idle

    def close(self) -> None:
        """Say goodbye and hang up; never raises."""
        if self._open:
            self._open = False
            with contextlib.suppress(OSError):
                self._socket.settimeout(1.0)
                self._socket.sendall(
                    frame(Opcode.TEXT, b'{"type":"close"}', masked=True) + close_frame(Close.NORMAL, masked=True)
                )
        self._socket.close()

    # -------------------------------------------------------------------------------------------- parts

    def _shake_hands(self, parts: SplitResult, headers: Mapping[str, str], deadline: float) -> None:
        key = new_key()
        rows = {
            "Host": parts.netloc,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": key,
            "Sec-WebSocket-Version": "13",
            **headers,
        }
        words = "".join(f"{name}: {value}\r\n" for name, value in rows.items())
        self._socket.sendall(f"GET {parts.path}{self._target} HTTP/1.1\r\n{words}\r\n".encode("latin-1"))
        head = b""
        while b"\r\n\r\n" not in head:
            if len(head) > _MOST_HEAD:
                raise _lost("an endless answer", self.url)
            head += self._some(deadline)
        first, rest = head.split(b"\r\n\r\n", 1)
        lines = first.decode("latin-1").split("\r\n")
        answered = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
        status = lines[0].split(" ")[1:2]
        if status != ["101"] or answered.get("sec-websocket-accept") != accept_key(key).lower():
            told = rest[:200].decode("utf-8", "replace")
            raise _lost(f"no WebSocket: {lines[0][:100]} {told}".rstrip(), self.url)
        self._take(rest)

    def _read(self, deadline: float) -> None:
        try:
            self._take(self._some(deadline))
        except FrameError as error:
            raise self._broken(f"a broken frame: {error}") from error
        except TimeoutError as error:
            raise self._broken("no answer in time") from error
        except OSError as error:
            raise self._broken(f"the connection broke: {error}") from error

    def _take(self, data: bytes) -> None:
        for one in self._frames.feed(data):
            if one.opcode is Opcode.PING:
                self._write(frame(Opcode.PONG, one.data, masked=True))
            elif one.opcode is Opcode.CLOSE:
                if not self._waiting:
                    reason = one.data[2:].decode("utf-8", "replace")
                    raise self._broken(f"the server closed the connection ({one.close_code} {reason})".rstrip())
                return  # what it said before is read first
            elif one.opcode is not Opcode.PONG:
                self._waiting.append(one.data)

    def _some(self, deadline: float) -> bytes:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._socket.settimeout(left_s)
        data = self._socket.recv(_CHUNK)
        if not data:
            raise ConnectionResetError("the server hung up")
        return data

    def _write(self, data: bytes) -> None:
        if not self._open:
            raise _lost("the connection is closed", self.url)
        try:
            self._socket.settimeout(30.0)
            self._socket.sendall(data)
        except OSError as error:
            raise self._broken(f"the connection broke: {error}") from error

    def _broken(self, what: str) -> LostSessionError:
        self._open = False
        self._socket.close()
        return _lost(what, self.url)


def _lost(what: str, url: str) -> LostSessionError:
    return LostSessionError(what, where=url, expected="an OpenEnv server", mend="see that it runs and has room")
