"""JSON-RPC to an MCP server: over the standard input and output of a program, or over streamable HTTP.

The protocol is spoken, its SDK not imported: versions 1 and 2 of it cannot share an interpreter, and other packages
pin either. Answers are told by their ids; on HTTP each has its own exchange.
"""

from __future__ import annotations

import http.client
import itertools
import time
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from flightschool import __version__
from flightschool.environments.foreign.lines import LineProcess
from flightschool.environments.foreign.world import LostSessionError
from flightschool.errors import InfrastructureError, InputError
from flightschool.records import Json

__all__ = ["HttpTransport", "McpClient", "McpRefusedError", "StdioTransport", "Transport"]

PROTOCOL_VERSION = "2025-06-18"
_MOST_BYTES = 64 << 20
_MOST_PAGES = 1_000


class McpRefusedError(InfrastructureError):
    """The server answered by a JSON-RPC error."""

    def __init__(self, what: str, **more: str) -> None:
        super().__init__(what, **more)
        self.code = 0


class Transport(Protocol):
    """Carries messages."""

    def ask(self, message: dict[str, Json], timeout_s: float) -> dict[str, Json]:
        """Send a request, return the answer with its id. Raises ``LostSessionError``."""
        ...

    def tell(self, message: dict[str, Json]) -> None:
        """Send a notification. Raises ``LostSessionError``."""
        ...

    def close(self) -> None:
        """Let go; never raises."""
        ...


class StdioTransport:
    """A server that is a program of ours.

    Args:
        command: words; no shell sees them.
        environment: variables added to this process's own.
    """

    def __init__(self, command: tuple[str, ...], environment: Mapping[str, str] | None = None) -> None:
        self._lines = LineProcess(command, environment)

    def ask(self, message: dict[str, Json], timeout_s: float) -> dict[str, Json]:
        """One request; what the server says in between (notifications, requests of its own) is no answer to it."""
        deadline = time.monotonic() + timeout_s
        with self._lines.turn:
            self._lines.tell(message)
            while True:
                answer = self._lines.hear(deadline - time.monotonic())
                if not isinstance(answer, dict):
                    continue
                if "method" in answer:
                    if "id" in answer:  # it asks for something that we did not offer
                        self._lines.tell(_not_offered(answer["id"]))
                    continue
                if answer.get("id") == message["id"]:
                    return answer
                self._lines.close()
                raise LostSessionError(
                    f"request {message['id']} was answered under id {answer.get('id')!r}",
                    where=" ".join(self._lines.command),
                    expected="the id of the request",
                    mend="the attempt is lost, not failed",
                )

    def tell(self, message: dict[str, Json]) -> None:
        """Send a notification."""
        self._lines.tell(message)

    def close(self) -> None:
        """End the program."""
        self._lines.close()


class HttpTransport:
    """A server behind a URL (streamable HTTP).

    Args:
        url: the endpoint.
        headers: sent with every request.

    Raises:
        InputError: it is no URL.
    """

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"not a URL: {url!r}", where="SOURCE", expected="http(s)://HOST/mcp", mend="correct it")
        self.url = url
        self._parts = parts
        self._headers = dict(headers or {})
        self._session = ""

    def ask(self, message: dict[str, Json], timeout_s: float) -> dict[str, Json]:
        """One exchange; the answer is JSON, or the matching event of a stream."""
        for answer in self._exchange(message, timeout_s):
            if isinstance(answer, dict) and "method" not in answer and answer.get("id") == message["id"]:
                return answer
        raise self._lost(f"request {message['id']} was not answered")

    def tell(self, message: dict[str, Json]) -> None:
        """Send a notification."""
        self._exchange(message, 30.0)

    def close(self) -> None:
        """End the session over there, if there is one."""
        if self._session:
            try:
                self._send("DELETE", b"", 5.0)
            except LostSessionError:
                return  # it will be forgotten over there

    def _exchange(self, message: dict[str, Json], timeout_s: float) -> list[Json]:
        status, kind, body = self._send("POST", msgspec.json.encode(message), timeout_s)
        if status == http.client.ACCEPTED or (status == http.client.OK and not body):
            return []
        if status != http.client.OK:
            raise self._lost(f"HTTP {status}: {body[:200].decode('utf-8', 'replace')}")
        texts = _events(body) if kind.startswith("text/event-stream") else [body]
        try:
            return [msgspec.json.decode(text) for text in texts]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._lost(f"an answer that is no JSON: {error}") from error

    def _send(self, method: str, body: bytes, timeout_s: float) -> tuple[int, str, bytes]:
        parts = self._parts
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        headers = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "MCP-Protocol-Version": PROTOCOL_VERSION,
            **({"Mcp-Session-Id": self._session} if self._session else {}),
            **self._headers,
        }
        connection = kind(str(parts.hostname), parts.port, timeout=timeout_s)
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request(method, target, body=body, headers=headers)
            response = connection.getresponse()
            data = response.read(_MOST_BYTES)
            self._session = response.getheader("Mcp-Session-Id") or self._session
            return response.status, response.getheader("Content-Type") or "", data
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(f"{type(error).__name__}: {error}") from error
        finally:
            connection.close()

    def _lost(self, what: str) -> LostSessionError:
        return LostSessionError(
            f"the MCP server is lost: {what}", where=self.url, expected="an answer", mend="see that it runs"
        )


class McpClient:
    """One session with an MCP server.

    Args:
        transport: carries messages; owned by this client.
        timeout_s: longest time for an answer.

    Raises:
        LostSessionError: the server does not answer.
    """

    def __init__(self, transport: Transport, timeout_s: float = 60.0) -> None:
        self._transport = transport
        self._timeout_s = timeout_s
        self._ids = itertools.count(1)
        hello = {
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "flightschool", "version": __version__},
        }
        try:
            answer = self.ask("initialize", hello)
            self.server: dict[str, Json] = answer.get("serverInfo") or {}
            self.instructions = str(answer.get("instructions") or "")
            transport.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
        except BaseException:
            transport.close()
            raise

    def ask(self, method: str, params: dict[str, Json]) -> dict[str, Json]:
        """One request and its result.

        Raises:
            McpRefusedError: the server refused it.
            LostSessionError: it does not answer, or not as the protocol says.
        """
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        answer = self._transport.ask(message, self._timeout_s)
        error = answer.get("error")
        if isinstance(error, dict):
            refused = McpRefusedError(
                f"{method}: {error.get('message')}", where="MCP server", expected="a result", mend="see its log"
            )
            refused.code = int(error.get("code") or 0)
            raise refused
        result = answer.get("result")
        if not isinstance(result, dict):
            raise LostSessionError(
                f"{method} was answered without a result", where="MCP server", expected="an object", mend="see its log"
            )
        return result

    def list_tools(self) -> list[dict[str, Json]]:
        """All tools, page after page."""
        rows: list[dict[str, Json]] = []
        cursor: Json = None
        for _ in range(_MOST_PAGES):
            page = self.ask("tools/list", {"cursor": cursor} if cursor else {})
            found = page.get("tools")
            rows += [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
            cursor = page.get("nextCursor")
            if not cursor:
                return rows
        raise LostSessionError("tools/list has no end", where="MCP server", expected="a last page", mend="see its log")

    def call(self, name: str, arguments: dict[str, Json]) -> dict[str, Json]:
        """Call a tool."""
        return self.ask("tools/call", {"name": name, "arguments": arguments})

    def close(self) -> None:
        """Let go."""
        self._transport.close()


def _not_offered(request_id: Json) -> dict[str, Json]:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": -32601, "message": "not offered by this client"}}


def _events(body: bytes) -> list[bytes]:
    """Data of the events of a stream that has ended."""
    events = []
    for block in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        data = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
        if data:
            events.append(b"\n".join(data))
    return events
