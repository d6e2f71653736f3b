"""A NeMo Gym resources server: seed a session, one route a tool, verify.

NeMo Gym's agent posts the row to ``/seed_session``, each tool call to ``/TOOL`` and the finished response to
``/verify``; it tells sessions apart by a cookie. Answered are the fields that it reads: ``reward``, ``mask_sample`` (an
infrastructure failure is excluded, never 0), ``failure_kind``, ``failure_reason``, ``reward_components``. Rows for its
data files come from ``rows``. Nothing of NeMo Gym is imported.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from types import TracebackType
from typing import Any

import msgspec

from flightschool.errors import InfrastructureError, InputError
from flightschool.records import EndReason, Json, Outcome, ToolCall
from flightschool.rollouts.gateway.server import HttpServer, Limits, Request, Response
from flightschool.serving.episode import Judged, Offer, ServedEpisode
from flightschool.serving.tasks import TaskDesk
from flightschool.serving.working import Workplace

__all__ = ["NemoGymServer", "rows"]

_COOKIE = "session"
_LONGEST_IDLE_S = 1800.0


@dataclass
class _Place:
    """One session."""

    episode: ServedEpisode
    work: Workplace
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    last: float = field(default_factory=time.monotonic)


_OWN = frozenset({"seed_session", "verify", "close_session", "aggregate_metrics", "reverify_mode", "health"})


class NemoGymServer:
    """Serves one environment; an asynchronous context manager, used in one event loop.

    Args:
        offer: what is served.
        desk: its tasks.
        masks: whether an infrastructure failure is a masked sample. Clients that read no ``mask_sample`` (the bridge of
            verifiers 0.4, for one) would take the number beside it for a reward: for them, False answers HTTP 500.
        most_sessions: episodes at once; the longest forgotten one makes room when it was idle for half an hour.

    Raises:
        InputError: a tool has the name of a route.
    """

    def __init__(self, offer: Offer, desk: TaskDesk, *, masks: bool = True, most_sessions: int = 4096) -> None:
        clash = sorted({spec.name for spec in offer.specs} & _OWN)
        if clash:
            raise InputError(f"the tool {clash[0]!r} has the name of a route", where="tools", mend="rename it")
        self._offer = offer
        self._desk = desk
        self._masks = masks
        self._most_sessions = most_sessions
        self._places: dict[str, _Place] = {}
        self.http = HttpServer(
            self._handle, admit=lambda _: None, refuse=_error, limits=Limits(most_body_bytes=64 << 20)
        )

    async def __aenter__(self) -> NemoGymServer:
        if self.http.port == 0:
            await self.http.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop, and let all episodes go."""
        await self.http.close()
        for key in list(self._places):
            self._forget(key)

    @property
    def url(self) -> str:
        """Address without a path."""
        return f"http://127.0.0.1:{self.http.port}"

    # -------------------------------------------------------------------------------------------- routes

    async def _handle(self, request: Request) -> Response:
        route = request.path.strip("/")
        if request.method == "GET":
            known: dict[str, Json] = {"health": {"status": "ok"}, "reverify_mode": {"mode": "unsupported"}}
            return _json(known[route]) if route in known else _error(404, "Not Found")
        try:
            body = msgspec.json.decode(request.body or b"{}")
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _error(422, f"not JSON: {error}")
        if not isinstance(body, dict):
            return _error(422, "expected an object")
        if route == "seed_session":
            return await self._seed(body)
        if route == "aggregate_metrics":
            return _json({})
        return await self._go_on(route, _session_of(request), body)

    async def _seed(self, body: Mapping[str, Json]) -> Response:
        try:
            choice = self._desk.choose({name: body[name] for name in ("task_id", "seed") if body.get(name) is not None})
        except InputError as error:
            return _error(422, str(error))
        if len(self._places) >= self._most_sessions:
            oldest = min(self._places, key=lambda key: self._places[key].last)
            if self._places[oldest].last > time.monotonic() - _LONGEST_IDLE_S:
                return _error(503, f"all {self._most_sessions} sessions are taken")
            self._forget(oldest)
        work = Workplace(at_once=self._offer.answers_at_once)
        try:
            episode = await work.do(lambda: self._offer.open(choice.task, seed=choice.seed))
        except InfrastructureError as error:
            work.close()
            return _error(500, str(error))
        key = secrets.token_urlsafe(24)
        self._places[key] = _Place(episode, work)
        return _json({}, {"Set-Cookie": f"{_COOKIE}={key}; Path=/; HttpOnly"})

    async def _go_on(self, route: str, key: str, body: dict[str, Json]) -> Response:
        place = self._places.get(key)
        if place is None:
            if route == "verify":
                return self._judgement(body, None)
            return _json({}) if route == "close_session" else _error(409, "no session: call /seed_session first")
        async with place.turn:
            place.last = time.monotonic()
            if route == "close_session":
                self._forget(key)
                return _json({})
            if route == "verify":
                judged = await place.work.do(lambda: place.episode.finish(_answer(body), EndReason.FINISHED))
                self._forget(key)
                return self._judgement(body, judged)
            call = ToolCall(id=f"call_{len(place.episode.events)}", name=route, arguments=body)
            try:
                (result,) = await place.work.do(lambda: place.episode.act((call,)))
            except InfrastructureError as error:
                return _error(500, str(error))
            return Response(200, result.content.encode())

    def _judgement(self, body: dict[str, Json], judged: Judged | None) -> Response:
        told = _told(judged)
        if told["mask_sample"] and not self._masks:
            return _error(500, f"infrastructure failed: {told['failure_kind']}: {told['failure_reason']}")
        return _json({**body, **told})

    def _forget(self, key: str) -> None:
        place = self._places.pop(key, None)
        if place is not None:
            place.work.close(place.episode.close)


def rows(desk: TaskDesk, split: str | None = None) -> list[dict[str, Json]]:
    """Rows of a data file: what the model is told, its tools, and the task that ``/seed_session`` is to begin."""
    made: list[dict[str, Json]] = []
    specs = {spec.name: spec for spec in desk.environment.tools()}
    for task in desk.tasks(split or desk.default):
        shown = [specs[name] for name in task.tools] if task.tools else list(specs.values())
        tools: list[Json] = [
            {
                "type": "function",
                "name": s.name,
                "description": s.description,
                "parameters": s.parameters,
                "strict": False,
            }
            for s in shown
        ]
        told = [{"role": "system", "content": task.guidance}] if task.guidance else []
        told.append({"role": "user", "content": task.instruction})
        made.append(
            {
                "responses_create_params": {"input": told, "tools": tools, "parallel_tool_calls": False},
                "task_id": task.id,
                "family": task.family,
                "agent_ref": {"type": "responses_api_agents", "name": "simple_agent"},
            }
        )
    return made


def _told(judged: Judged | None) -> dict[str, Json]:
    """A verify response's own fields. Its schema wants a number: a masked sample's is 0 and must not be read."""
    if judged is None:
        return _masked("no_session", "the session is unknown here: the server was restarted, or it was never seeded")
    if judged.outcome is Outcome.INFRA_FAILURE or judged.reward is None:
        return _masked(judged.reason.value, judged.detail)
    failed = judged.outcome is Outcome.POLICY_FAILURE
    return {
        "reward": judged.reward.total,
        "mask_sample": False,
        "failure_kind": judged.reason.value if failed else None,
        "failure_reason": judged.reason.value if failed else None,
        "reward_components": judged.components,
    }


def _masked(kind: str, reason: str) -> dict[str, Json]:
    return {
        "reward": 0.0,
        "mask_sample": True,
        "failure_kind": kind,
        "failure_reason": reason,
        "reward_components": {},
    }


def _answer(body: Mapping[str, Any]) -> str:
    """The last assistant message of a Responses object."""
    response = body.get("response")
    output = response.get("output") if isinstance(response, dict) else None
    texts: list[str] = []
    for item in output if isinstance(output, list) else ():
        if isinstance(item, dict) and item.get("type") == "message":
            content = item.get("content")
            parts = content if isinstance(content, list) else []
            texts = [str(part.get("text", "")) for part in parts if isinstance(part, dict)]
            texts = [content] if isinstance(content, str) else texts
    return "".join(texts)


def _session_of(request: Request) -> str:
    try:
        cookies: SimpleCookie = SimpleCookie(request.headers.get("cookie", ""))
    except CookieError:
        return ""
    return cookies[_COOKIE].value if _COOKIE in cookies else ""


def _json(value: Json, headers: dict[str, str] | None = None) -> Response:
    return Response(200, msgspec.json.encode(value), headers=headers or {})


def _error(status: int, message: str) -> Response:
    return Response(status, msgspec.json.encode({"detail": message}))
