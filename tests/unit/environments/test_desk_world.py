"""The desk's world: canonical states, independence, and no input that breaks it."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.environments.desk import DeskWorld
from flightschool.environments.desk.schema import TABLES, Cell, StartState, open_image
from flightschool.environments.desk.toolset import FOOTPRINTS, REACH, TOOLS, WRITTEN
from flightschool.errors import InfrastructureError
from flightschool.protocols import World
from flightschool.records import Effect, Json, ToolCall, ToolSpec

NAMES = {tool.name: tool.name for tool in TOOLS}
START = StartState(
    {
        "assets": [{"id": "P-1", "owner": "Mira", "zone": "North", "lock": "no"}, {"id": "P-2", "owner": "Otto"}],
        "orders": [{"id": "W1", "task": "repair"}, {"id": "W2", "task": "repair"}],
        "parts": [{"id": "K1", "asset": "P-1", "stock": 2}, {"id": "K2", "stock": 0}],
        "alerts": [{"id": "A1", "asset": "P-1", "level": "high"}],
        "rulings": [{"action": "scrap", "subject": "K1", "state": "granted"}],
    }
)
IMAGE = START.image
WRITES: list[tuple[str, dict[str, Json]]] = [
    ("assign_order", {"order": "W1", "technician": "Mira"}),
    ("set_level", {"order": "W2", "level": "high"}),
    ("set_hours", {"order": "W1", "hours": 3}),
    ("reserve_part", {"part": "K1", "order": "W2"}),
    ("book_person", {"person": "Otto", "day": "Mon"}),
    ("acknowledge_alert", {"alert": "A1", "person": "Otto"}),
    ("notify", {"person": "Mira", "about": "A1"}),
    ("scrap_part", {"part": "K2"}),
    ("request_approval", {"action": "scrap", "subject": "K1"}),
]


def fresh() -> DeskWorld:
    return DeskWorld(START, NAMES)


def do(world: World, name: str, **arguments: Json) -> Json:
    reply = world.execute(ToolCall(id="c", name=name, arguments=arguments))
    assert not reply.is_error, reply.value
    return reply.value


def refused(world: World, name: str, **arguments: Json) -> str:
    reply = world.execute(ToolCall(id="c", name=name, arguments=arguments))
    assert reply.is_error
    return str(reply.value["error"])


def test_reading_answers_short_flat_objects_and_changes_nothing() -> None:
    world = fresh()
    assert do(world, "get_asset", asset="P-1") == {"zone": "North", "owner": "Mira", "lock": "no"}
    assert do(world, "find_parts", asset="P-1") == {"parts": ["K1"]}
    assert do(world, "list_alerts", asset="P-1") == {"alerts": ["A1"]}
    assert world.snapshot() == IMAGE


@settings(max_examples=30, deadline=None)
@given(st.permutations(WRITES))
def test_equal_states_give_equal_bytes_whatever_the_order_of_writing(order: list[tuple[str, dict[str, Json]]]) -> None:
    one, other = fresh(), fresh()
    for name, arguments in WRITES:
        do(one, name, **arguments)
    for name, arguments in order:
        do(other, name, **arguments)
        other.snapshot()
    assert one.snapshot() == other.snapshot() != IMAGE


def test_what_was_added_and_taken_back_leaves_no_trace() -> None:
    connection = open_image(IMAGE)
    connection.execute("INSERT INTO notices VALUES ('M1', 'Mira', 'hello')")
    connection.execute("DELETE FROM notices")
    assert connection.serialize() != IMAGE  # why the canonical form is needed
    assert START.canonical_image(connection, ["notices"]) == IMAGE
    connection.close()


def test_a_state_is_a_small_sqlite_database() -> None:
    world = fresh()
    do(world, "assign_order", order="W1", technician="Otto")
    connection = sqlite3.connect(":memory:")
    connection.deserialize(world.snapshot())
    assert connection.execute("SELECT technician FROM orders WHERE id = 'W1'").fetchall() == [("Otto",)]
    connection.close()
    assert len(world.snapshot()) <= 40_000


def test_forks_and_fresh_worlds_share_nothing() -> None:
    world = fresh()
    do(world, "set_level", order="W1", level="low")
    before = world.snapshot()
    fork = world.fork()
    do(fork, "set_level", order="W1", level="high")
    assert world.snapshot() == before != fork.snapshot()
    do(world, "set_level", order="W2", level="low")
    assert fork.fork().snapshot() == fork.snapshot()
    assert fresh().snapshot() == IMAGE
    world.close()
    assert do(fork, "get_order", order="W1") == {"task": "repair", "level": "high"}


def test_a_closed_world_is_an_infrastructure_error() -> None:
    world = fresh()
    world.close()
    with pytest.raises(InfrastructureError, match="closed"):
        do(world, "get_asset", asset="P-1")


def test_refusals_name_what_is_wrong() -> None:
    world = fresh()
    assert refused(world, "get_asset", asset="P-9") == "no asset P-9"
    assert refused(world, "assign_order", order="W9", technician="Otto") == "no order W9"
    assert refused(world, "reserve_part", part="K2", order="W1") == "no stock of K2"
    assert refused(world, "assign_order", order="W1") == "technician is missing"
    assert refused(world, "set_hours", order="W1", hours="3") == "hours must be a whole number"
    assert refused(world, "fly") == "no tool fly"
    assert world.snapshot() == IMAGE


def test_approvals_come_from_the_ruling_and_are_refused_without_one() -> None:
    world = fresh()
    first = do(world, "request_approval", action="scrap", subject="K1")
    assert first == do(world, "request_approval", action="scrap", subject="K1")
    assert do(world, "get_approval", approval=first["approval"])["state"] == "granted"
    other = do(world, "request_approval", action="scrap", subject="K2")
    assert do(world, "get_approval", approval=other["approval"])["state"] == "refused"


def test_a_decline_keeps_what_was_read_before_it_and_only_the_first_counts() -> None:
    world = fresh()
    do(world, "get_asset", asset="P-1")
    refused(world, "get_asset", asset="P-9")
    do(world, "decline", reason="locked")
    do(world, "decline", reason="again")
    connection = open_image(world.snapshot())
    assert connection.execute("SELECT * FROM declines").fetchall() == [("D1", "locked", "get_asset P-1;")]
    connection.close()


JSON_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text(), max_size=2), st.just("\ud800")
)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(TOOLS), st.data())
def test_no_arguments_break_the_world(tool: object, data: st.DataObject) -> None:
    spec = next(known for known in TOOLS if known is tool)
    names = [*spec.parameters["properties"], "stray"]
    arguments = data.draw(st.dictionaries(st.sampled_from(names), JSON_VALUES))
    world = fresh()
    world.execute(ToolCall(id="c", name=spec.name, arguments=arguments))
    assert world.snapshot().startswith(b"SQLite format 3")


def test_idempotent_tools_are_idempotent_and_the_others_are_not() -> None:
    for name, arguments in [*WRITES, ("create_order", {"asset": "P-1", "task": "x"})]:
        spec = next(tool for tool in TOOLS if tool.name == name)
        once, twice = fresh(), fresh()
        do(once, name, **arguments)
        do(twice, name, **arguments)
        do(twice, name, **arguments)
        assert (once.snapshot() == twice.snapshot()) is spec.idempotent, name


def test_every_write_has_a_footprint_or_is_procedure() -> None:
    writers = {tool.name for tool in TOOLS if tool.effect is not Effect.READ}
    assert writers - set(FOOTPRINTS) == {"request_approval", "decline"}
    assert writers == set(WRITTEN)


def test_no_tool_writes_to_another_table_than_stated() -> None:
    for name, arguments in [*WRITES, ("create_order", {"asset": "P-1", "task": "x"}), ("decline", {"reason": "no"})]:
        world = fresh()
        do(world, name, **arguments)
        before, after = open_image(IMAGE), open_image(world.fork().snapshot())
        rows = [{t: db.execute(f"SELECT * FROM {t}").fetchall() for t in TABLES} for db in (before, after)]
        assert {t for t in TABLES if rows[0][t] != rows[1][t]} == {WRITTEN[name]}
        before.close()
        after.close()


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_tool_needs_no_table_but_those_stated_and_is_not_offered_without_them(tool: ToolSpec) -> None:
    arguments: dict[str, Json] = {
        name: 3
        if schema["type"] == "integer"
        else {"asset": "P-1", "order": "W1", "part": "K1", "alert": "A1"}.get(name, "x")
        for name, schema in tool.parameters["properties"].items()
    }
    full: dict[str, dict[str, Cell]] = {
        "assets": {"id": "P-1"},
        "orders": {"id": "W1"},
        "parts": {"id": "K1", "stock": 1},
        "alerts": {"id": "A1"},
    }
    rows = {table: [row] for table, row in full.items() if table in REACH[tool.name]}
    reply = DeskWorld(StartState(rows, REACH[tool.name]), NAMES).execute(
        ToolCall(id="c", name=tool.name, arguments=arguments)
    )
    assert "no tool" not in str(reply.value)
    for missing in REACH[tool.name]:
        fewer = {table: found for table, found in rows.items() if table != missing}
        without = DeskWorld(StartState(fewer, TABLES.keys() - {missing}), NAMES)
        assert refused(without, tool.name, **arguments) == f"no tool {tool.name}"


def test_nothing_carries_over_between_attempts() -> None:
    """Canary: a mark left by one attempt is in no image, answer or free page of the next, nor of one side by side."""
    beside = fresh()
    do(beside, "get_asset", asset="P-1")
    for number in range(3):
        world = fresh()
        assert do(world, "get_order", order="W1") == {"task": "repair"}
        do(world, "notify", person="CANARY", about=f"CANARY-{number}")
        do(world, "assign_order", order="W1", technician="CANARY")
        assert world.snapshot().count(f"CANARY-{number}".encode()) == 1
        world.close()
        assert b"CANARY" not in fresh().snapshot()
        assert b"CANARY" not in beside.snapshot()
        do(beside, "set_level", order="W2", level=f"level-{number}")
        assert b"CANARY" not in beside.snapshot()
