"""JSON-RPC 2.0 at ``/mcp`` and inside WebSocket frames: tools, and the sessions that OpenEnv adds.

Two tongues are spoken. OpenEnv's own: ``openenv/session/create``, a ``session_id`` in the parameters, results in snake
case. And plain MCP over streamable HTTP: ``initialize``, the header ``Mcp-Session-Id``, results in camel case, so that
any client of MCP can use a served environment. Rewards are said in neither: what speaks MCP is the policy's side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from flightschool import __version__
from flightschool.records import Json
from flightschool.serving.openenv.session import FailedError, Session
from flightschool.serving.openenv.sessions import FullError, Sessions
from flightschool.serving.openenv.words import Rpc, RpcError, rpc_error, rpc_result, shown_tool

__all__ = ["RpcReply", "answer_rpc", "read_rpc"]

MCP_VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")
_KEYS = frozenset({"jsonrpc", "method", "params", "id"})


class RpcReply(NamedTuple):
    """An answer to one request."""

    body: dict[str, Json] | None
    """None for notifications, which are not answered."""
    session_id: str = ""
    """A session of plain MCP that was made or used."""


class _Request(NamedTuple):
    method: str
    params: dict[str, Json]
    id: str | int | None
    is_notification: bool


def read_rpc(data: bytes) -> Json:
    """The JSON of a request. Raises ``RpcError``."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RpcError(Rpc.PARSE_ERROR, f"Parse error: {error}") from None


async def answer_rpc(message: Json, sessions: Sessions, held: Session | None = None, header: str = "") -> RpcReply:
    """Answer one request.

    Args:
        message: the request.
        sessions: all sessions of this process.
        held: the session of the WebSocket that it came through.
        header: ``Mcp-Session-Id`` of an HTTP request.
    """
    request_id: Json = message.get("id") if isinstance(message, dict) else None
    if not isinstance(request_id, str | int) or isinstance(request_id, bool):
        request_id = None
    try:
        request = _read(message)
        if request.is_notification and request.method.startswith("notifications/"):
            return RpcReply(None, header)
        return await _answer(request, sessions, held, header)
    except RpcError as error:
        return RpcReply(rpc_error(request_id, error.code, str(error), error.data), header)
    except FailedError as error:
        told = error.frame["data"]
        return RpcReply(rpc_error(request_id, Rpc.INTERNAL_ERROR, str(error), told), header)
    except FullError as error:
        counts = {"active_sessions": error.active, "max_sessions": error.most}
        return RpcReply(rpc_error(request_id, Rpc.SERVER_ERROR, str(error), counts), header)


def _read(message: Json) -> _Request:
    if not isinstance(message, dict):
        raise RpcError(Rpc.INVALID_REQUEST, "Invalid request: expected one object")
    extra = sorted(set(message) - _KEYS)
    method, params, request_id = message.get("method"), message.get("params", {}), message.get("id")
    if message.get("jsonrpc") != "2.0" or not isinstance(method, str) or extra:
        why = f"unknown key {extra[0]!r}" if extra else "expected jsonrpc '2.0' and a method"
        raise RpcError(Rpc.INVALID_REQUEST, f"Invalid request: {why}")
    if not isinstance(params, dict):
        raise RpcError(Rpc.INVALID_REQUEST, "Invalid request: params must be an object")
    if isinstance(request_id, bool) or not isinstance(request_id, str | int | None):
        raise RpcError(Rpc.INVALID_REQUEST, "Invalid request: id must be a text or a number")
    return _Request(method, params, request_id, "id" not in message)


async def _answer(request: _Request, sessions: Sessions, held: Session | None, header: str) -> RpcReply:
    method, params = request.method, request.params
    if method == "ping":
        return RpcReply(rpc_result(request.id, {}), header)
    if method == "initialize":
        return _initialize(request, sessions, held)
    if method == "openenv/session/create":
        made = held or sessions.create(starts_itself=True)
        return RpcReply(rpc_result(request.id, {"session_id": made.id}))
    if method == "openenv/session/close":
        return RpcReply(rpc_result(request.id, await _close(params, sessions, held)))
    if method not in ("tools/list", "tools/call"):
        raise RpcError(Rpc.METHOD_NOT_FOUND, f"Method not found: {method}")
    named = params.get("session_id") or header
    session, passing = held, False
    if session is None and named:
        session = sessions.find(str(named))
        if session is None:
            raise RpcError(Rpc.INVALID_PARAMS, f"Unknown session_id: {named}")
    if session is None:
        session, passing = sessions.create(starts_itself=True), True
    try:
        if method == "tools/list":
            session.touch()
            listed: list[Json] = [shown_tool(spec, "inputSchema") for spec in session.specs()]
            return RpcReply(rpc_result(request.id, {"tools": listed}), header)
        result = await _call(params, session)
        return RpcReply(rpc_result(request.id, _camel(result) if header else result), header)
    finally:
        if passing:
            await sessions.end(session)


def _initialize(request: _Request, sessions: Sessions, held: Session | None) -> RpcReply:
    session = held or sessions.create(starts_itself=True)
    asked = request.params.get("protocolVersion")
    result = {
        "protocolVersion": asked if asked in MCP_VERSIONS else MCP_VERSIONS[0],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": sessions.name, "version": __version__},
    }
    return RpcReply(rpc_result(request.id, result), session.id)


async def _call(params: Mapping[str, Json], session: Session) -> dict[str, Json]:
    name, arguments = params.get("name"), params.get("arguments", {})
    if not isinstance(name, str) or not name:
        raise RpcError(Rpc.INVALID_PARAMS, "Missing 'name' in params")
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise RpcError(Rpc.INVALID_PARAMS, "Invalid params - 'arguments' must be an object")
    if name not in {spec.name for spec in session.specs()}:
        raise RpcError(Rpc.INVALID_PARAMS, f"Tool not found: {name}")
    return await session.call(name, arguments)


async def _close(params: Mapping[str, Json], sessions: Sessions, held: Session | None) -> dict[str, Json]:
    named = params.get("session_id")
    if not isinstance(named, str) or not named:
        raise RpcError(Rpc.INVALID_PARAMS, "Invalid params - 'session_id' is required")
    if held is not None and held.id == named:
        raise RpcError(Rpc.INVALID_REQUEST, "Cannot close active WebSocket-managed session via MCP method")
    session = sessions.find(named)
    if session is None:
        raise RpcError(Rpc.INVALID_PARAMS, f"Unknown session_id: {named}")
    if session.attached:
        session.closing = True
        return {"session_id": named, "closed": False, "closing": True}
    await sessions.end(session)
    return {"session_id": named, "closed": True}


def _camel(result: Mapping[str, Json]) -> dict[str, Json]:
    """A tool result as MCP spells it."""
    shown: dict[str, Json] = {"content": result["content"], "isError": result["is_error"]}
    value = result["data"]
    if isinstance(value, msgspec.Raw) and bytes(value)[:1] == b"{":
        shown["structuredContent"] = value
    return shown
