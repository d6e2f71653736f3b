"""The HTTP routes of OpenEnv: what a server is, its tasks, and the stateless reset and step."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Literal
from urllib.parse import unquote

import msgspec

from flightschool import __version__
from flightschool.errors import InputError
from flightschool.records import Json
from flightschool.rollouts.gateway.server import Request, Response
from flightschool.serving.episode import Offer
from flightschool.serving.openenv.rpc import answer_rpc, read_rpc
from flightschool.serving.openenv.session import FailedError, Session
from flightschool.serving.openenv.sessions import FullError, Sessions
from flightschool.serving.openenv.words import (
    InvalidError,
    Rpc,
    RpcError,
    encode,
    openapi,
    rpc_error,
    schemas,
    wrong,
)
from flightschool.serving.tasks import TaskDesk, shown_task

__all__ = ["SESSION_HEADER", "Mode", "Routes", "refuse"]

Mode = Literal["simulation", "production"]
SESSION_HEADER = "mcp-session-id"
_CONTROL = ("/reset", "/step", "/state")
_TASK_ROUTES = ("splits", "tasks", "num_tasks", "task", "task_range")
_MOST_STUCK = 8
_MOST_RANGE = 10_000

Route = Callable[[Request], Awaitable[Response]]


class Routes:
    """Answers whole requests.

    Args:
        offer: what is served.
        desk: its tasks.
        sessions: the sessions of this process.
        mode: in ``production`` the routes that steer episodes are not there.
    """

    def __init__(self, offer: Offer, desk: TaskDesk, sessions: Sessions, mode: Mode) -> None:
        self._offer = offer
        self._desk = desk
        self._sessions = sessions
        self._name = offer.environment.name
        self._routes: dict[tuple[str, str], Route] = {
            ("GET", "/health"): self._health,
            ("GET", "/metadata"): self._metadata,
            ("GET", "/schema"): self._schema,
            ("GET", "/openapi.json"): self._openapi,
            ("GET", "/list_environments"): self._environments,
            ("POST", "/mcp"): self._mcp,
            ("DELETE", "/mcp"): self._end_mcp,
        }
        if mode == "simulation":
            self._routes.update(
                {("POST", "/reset"): self._reset, ("POST", "/step"): self._step, ("GET", "/state"): self._state}
            )

    def problem(self, request: Request) -> Response | None:
        """A refusal of a path or method that does not exist, before the body is read."""
        parts = request.path.strip("/").split("/")
        if len(parts) == 2 and parts[1] in _TASK_ROUTES:
            method = "GET" if parts[1] == "splits" else "POST"
            return None if request.method == method else refuse(405, "Method Not Allowed")
        methods = [method for method, path in self._routes if path == request.path]
        if not methods:
            return refuse(404, "Not Found")
        return None if request.method in methods else refuse(405, "Method Not Allowed")

    async def handle(self, request: Request) -> Response:
        """Answer a request that ``problem`` let through."""
        try:
            route = self._routes.get((request.method, request.path))
            return await (self._tasks(request) if route is None else route(request))
        except InvalidError as error:
            return _json({"detail": error.errors}, 422)
        except InputError as error:
            return refuse(400, str(error))
        except FullError as error:
            return refuse(503, str(error))
        except FailedError as error:
            return _json({"detail": error.frame["data"]}, 500)

    # -------------------------------------------------------------------------------------------- about the server

    async def _health(self, request: Request) -> Response:
        del request
        return _json({"status": "healthy" if self._sessions.num_stuck < _MOST_STUCK else "degraded"})

    async def _metadata(self, request: Request) -> Response:
        del request
        environment = self._offer.environment
        tasks = len(self._desk.splits[self._desk.default])
        return _json(
            {
                "name": self._name,
                "description": f"{tasks} tasks with {len(self._offer.specs)} tools, judged by their end states",
                "readme_content": environment.policy_text or None,
                "version": __version__,
                "author": None,
                "documentation_url": None,
            }
        )

    async def _schema(self, request: Request) -> Response:
        del request
        return _json(schemas())

    async def _openapi(self, request: Request) -> Response:
        del request
        paths = {path: method for method, path in self._routes}
        named = {f"/{{env_name}}/{name}": "GET" if name == "splits" else "POST" for name in _TASK_ROUTES}
        return _json(openapi(self._name, {**paths, **named, "/mcp": "POST"}))

    # -------------------------------------------------------------------------------------------- stateless episodes

    async def _reset(self, request: Request) -> Response:
        asked = _body(request, optional=True)
        async with _Passing(self._sessions) as session:
            return _json(await session.reset(asked))

    async def _step(self, request: Request) -> Response:
        """A step in an episode of its own, which no request can follow: episodes take a WebSocket or an MCP session."""
        asked = _body(request)
        if "action" not in asked:
            raise InvalidError(wrong("missing", ("body", "action"), "Field required", asked))
        limit = asked.get("timeout_s")
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | float) or limit <= 0):
            raise InvalidError(wrong("greater_than", ("body", "timeout_s"), "Input should be greater than 0", limit))
        async with _Passing(self._sessions) as session:
            if limit is not None:
                session.hurry(float(limit))
            await session.reset({})
            return _json(await session.step(asked["action"]))

    async def _state(self, request: Request) -> Response:
        del request
        async with _Passing(self._sessions) as session:
            return _json(session.state())

    # -------------------------------------------------------------------------------------------- MCP

    async def _mcp(self, request: Request) -> Response:
        try:
            message = read_rpc(request.body)
        except RpcError as error:
            return _json(rpc_error(None, error.code, str(error)))
        header = request.headers.get(SESSION_HEADER, "")
        if header and self._sessions.find(header) is None:
            return _json(rpc_error(None, Rpc.INVALID_PARAMS, f"Unknown session_id: {header}"), 404)
        reply = await answer_rpc(message, self._sessions, header=header)
        headers = {"Mcp-Session-Id": reply.session_id} if reply.session_id else {}
        return Response(202, b"", headers=headers) if reply.body is None else _json(reply.body, headers=headers)

    async def _end_mcp(self, request: Request) -> Response:
        session = self._sessions.find(request.headers.get(SESSION_HEADER, ""))
        if session is None:
            return refuse(404, "no such session")
        if session.attached:
            session.closing = True
        else:
            await self._sessions.end(session)
        return _json({})

    # -------------------------------------------------------------------------------------------- tasks

    async def _environments(self, request: Request) -> Response:
        del request
        return _json([self._name])

    async def _tasks(self, request: Request) -> Response:
        name, what = request.path.strip("/").split("/")
        name = unquote(name)
        if name.lower() != self._name.lower():
            return refuse(404, f"unknown environment {name[:80]!r}")
        if what == "splits":
            known = {"train", "validation", "test"}
            splits = [{"name": s, "type": s if s in known else "validation"} for s in self._desk.splits]
            return _json(splits)
        asked = _body(request)
        split = asked.get("split")
        if not isinstance(split, str):
            raise InvalidError(wrong("missing", ("body", "split"), "Field required", asked))
        if what == "num_tasks":
            return _json({"num_tasks": len(self._desk.tasks(split))})
        if what == "task":
            return self._one(split, asked.get("index"))
        start, stop = (0, None) if what == "tasks" else (_bound(asked, "start") or 0, _bound(asked, "stop"))
        tasks = self._desk.tasks(split)
        shown: list[Json] = [shown_task(task, n, split) for n, task in enumerate(tasks)][start:stop][:_MOST_RANGE]
        return _json({"tasks": shown, "env_name": self._name} if what == "tasks" else {"tasks": shown})

    def _one(self, split: str, index: Json) -> Response:
        if isinstance(index, bool) or not isinstance(index, int):
            raise InvalidError(wrong("int_type", ("body", "index"), "Input should be a valid integer", index))
        try:
            return _json({"task": shown_task(self._desk.at(split, index), index, split)})
        except IndexError:
            return refuse(400, "Invalid task index")


class _Passing:
    """A session for one request."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._session: Session | None = None

    async def __aenter__(self) -> Session:
        self._session = self._sessions.create()
        return self._session

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._sessions.end(self._session)


def _body(request: Request, *, optional: bool = False) -> dict[str, Json]:
    if optional and not request.body:
        return {}
    try:
        value = msgspec.json.decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidError(wrong("json_invalid", ("body",), f"JSON decode error: {error}")) from None
    if not isinstance(value, dict):
        raise InvalidError(wrong("dict_type", ("body",), "Input should be a valid dictionary", value))
    return value


def _bound(asked: dict[str, Json], name: str) -> int | None:
    value = asked.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise InvalidError(wrong("int_type", ("body", name), "Input should be a whole number from 0", value))


def _json(value: Json, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(status, encode(value), headers=headers or {})


def refuse(status: int, message: str) -> Response:
    """An error as this protocol's HTTP side tells it."""
    return Response(status, json.dumps({"detail": message}).encode())
