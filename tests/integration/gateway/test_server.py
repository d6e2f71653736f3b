"""The gateway over real sockets: keys, bounds, broken and slow clients, clients that go away."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from flightschool.protocols import Generation, GenerationRequest
from flightschool.records import EndReason, SpanKind, Task, ToolCall, ToolResult, ToolSpec
from flightschool.rollouts import EpisodeEndError, Sampling, Session
from flightschool.rollouts.gateway import Gateway, Limits, Seat
from flightschool.testing.engines import ByteTokenizer, SpokenEngine

pytestmark = pytest.mark.integration
TASK = Task(id="t", family="f", stratum="s", instruction="go", initial_state="", guidance="Be kind.")
TOOL = ToolSpec(name="f", description="d", parameters={"type": "object", "properties": {}})
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


class Tools:
    def __init__(self) -> None:
        self.calls: list[ToolCall] = []

    def specs(self) -> Sequence[ToolSpec]:
        return (TOOL,)

    async def call(self, calls: Sequence[ToolCall]) -> Sequence[ToolResult]:
        self.calls += calls
        if calls[0].name == "broken":
            raise EpisodeEndError(EndReason.WORLD_ERROR, "lost")
        return [ToolResult(call_id=call.id, content="{}", is_error=call.name == "bad") for call in calls]


class SlowEngine(SpokenEngine):
    """Holds completions back until it is told."""

    def __init__(self) -> None:
        super().__init__(lambda _: "late")
        self.go = asyncio.Event()
        self.waiting = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def generate(self, request: GenerationRequest) -> Generation:
        self.waiting.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return await super().generate(request)


def seat_of(engine: SpokenEngine, most: int = 200) -> tuple[Seat, Session]:
    talk = Session("s", engine, ByteTokenizer(), Sampling(max_new_tokens=most), seed=7)
    return Seat(TASK, talk, Tools(), max_completions=3), talk


@contextlib.asynccontextmanager
async def serving(*seats: Seat, limits: Limits | None = None) -> AsyncIterator[Gateway]:
    async with Gateway(limits) as gateway:
        for seat in seats:
            gateway.take(seat)
        yield gateway


async def connect(gateway: Gateway) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(gateway.url.rpartition(":")[2]))


def request(method: str, path: str, key: str, body: Any = None, *extra: str) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {key}", f"Content-Length: {len(data)}"]
    return "\r\n".join([*lines, *extra, "", ""]).encode() + data


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (row.partition(": ") for row in head[1:] if row)}
    return int(head[0].split(" ")[1]), headers, await reader.readexactly(int(headers["content-length"]))


async def send(gateway: Gateway, data: bytes) -> tuple[int, Any]:
    reader, writer = await connect(gateway)
    writer.write(data)
    status, _, body = await answer(reader)
    writer.close()
    return status, json.loads(body)


async def test_a_key_leads_to_its_attempt_and_to_no_other() -> None:
    seats = [seat_of(SpokenEngine([f"from {i}"])) for i in range(2)]
    async with serving(*(seat for seat, _ in seats)) as gateway:
        for i, (seat, _) in enumerate(seats):
            status, body = await send(gateway, request("POST", "/v1/chat/completions", seat.key, ASK))
            assert (status, body["choices"][0]["message"]["content"]) == (200, f"from {i}")
        for key in ("", "fs-wrong", seats[0][0].key[:-1]):
            status, body = await send(gateway, request("POST", "/v1/chat/completions", key, ASK))
            assert (status, body["error"]["code"]) == (401, "invalid_api_key")
        await gateway.leave(seats[0][0])
        status, _ = await send(gateway, request("GET", "/v1/models", seats[0][0].key))
        assert status == 401
    assert len(seats[1][1].spans()) == 2


async def test_routes_that_are_not_there_and_wrong_methods_say_so() -> None:
    seat, _ = seat_of(SpokenEngine([]))
    async with serving(seat) as gateway:
        assert (await send(gateway, request("GET", "/v1/embeddings", seat.key)))[0] == 404
        assert (await send(gateway, request("GET", "/v1/chat/completions", seat.key)))[0] == 405
        status, body = await send(gateway, request("GET", "/v1/models?x=1", seat.key))
        assert (status, [row["id"] for row in body["data"]]) == (200, ["flightschool"])
        status, body = await send(gateway, request("GET", "/task", seat.key))
        assert body["messages"] == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "go"}]


async def test_one_connection_serves_many_requests_and_early_ones() -> None:
    seat, talk = seat_of(SpokenEngine(["a", "b"]))
    async with serving(seat) as gateway:
        reader, writer = await connect(gateway)
        ask = request("POST", "/v1/chat/completions", seat.key, ASK)
        writer.write(ask + ask + request("GET", "/tools", seat.key, None, "Connection: close"))
        bodies = [json.loads((await answer(reader))[2]) for _ in range(3)]
        assert [row["choices"][0]["message"]["content"] for row in bodies[:2]] == ["a", "b"]
        assert bodies[2]["tools"][0]["function"]["name"] == "f"
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
    assert [s.parent for s in talk.spans()] == [None, 0, 0]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nbroken\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", 431),
        (b"POST /tools/call HTTP/1.1\r\nAuthorization: Bearer KEY\r\nContent-Length: 5x\r\n\r\n", 400),
        (b"POST /tools/call HTTP/1.1\r\nAuthorization: Bearer KEY\r\nContent-Length: 99999\r\n\r\n", 413),
        (b"POST /tools/call HTTP/1.1\r\nAuthorization: Bearer KEY\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST /tools/call HTTP/1.1\r\nAuthorization: Bearer nope\r\nContent-Length: 99999\r\n\r\n", 401),
        (b"POST /tools/call HTTP/1.1\r\nAuthorization: Bearer KEY\r\nContent-Length: 3\r\n\r\n\xff{{", 400),
        (b"POST /tools/call HTTP/1.1\r\nAuthorization: Bearer KEY\r\nAuthorization: Bearer b\r\n\r\n", 400),
    ],
)
async def test_what_is_broken_or_too_large_is_refused(data: bytes, status: int) -> None:
    seat, _ = seat_of(SpokenEngine([]))
    async with serving(seat, limits=Limits(most_body_bytes=10_000)) as gateway:
        got, body = await send(gateway, data.replace(b"KEY", seat.key.encode()))
        assert got == status
        assert body["error"]["message"]
    assert not seat.failed.is_set()


async def test_a_large_body_is_announced_and_taken() -> None:
    seat, talk = seat_of(SpokenEngine(["ok"], max_context=10_000_000))
    large = {"model": "m", "messages": [{"role": "user", "content": "ü" * 500_000}]}
    data = request("POST", "/v1/chat/completions", seat.key, large, "Expect: 100-continue")
    head, _, body = data.partition(b"\r\n\r\n")
    async with serving(seat) as gateway:
        reader, writer = await connect(gateway)
        writer.write(head + b"\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(body)
        assert (await answer(reader))[0] == 200
        writer.close()
    assert len(talk.spans()[0].token_ids_T) > 1_000_000


async def test_slow_and_silent_clients_hold_up_no_one_and_are_dropped() -> None:
    seat, _ = seat_of(SpokenEngine(["quick"]))
    async with serving(seat, limits=Limits(idle_s=0.3, transfer_s=0.3)) as gateway:
        silent = [await connect(gateway) for _ in range(20)]
        slow_reader, slow_writer = await connect(gateway)
        slow_writer.write(request("POST", "/v1/chat/completions", seat.key, ASK)[:-5])
        status, _ = await send(gateway, request("POST", "/v1/chat/completions", seat.key, ASK))
        assert status == 200
        for reader, writer in [*silent, (slow_reader, slow_writer)]:
            assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()


async def test_a_client_that_goes_away_leaves_nothing_to_train_on() -> None:
    engine = SlowEngine()
    seat, talk = seat_of(engine)
    async with serving(seat) as gateway:
        _, writer = await connect(gateway)
        writer.write(request("POST", "/v1/chat/completions", seat.key, ASK))
        await asyncio.wait_for(engine.waiting.wait(), 10)
        writer.close()
        await asyncio.wait_for(engine.cancelled.wait(), 10)
        engine.go.set()
        status, _ = await send(gateway, request("POST", "/v1/chat/completions", seat.key, ASK))
        assert status == 200
    assert [s.kind for s in talk.spans()] == [SpanKind.PROMPT, SpanKind.COMPLETION]


async def test_an_attempt_that_is_left_cancels_what_is_under_way() -> None:
    engine = SlowEngine()
    seat, talk = seat_of(engine)
    async with serving(seat) as gateway:
        reader, writer = await connect(gateway)
        writer.write(request("POST", "/v1/chat/completions", seat.key, ASK))
        await asyncio.wait_for(engine.waiting.wait(), 10)
        await gateway.leave(seat)
        assert engine.cancelled.is_set()
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
    assert seat.num_completions == 0
    assert len(talk.spans()) == 1


async def test_time_in_which_a_completion_is_awaited_is_not_the_programs() -> None:
    engine = SlowEngine()
    seat, _ = seat_of(engine)
    async with serving(seat) as gateway:
        asked = [
            asyncio.ensure_future(send(gateway, request("POST", "/v1/chat/completions", seat.key, ASK)))
            for _ in range(2)
        ]
        await asyncio.wait_for(engine.waiting.wait(), 10)
        await asyncio.sleep(0.2)
        assert 0.15 < seat.waited_s < 5.0
        engine.go.set()
        await asyncio.gather(*asked)
        waited_s = seat.waited_s
        await asyncio.sleep(0.1)
        assert seat.waited_s == waited_s


async def test_ends_are_told_as_errors_and_infrastructure_ends_the_attempt() -> None:
    seat, _ = seat_of(SpokenEngine(["x"], max_context=5))
    async with serving(seat) as gateway:
        status, body = await send(gateway, request("POST", "/v1/chat/completions", seat.key, ASK))
        assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
        assert not seat.failed.is_set()
    seat, _ = seat_of(SpokenEngine(["x"], fail_at=0))
    async with serving(seat) as gateway:
        status, body = await send(gateway, request("POST", "/v1/chat/completions", seat.key, ASK))
        assert (status, body["error"]["code"]) == (503, "engine_error")
        assert seat.failed.is_set()
        assert seat.end is not None
        assert seat.end.reason is EndReason.ENGINE_ERROR
        status, body = await send(gateway, request("POST", "/v1/chat/completions", seat.key, ASK))
        assert (status, body["error"]["code"]) == (400, "attempt_over")


async def test_log_probabilities_that_are_none_are_infrastructure() -> None:
    class Filled(SpokenEngine):
        async def generate(self, request: GenerationRequest) -> Generation:
            generation = await super().generate(request)
            return Generation(
                token_ids_T=generation.token_ids_T,
                logprobs_T=(),
                versions=generation.versions,
                kv_step=0,
                finish="stop",
            )

    seat, talk = seat_of(Filled(["x"]))
    async with serving(seat) as gateway:
        status, _ = await send(gateway, request("POST", "/v1/chat/completions", seat.key, ASK))
    assert status == 503
    assert seat.end is not None
    assert seat.end.reason is EndReason.ENGINE_ERROR
    assert [s.kind for s in talk.spans()] == [SpanKind.PROMPT]


async def test_finish_reasons_and_the_limit_of_completions() -> None:
    seat, _ = seat_of(SpokenEngine(['f {"a": 1}', 'f {"a": ', "x" * 40]), most=20)
    async with serving(seat) as gateway:
        bodies = [(await send(gateway, request("POST", "/v1/chat/completions", seat.key, ASK)))[1] for _ in range(4)]
    choices = [body["choices"][0] for body in bodies[:3]]
    assert [choice["finish_reason"] for choice in choices] == ["tool_calls", "stop", "length"]
    assert choices[0]["message"]["content"] is None
    assert json.loads(choices[0]["message"]["tool_calls"][0]["function"]["arguments"]) == {"a": 1}
    assert choices[1]["message"]["content"] == 'f {"a": '
    assert bodies[2]["usage"]["completion_tokens"] == 20
    assert bodies[3]["error"]["code"] == "turn_limit"


async def test_tools_are_called_one_by_one_or_as_a_turn_and_decline_ends() -> None:
    seat, _ = seat_of(SpokenEngine([]))
    async with serving(seat) as gateway:
        status, body = await send(gateway, request("POST", "/tools/call", seat.key, {"name": "f", "arguments": "{}"}))
        assert (status, body) == (200, {"id": "program_1", "content": "{}", "is_error": False})
        calls = [{"id": "c", "type": "function", "function": {"name": n, "arguments": "{}"}} for n in ("f", "bad")]
        _, body = await send(gateway, request("POST", "/tools/call", seat.key, {"calls": calls}))
        assert [row["is_error"] for row in body["results"]] == [False, True]
        broken: list[dict[str, Any]] = [{}, {"calls": []}, {"calls": 5}, {"name": "f", "arguments": 5}]
        for wrong in broken:
            assert (await send(gateway, request("POST", "/tools/call", seat.key, wrong)))[0] == 400
        await send(gateway, request("POST", "/tools/call", seat.key, {"name": "decline", "arguments": {}}))
        assert seat.declined
        status, body = await send(gateway, request("POST", "/v1/chat/completions", seat.key, ASK))
        assert (status, body["error"]["code"]) == (400, "attempt_over")


async def test_a_world_that_breaks_ends_the_attempt() -> None:
    seat, _ = seat_of(SpokenEngine([]))
    async with serving(seat) as gateway:
        status, body = await send(
            gateway, request("POST", "/tools/call", seat.key, {"name": "broken", "arguments": {}})
        )
    assert (status, body["error"]["code"]) == (503, "world_error")
    assert seat.failed.is_set()


async def test_lone_surrogates_that_a_policy_writes_come_back_and_break_nothing() -> None:
    seat, talk = seat_of(SpokenEngine(['f {"a": "\\ud800"}', "end"]))
    async with serving(seat) as gateway:
        _, body = await send(gateway, request("POST", "/v1/chat/completions", seat.key, ASK))
        told = body["choices"][0]["message"]
        more = {"messages": [*ASK["messages"], told, {"role": "tool", "tool_call_id": "c", "content": "r"}]}
        status, _ = await send(gateway, request("POST", "/v1/chat/completions", seat.key, more))
    assert status == 200
    assert [s.parent for s in talk.spans()] == [None, 0, 1, 2]
