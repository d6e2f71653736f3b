"""Faults at the boundary of a small SQLite world: what happened, what was told, and what was only true earlier."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.perturbation import FAULT_KINDS, TIMEOUT_MS, FaultProfile, FaultRule, SeededWeather
from flightschool.protocols import PermissionDecision, WorldReply
from flightschool.records import Effect, Json, Latency, ToolCall, ToolEvent, ToolResult, ToolSpec
from flightschool.tools import ToolBoundary
from flightschool.verification import FAULTS_THAT_TOOK_EFFECT, took_effect


class TankWorld:
    """Tanks with a level on SQLite: ``level(id)`` and ``tanks()`` read, ``fill(id, by)`` adds, ``ping`` answers 7."""

    def __init__(self, data: bytes | None = None) -> None:
        self.connection = sqlite3.connect(":memory:")
        if data is None:
            self.connection.executescript("CREATE TABLE tank (id TEXT PRIMARY KEY, level INT);")
            self.connection.executescript("INSERT INTO tank VALUES ('T1', 10), ('T2', 20);")
        else:
            self.connection.deserialize(data)

    def execute(self, call: ToolCall) -> WorldReply:
        if call.name == "ping":
            return WorldReply(value=7)
        if call.name == "tanks":
            rows = self.connection.execute("SELECT id, level FROM tank ORDER BY id").fetchall()
            return WorldReply(value={"tanks": [list(row) for row in rows], "unit": "m3"})
        tank = call.arguments["id"]
        row = self.connection.execute("SELECT level FROM tank WHERE id = ?", (tank,)).fetchone()
        if row is None:
            return WorldReply(value=f"no tank {tank}", is_error=True)
        if call.name == "level":
            return WorldReply(value={"id": tank, "level": row[0]})
        self.connection.execute("UPDATE tank SET level = level + ? WHERE id = ?", (call.arguments["by"], tank))
        self.connection.commit()
        return WorldReply(value={"id": tank, "filled": True})

    def snapshot(self) -> bytes:
        return json.dumps(self.connection.execute("SELECT * FROM tank ORDER BY id").fetchall()).encode()

    def fork(self) -> TankWorld:
        return TankWorld(self.connection.serialize())

    def close(self) -> None:
        self.connection.close()


class AllowAll:
    def decide(self, call: ToolCall, events: Sequence[ToolEvent]) -> PermissionDecision:
        return PermissionDecision(allowed=True, rule="all")


ANY: dict[str, Json] = {"type": "object"}
SPECS = (
    ToolSpec(name="level", description="", parameters=ANY, latency=Latency(median_ms=10.0)),
    ToolSpec(name="tanks", description="", parameters=ANY, latency=Latency(median_ms=10.0)),
    ToolSpec(name="ping", description="", parameters=ANY, latency=Latency(median_ms=10.0)),
    ToolSpec(name="fill", description="", parameters=ANY, effect=Effect.WRITE, latency=Latency(median_ms=10.0)),
)


class Desk:
    """One attempt in one fault, which strikes its first ``max_hits`` matching calls."""

    def __init__(self, kind: str, *, max_hits: int = 1, tools: tuple[str, ...] = ("*",)) -> None:
        self.world = TankWorld()
        rule = FaultRule(kind=kind, rate=1.0, max_hits=max_hits, tools=tools)
        self.weather = SeededWeather(FaultProfile(name="one", faults=(rule,), max_hits=9), seed=3)
        self.tools = ToolBoundary(self.world, SPECS, AllowAll(), weather=self.weather)

    async def __call__(self, name: str, **arguments: Json) -> ToolResult:
        (result,) = await self.tools.call([ToolCall(id="c", name=name, arguments=arguments)])
        return result

    async def level(self) -> Json:
        """Level of T1 as it truly is."""
        return self.world.execute(ToolCall(id="t", name="level", arguments={"id": "T1"})).value["level"]


def kind_of(result: ToolResult) -> str | None:
    return result.fault.kind if result.fault else None


# ------------------------------------------------------------------------------------------------ time-outs


async def test_a_time_out_before_the_write_leaves_the_world_and_a_retry_works() -> None:
    desk = Desk("timeout_before_write")
    struck = await desk("fill", id="T1", by=5)
    assert struck.is_error
    assert kind_of(struck) == "timeout_before_write"
    assert await desk.level() == 10
    assert not (await desk("fill", id="T1", by=5)).is_error
    assert await desk.level() == 15


async def test_a_time_out_after_the_write_hides_that_it_happened_and_a_blind_retry_doubles_it() -> None:
    desk = Desk("timeout_after_write")
    struck = await desk("fill", id="T1", by=5)
    assert struck.is_error
    assert kind_of(struck) == "timeout_after_write"
    assert json.loads((await desk("level", id="T1")).content)["level"] == 15  # a look would have told
    await desk("fill", id="T1", by=5)
    assert await desk.level() == 20


async def test_the_two_time_outs_cannot_be_told_apart() -> None:
    before, after = Desk("timeout_before_write"), Desk("timeout_after_write")
    told = [await desk("fill", id="T1", by=5) for desk in (before, after)]
    assert told[0].content == told[1].content
    assert told[0].is_error is told[1].is_error
    assert before.tools.clock.now_ms == after.tools.clock.now_ms == 10.0 + TIMEOUT_MS


async def test_a_write_that_the_domain_refused_is_not_called_a_hidden_success() -> None:
    desk = Desk("timeout_after_write")
    refused = await desk("fill", id="T9", by=5)
    assert refused.content == '{"error": "no tank T9"}'
    assert refused.fault is None
    assert [(hit.fault.kind, hit.applied) for hit in desk.weather.log] == [("timeout_after_write", False)]
    assert kind_of(await desk("fill", id="T1", by=5)) == "timeout_after_write"  # what did not happen was not used up


async def test_verification_counts_hidden_writes_as_done_and_no_others() -> None:
    assert set(FAULT_KINDS) >= FAULTS_THAT_TOOK_EFFECT
    for kind in FAULT_KINDS:
        desk = Desk(kind)
        await desk("fill", id="T1", by=5)
        assert took_effect(desk.tools.events[0]) is (await desk.level() == 15), kind


async def test_reads_time_out_too() -> None:
    desk = Desk("timeout_of_read")
    assert kind_of(await desk("fill", id="T1", by=5)) is None
    assert kind_of(await desk("level", id="T1")) == "timeout_of_read"
    assert json.loads((await desk("level", id="T1")).content)["level"] == 15


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("kind", "words"), [("rate_limited", ["429", "retry after 2 s"]), ("server_error", ["503", "try again"])]
)
async def test_a_refusal_executes_nothing_and_a_retry_works(kind: str, words: list[str]) -> None:
    desk = Desk(kind)
    struck = await desk("fill", id="T1", by=5)
    assert struck.is_error
    assert kind_of(struck) == kind
    assert all(word in json.loads(struck.content)["error"] for word in words)
    assert await desk.level() == 10
    assert not (await desk("fill", id="T1", by=5)).is_error
    assert await desk.level() == 15


# ------------------------------------------------------------------------------------------------ wrong answers


async def test_a_stale_read_is_an_earlier_real_state() -> None:
    desk = Desk("stale_read", max_hits=9)
    first = await desk("level", id="T1")
    assert kind_of(first) is None  # nothing earlier to serve
    await desk("fill", id="T1", by=5)
    stale = await desk("level", id="T1")
    assert kind_of(stale) == "stale_read"
    assert stale.content == first.content
    assert not stale.is_error


async def test_a_read_that_no_write_touched_cannot_be_stale() -> None:
    desk = Desk("stale_read", max_hits=9)
    await desk("fill", id="T1", by=5)
    fresh = await desk("level", id="T2")
    assert fresh.fault is None
    assert fresh.served_by == "code"
    assert desk.weather.log[-1].applied is False


@given(steps=st.lists(st.sampled_from([1, 2, 3, 0]), max_size=8))
@settings(max_examples=25, deadline=None)
async def test_stale_reads_equal_what_was_once_true(steps: list[int]) -> None:
    desk = Desk("stale_read", max_hits=99)
    once_true = [10]
    for step in steps:
        if step:
            await desk("fill", id="T1", by=step)
            once_true.append(once_true[-1] + step)
        else:
            read = await desk("level", id="T1")
            told = json.loads(read.content)["level"]
            earlier = once_true[:-1]
            assert told == (earlier[-1] if earlier else once_true[-1])
            assert (kind_of(read) == "stale_read") is bool(earlier)
    assert await desk.level() == once_true[-1]


async def test_a_truncated_answer_is_no_json_and_no_error() -> None:
    desk = Desk("truncated_json")
    cut = await desk("tanks")
    whole = await desk("tanks")
    assert kind_of(cut) == "truncated_json"
    assert not cut.is_error
    assert whole.content.startswith(cut.content)
    assert 0 < len(cut.content) < len(whole.content)
    with pytest.raises(json.JSONDecodeError):
        json.loads(cut.content)


async def test_what_cannot_be_cut_is_left_whole() -> None:
    desk = Desk("truncated_json")
    assert (await desk("ping")).content == "7"
    assert desk.tools.events[0].result.fault is None


async def test_an_empty_result_hides_data() -> None:
    desk = Desk("empty_result", max_hits=2)
    assert json.loads((await desk("tanks")).content) == {"tanks": [], "unit": "m3"}
    assert (await desk("level", id="T1")).content == "{}"
    assert len(json.loads((await desk("tanks")).content)["tanks"]) == 2


async def test_nothing_can_be_hidden_where_there_is_nothing() -> None:
    desk = Desk("empty_result")
    assert kind_of(await desk("level", id="T9")) is None
    assert kind_of(await desk("ping")) is None


async def test_a_spike_is_slow_and_right() -> None:
    desk = Desk("latency_spike")
    slow = await desk("fill", id="T1", by=5)
    assert not slow.is_error
    assert kind_of(slow) == "latency_spike"
    assert desk.tools.clock.now_ms == 10.0 + 3000.0
    assert await desk.level() == 15


# ------------------------------------------------------------------------------------------------ of all faults


@pytest.mark.parametrize("kind", sorted(FAULT_KINDS))
async def test_no_fault_is_told_and_each_passes(kind: str) -> None:
    desk = Desk(kind, max_hits=1)
    results = [await desk("fill", id="T1", by=1) for _ in range(3)]
    results += [await desk("tanks") for _ in range(3)]
    assert sum(result.fault is not None for result in results) == 1
    family = FAULT_KINDS[kind].family
    for result in results:
        assert kind not in result.content
        assert "fault" not in result.content
        if result.fault is not None:
            assert (result.fault.kind, result.fault.family) == (kind, family)
    assert not results[2].is_error
    assert not results[5].is_error
    assert len(json.loads(results[5].content)["tanks"]) == 2
