"""The gateway: OpenAI chat completions and the attempt's tools over HTTP on loopback.

It holds no conversation of its own. A bearer key leads to a *seat*, a seat to the attempt's model and tool endpoints:
the very objects that the built-in harness is given. Whatever speaks through here is therefore sampled, recorded and
judged exactly as the built-in harness is.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from types import TracebackType

from flightschool.records import Json
from flightschool.rollouts.gateway.chat import (
    completion,
    error_body,
    event_stream,
    read_ask,
    read_object,
    shown_message,
    shown_tool,
)
from flightschool.rollouts.gateway.messages import ApiError, read_call
from flightschool.rollouts.gateway.seat import Seat
from flightschool.rollouts.gateway.server import HttpServer, Limits, Request, Response
from flightschool.rollouts.harness import opening_messages

__all__ = ["Gateway"]

MODEL = "flightschool"
"""The one model that is listed; any name is accepted and leads to the policy under training."""
MOST_CALLS = 64
"""Calls of one turn."""

Route = Callable[[Seat, Request], Awaitable[Response]]


class Gateway:
    """Serves attempts by their keys; an asynchronous context manager, used in one event loop.

    Args:
        limits: what a client may use up.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._server = HttpServer(self._handle, admit=self._refusal, refuse=_error, limits=limits)
        self._seats: dict[bytes, Seat] = {}
        self._routes: dict[tuple[str, str], Route] = {
            ("POST", "/v1/chat/completions"): self._chat,
            ("GET", "/v1/models"): self._models,
            ("GET", f"/v1/models/{MODEL}"): self._model,
            ("GET", "/task"): self._task,
            ("GET", "/tools"): self._tools,
            ("POST", "/tools/call"): self._call,
        }

    async def __aenter__(self) -> Gateway:
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Take all seats away and stop listening."""
        for seat in list(self._seats.values()):
            await self.leave(seat)
        await self._server.close()

    @property
    def url(self) -> str:
        """Address without a path: ``http://127.0.0.1:PORT``; clients of the OpenAI format take ``…/v1``."""
        return f"http://127.0.0.1:{self._server.port}"

    def take(self, seat: Seat) -> None:
        """Let requests with the seat's key in."""
        self._seats[_fingerprint(seat.key)] = seat

    async def leave(self, seat: Seat) -> None:
        """The attempt is over: its key opens nothing any more, and what is under way for it is cancelled."""
        self._seats.pop(_fingerprint(seat.key), None)
        for task in seat.under_way:
            task.cancel()
        await asyncio.gather(*seat.under_way, return_exceptions=True)

    # ------------------------------------------------------------------ from requests to routes

    def _refusal(self, request: Request) -> Response | None:
        """Who may not come in is told so before the body is read."""
        if self._seat_of(request) is None:
            return _error(401, "no attempt has this key", code="invalid_api_key")
        methods = [method for method, path in self._routes if path == request.path]
        if not methods:
            return _error(404, f"no route {request.path[:80]!r}", code="not_found")
        if request.method not in methods:
            return _error(405, f"{request.path} takes {methods[0]}", code="method_not_allowed")
        return None

    def _seat_of(self, request: Request) -> Seat | None:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        return self._seats.get(_fingerprint(key.strip())) if scheme.lower() == "bearer" else None

    async def _handle(self, request: Request) -> Response:
        seat = self._seat_of(request)
        if seat is None:  # the attempt ended while the body arrived
            return _error(401, "no attempt has this key", code="invalid_api_key")
        task = asyncio.current_task()
        if task is not None:
            seat.under_way.add(task)
        try:
            return await self._routes[request.method, request.path](seat, request)
        except ApiError as error:
            return _error(error.status, str(error), code=error.code, param=error.param)
        except Exception as error:  # noqa: BLE001  a fault of ours: the attempt must not be scored by it
            seat.fault(error)
            return _error(500, "the gateway failed", code="internal_error")
        finally:
            if task is not None:
                seat.under_way.discard(task)

    # ------------------------------------------------------------------ routes

    async def _chat(self, seat: Seat, request: Request) -> Response:
        ask = read_ask(request.body)
        said = await seat.complete(ask)
        headers = {"X-Flightschool-Ignored": ", ".join(ask.ignored)} if ask.ignored else {}
        if ask.stream:
            return Response(200, event_stream(ask, said), "text/event-stream", headers)
        return _json(completion(ask, said), headers)

    async def _models(self, seat: Seat, request: Request) -> Response:
        del seat, request
        return _json({"object": "list", "data": [_MODEL_SHOWN]})

    async def _model(self, seat: Seat, request: Request) -> Response:
        del seat, request
        return _json(_MODEL_SHOWN)

    async def _task(self, seat: Seat, request: Request) -> Response:
        del request
        task = seat.task
        opening = [shown_message(message) for message in opening_messages(task)]
        return _json({"id": task.id, "instruction": task.instruction, "messages": opening, "max_turns": task.max_turns})

    async def _tools(self, seat: Seat, request: Request) -> Response:
        del request
        return _json({"tools": [shown_tool(spec) for spec in seat.tools.specs()]})

    async def _call(self, seat: Seat, request: Request) -> Response:
        """One call ``{"name", "arguments"}``, or ``{"calls": […]}`` as one turn; calls in the OpenAI shape do too."""
        table = read_object(request.body)
        rows = table.get("calls", [table])
        if not isinstance(rows, list) or not 0 < len(rows) <= MOST_CALLS:
            raise ApiError(400, f"calls: expected 1 to {MOST_CALLS} calls", code="invalid_value", param="calls")
        results = await seat.call([read_call(row, f"calls[{index}]") for index, row in enumerate(rows)])
        shown: list[Json] = [{"id": r.call_id, "content": r.content, "is_error": r.is_error} for r in results]
        return _json({"results": shown} if "calls" in table else shown[0])


_MODEL_SHOWN = {"id": MODEL, "object": "model", "created": 0, "owned_by": "flightschool"}


def _fingerprint(key: str) -> bytes:
    """Keys are looked up by a digest, so that the time of a comparison tells nothing of them."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _json(value: Json, headers: dict[str, str] | None = None) -> Response:
    return Response(200, json.dumps(value, ensure_ascii=False).encode(), headers=headers or {})


def _error(status: int, message: str, *, code: str | None = None, param: str | None = None) -> Response:
    return Response(status, error_body(status, message, code=code, param=param))
