"""The tool boundary: gates in order, actionable refusals, nothing hidden told, everything logged."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.digest import digest
from flightschool.errors import InfrastructureError, InputError
from flightschool.protocols import PermissionDecision, Strike, World, WorldReply
from flightschool.records import Effect, Fault, Json, Latency, ToolCall, ToolEvent, ToolResult, ToolSpec
from flightschool.tools import ToolBoundary, VirtualClock


class ShelfWorld:
    """Parts on a shelf: ``get(part)`` reads, ``take(part)`` writes, ``crash`` breaks the world."""

    def __init__(self, stock: dict[str, int]) -> None:
        self.stock = dict(stock)
        self.closed = False

    def execute(self, call: ToolCall) -> WorldReply:
        part = str(call.arguments.get("part", ""))
        if call.name == "crash":
            raise KeyError("shelf")
        if call.name == "garble":
            return WorldReply(value=math.nan)
        if part not in self.stock:
            return WorldReply(value=f"no part {part}", is_error=True)
        if call.name == "take":
            if self.stock[part] == 0:
                return WorldReply(value="none left", is_error=True)
            self.stock[part] -= 1
        return WorldReply(value={"part": part, "left": self.stock[part]})

    def snapshot(self) -> bytes:
        return json.dumps(self.stock, sort_keys=True).encode()

    def fork(self) -> World:
        return ShelfWorld(self.stock)

    def close(self) -> None:
        self.closed = True


class Allow:
    """Permits all but the named tools; ``explode`` makes the rule itself fail."""

    def __init__(self, deny: Sequence[str] = (), explode: Sequence[str] = ()) -> None:
        self.deny, self.explode = deny, explode
        self.seen: list[int] = []

    def decide(self, call: ToolCall, events: Sequence[ToolEvent]) -> PermissionDecision:
        self.seen.append(len(events))
        if call.name in self.explode:
            raise ZeroDivisionError("a rule that fails")
        allowed = call.name not in self.deny
        return PermissionDecision(allowed=allowed, rule="SECRET-RULE", reason="SECRET-REASON")


class FixedWeather:
    """Strikes every call of the named tool with an error that carries a secret truth."""

    profile = "fixed"

    def __init__(self, tool: str, raises: bool = False) -> None:
        self.tool, self.raises = tool, raises

    def strike(self, call: ToolCall, spec: ToolSpec, index: int, turn: int) -> Strike | None:
        return FixedStrike(self.raises) if call.name == self.tool else None


class FixedStrike:
    fault = Fault(kind="SECRET-FAULT", family="SECRET-FAMILY")

    def __init__(self, raises: bool) -> None:
        self.raises = raises

    def apply(
        self, run: Callable[[], ToolResult], history: Sequence[World], call: ToolCall
    ) -> tuple[ToolResult, float]:
        if self.raises:
            raise RuntimeError("the fault is broken")
        run()
        content = f"saw {len(history)} earlier states"
        return ToolResult(call_id="x", content=content, is_error=True, served_by="fault", fault=self.fault), 500.0


PART: dict[str, Json] = {"type": "object", "properties": {"part": {"type": "string"}}, "required": ["part"]}
SPECS = (
    ToolSpec(name="get", description="Read.", parameters=PART, latency=Latency(median_ms=30.0)),
    ToolSpec(name="take", description="Take.", parameters=PART, effect=Effect.WRITE, latency=Latency(median_ms=70.0)),
    ToolSpec(name="crash", description="Break.", parameters={"type": "object"}),
    ToolSpec(name="garble", description="NaN.", parameters={"type": "object"}),
)


def boundary(world: World | None = None, permissions: Allow | None = None, **options: Any) -> ToolBoundary:
    return ToolBoundary(world or ShelfWorld({"bolt": 2}), SPECS, permissions or Allow(), **options)


def call(name: str, call_id: str = "c", **arguments: Json) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


async def one(tools: ToolBoundary, asked: ToolCall) -> ToolResult:
    (result,) = await tools.call([asked])
    return result


# ------------------------------------------------------------------------------------------------ answers


async def test_a_call_reaches_the_world_and_the_answer_is_plain_json() -> None:
    tools = boundary()
    result = await one(tools, call("take", "c7", part="bolt"))
    assert result.content == '{"part": "bolt", "left": 1}'
    assert (result.call_id, result.is_error, result.served_by, result.fault) == ("c7", False, "code", None)
    assert result.permission is not None
    assert result.permission.rule == "SECRET-RULE"


async def test_text_of_any_language_stays_readable() -> None:
    result = await one(boundary(ShelfWorld({"Schlüssel": 1})), call("get", part="Schlüssel"))
    assert "Schlüssel" in result.content


async def test_an_error_of_the_domain_is_an_answer() -> None:
    result = await one(boundary(), call("get", part="nut"))
    assert (result.is_error, result.content) == (True, '{"error": "no part nut"}')


async def test_an_unknown_tool_gets_a_hint() -> None:
    tools = boundary()
    result = await one(tools, call("takes", part="bolt"))
    assert result.is_error
    assert "did you mean take" in result.content
    assert tools.events[0].result.served_by == "boundary"


async def test_a_tool_that_is_not_shown_is_not_told_of() -> None:
    tools = boundary(shown=("get",))
    assert [spec.name for spec in tools.specs()] == ["get"]
    result = await one(tools, call("take", part="bolt"))
    assert result.is_error
    assert result.content == '{"error": "unknown tool \'take\'; the tools are: get"}'


async def test_wrong_arguments_never_reach_the_world() -> None:
    world = ShelfWorld({"bolt": 2})
    result = await one(boundary(world), call("take", part=3))
    assert "argument 'part': expected string, got 3" in json.loads(result.content)["error"]
    assert world.stock == {"bolt": 2}


# ------------------------------------------------------------------------------------------------ permission and budget


@pytest.mark.parametrize("permissions", [Allow(deny=["take"]), Allow(explode=["take"])])
async def test_a_denial_and_a_failing_rule_both_deny(permissions: Allow) -> None:
    world = ShelfWorld({"bolt": 2})
    tools = boundary(world, permissions)
    result = await one(tools, call("take", part="bolt"))
    assert result.is_error
    assert "permission denied" in result.content
    assert world.stock == {"bolt": 2}
    logged = tools.events[0].result.permission
    assert logged is not None
    assert not logged.allowed


async def test_a_decision_that_is_merely_truthy_does_not_allow() -> None:
    class Sloppy(Allow):
        def decide(self, call: ToolCall, events: Sequence[ToolEvent]) -> PermissionDecision:
            return PermissionDecision(allowed="no", rule="sloppy")  # type: ignore[arg-type]

    assert (await one(boundary(permissions=Sloppy()), call("get", part="bolt"))).is_error


async def test_a_rule_sees_the_earlier_calls_of_the_same_turn() -> None:
    permissions = Allow()
    await boundary(permissions=permissions).call([call("get", part="bolt"), call("take", part="bolt")])
    assert permissions.seen == [0, 1]


async def test_the_budget_counts_every_call_and_then_refuses() -> None:
    world = ShelfWorld({"bolt": 9})
    tools = boundary(world, max_calls=3)
    await tools.call([call("nonsense"), call("take", part="bolt")])
    last, beyond = await tools.call([call("take", part="bolt"), call("take", part="bolt")])
    assert not last.is_error
    assert beyond.is_error
    assert "budget of 3 calls" in beyond.content
    assert world.stock == {"bolt": 7}
    assert len(tools.events) == 4


# ------------------------------------------------------------------------------------------------ secrets and logging


async def test_nothing_hidden_is_told_and_everything_is_logged() -> None:
    tools = boundary(permissions=Allow(deny=["crash"]), weather=FixedWeather("take"))
    results = await tools.call([call("take", part="bolt"), call("crash"), call("get", part="bolt")])
    assert not any("SECRET" in result.content for result in results)
    assert [event.result for event in tools.events] == list(results)
    struck = tools.events[0].result
    assert struck.fault == FixedStrike.fault
    assert struck.call_id == "c"
    assert struck.permission is not None
    assert [event.index for event in tools.events] == [0, 1, 2]
    assert [event.effect for event in tools.events] == [Effect.WRITE, Effect.READ, Effect.READ]


# ------------------------------------------------------------------------------------------------ time


async def test_calls_of_a_turn_overlap_on_the_virtual_clock() -> None:
    clock = VirtualClock()
    clock.advance(5.0)
    tools = boundary(clock=clock)
    await tools.call([call("get", part="bolt"), call("take", part="bolt")])
    await tools.call([call("get", part="bolt")])
    assert clock.now_ms == 5.0 + 70.0 + 30.0
    assert [(e.turn, e.start_ms, e.end_ms) for e in tools.events] == [
        (0, 5.0, 35.0),
        (0, 5.0, 75.0),
        (1, 75.0, 105.0),
    ]


async def test_a_fault_adds_its_time() -> None:
    tools = boundary(weather=FixedWeather("take"))
    await tools.call([call("take", part="bolt")])
    assert tools.clock.now_ms == 570.0


async def test_a_turn_without_calls_is_no_turn() -> None:
    tools = boundary()
    assert await tools.call([]) == ()
    await tools.call([call("get", part="bolt")])
    assert tools.events[0].turn == 0


# ------------------------------------------------------------------------------------------------ cache and history


async def test_the_read_cache_is_off_unless_asked_for_and_any_write_empties_it() -> None:
    plain = boundary()
    for _ in range(2):
        assert (await one(plain, call("get", part="bolt"))).served_by == "code"
    tools = boundary(cache_reads=True)
    asked = [call("get", part="bolt"), call("get", part="bolt"), call("take", part="bolt"), call("get", part="bolt")]
    results = [await one(tools, item) for item in asked]
    assert [result.served_by for result in results] == ["code", "cache", "code", "code"]
    assert [json.loads(result.content)["left"] for result in results] == [2, 2, 1, 1]


async def test_history_holds_the_state_before_each_successful_write_only_in_weather() -> None:
    clean = boundary()
    await one(clean, call("take", part="bolt"))
    assert clean.history == ()
    tools = boundary(weather=FixedWeather("nothing"))
    for _ in range(3):  # the third finds the shelf empty
        await one(tools, call("take", part="bolt"))
    kept = tools.history
    assert [world.snapshot() for world in kept] == [b'{"bolt": 2}', b'{"bolt": 1}']
    tools.close()
    assert tools.history == ()
    assert all(isinstance(world, ShelfWorld) and world.closed for world in kept)


# ------------------------------------------------------------------------------------------------ ends and breaks


@pytest.mark.parametrize("name", ["crash", "garble"])
async def test_a_world_that_breaks_is_infrastructure(name: str) -> None:
    with pytest.raises(InfrastructureError, match="the world raised") as caught:
        await boundary().call([call(name, "c9")])
    assert "c9" in caught.value.where


async def test_a_fault_that_breaks_is_infrastructure() -> None:
    with pytest.raises(InfrastructureError, match="a fault of the weather"):
        await boundary(weather=FixedWeather("get", raises=True)).call([call("get", part="bolt")])


async def test_no_call_is_possible_after_the_end() -> None:
    world = ShelfWorld({"bolt": 2})
    tools = boundary(world)
    await one(tools, call("take", part="bolt"))
    tools.close()
    tools.close()
    with pytest.raises(InfrastructureError, match="after the episode was over"):
        await tools.call([call("take", part="bolt")])
    assert world.stock == {"bolt": 1}
    assert not world.closed
    assert len(tools.events) == 1


def test_tools_that_clash_or_are_missing_are_refused() -> None:
    with pytest.raises(InputError, match="share the name 'get'"):
        ToolBoundary(ShelfWorld({}), [SPECS[0], SPECS[0]], Allow())
    with pytest.raises(InputError, match="'got'"):
        boundary(shown=("got",))


# ------------------------------------------------------------------------------------------------ hostile values


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, "a finite number"),
        (-math.inf, "a finite number"),
        (2**63, "within 64 bits"),
        ("\ud800", "valid Unicode"),
        ({"\udfff": 1}, "valid Unicode"),
        ([[math.nan]], "a finite number"),
    ],
)
async def test_values_that_would_break_a_world_are_the_policys_own_mistake(value: Json, expected: str) -> None:
    tools = boundary()
    result = await one(tools, call("get", part="bolt", extra=value))
    assert result.is_error
    assert expected in result.content
    assert digest(tools.events).startswith("sha256:")  # the log of it can be stored and digested


async def test_nesting_without_end_is_refused() -> None:
    deep: Json = []
    for _ in range(5000):
        deep = [deep]
    tools = boundary()
    result = await one(tools, call("get", part="bolt", extra=deep))
    assert "levels of nesting" in result.content
    assert digest(tools.events).startswith("sha256:")


async def test_a_name_that_is_no_text_is_logged_escaped() -> None:
    tools = boundary()
    assert (await one(tools, call("\ud800get"))).is_error
    assert digest(tools.events).startswith("sha256:")


# ------------------------------------------------------------------------------------------------ law

calls = st.builds(
    ToolCall,
    id=st.just("c"),
    name=st.sampled_from(["get", "take", "nope"]),
    arguments=st.fixed_dictionaries({"part": st.sampled_from(["bolt", "nut", 3])}),
)


@given(turns=st.lists(st.lists(calls, max_size=3), max_size=4), seed=st.integers(0, 5))
@settings(max_examples=30, deadline=None)
async def test_equal_calls_and_seed_give_equal_events(turns: list[list[ToolCall]], seed: int) -> None:
    logs = []
    for _ in range(2):
        spread = [ToolSpec(name=s.name, description="", parameters=s.parameters, effect=s.effect,
                           latency=Latency(median_ms=40.0, sigma=0.4)) for s in SPECS]  # fmt: skip
        tools = ToolBoundary(ShelfWorld({"bolt": 3}), spread, Allow(), seed=seed)
        for turn in turns:
            await tools.call(turn)
        assert tools.clock.now_ms == max((event.end_ms for event in tools.events), default=0.0)
        logs.append(digest(tools.events))
    assert logs[0] == logs[1]
