"""Functions for some tools, inference and recordings for the others: one state beneath them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.environments.conftest import Orders
from tests.unit.environments.inferred.library import initial_state, record

from flightschool.environments import (
    TracedEnvironment,
    build_from_traces,
    check_environment,
    examine,
    load_environment,
    save_environment,
)
from flightschool.environments.coded import run_function
from flightschool.environments.inferred import Base
from flightschool.errors import ConfigError, InfrastructureError
from flightschool.records import ToolCall
from flightschool.store import Workspace
from flightschool.traces import TraceSet

CODED = "from tests.unit.environments.inferred.library import extend_loan, lend\n"


@pytest.fixture(scope="module")
def traces() -> TraceSet:
    return TraceSet(format="library", episodes=record(120))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library's state, and code for two of its six tools."""
    made = tmp_path_factory.mktemp("library")
    (made / "state").mkdir()
    for table, content in initial_state().items():
        (made / "state" / f"{table}.json").write_text(json.dumps(content))
    (made / "tools.py").write_text(CODED)
    return made


@pytest.fixture(scope="module")
def library(traces: TraceSet, place: Path) -> TracedEnvironment:
    built = build_from_traces(traces, "library", state=place / "state", code=str(place / "tools.py"))
    assert isinstance(built.environment, TracedEnvironment)
    return built.environment


def call(world: Any, tool: str, **arguments: Any) -> Any:
    return world.execute(ToolCall(id="c", name=tool, arguments=arguments))


def test_each_tool_stands_on_its_best_rung(library: TracedEnvironment) -> None:
    assert library.content.coded == ("extend_loan", "lend")
    assert {one.tool for one in library.content.programs} == {"get_member", "find_books", "get_loan", "pay"}
    assert {one.name for one in library.content.recordings} & set(library.content.coded) == set()
    world = library.open(library.tasks()[0])
    assert call(world, "lend", member_id="M1", isbn="978-004", days=7).served_by == "code"
    assert call(world, "get_member", member_id="M1").served_by == "inferred"


def test_what_code_writes_is_seen_by_what_was_inferred_and_the_other_way_round(library: TracedEnvironment) -> None:
    world = library.open(library.tasks()[0])
    fresh = world.snapshot()
    lent = call(world, "lend", member_id="M1", isbn="978-004", days=7).value
    assert call(world, "get_loan", loan_id=lent["loan_id"]).value == lent
    refused = call(world, "extend_loan", loan_id="L1", days=9, note="never recorded")
    assert refused.is_error
    assert "lacks credit" in refused.value["error"]
    assert call(world, "pay", member_id="M1", amount=500).served_by == "inferred"
    fork = world.fork()
    assert call(world, "extend_loan", loan_id="L1", days=9, note="never recorded").value["days"] == 16
    assert call(world, "get_loan", loan_id="L1").value["days"] == 16
    assert call(fork, "get_loan", loan_id="L1").value["days"] == 7
    assert library.open(library.tasks()[0]).snapshot() == fresh
    assert set(json.loads(world.snapshot())["loans"]) == {"L1", lent["loan_id"]}


def test_it_is_kept_and_examined_by_rung(
    traces: TraceSet, library: TracedEnvironment, place: Path, tmp_path: Path
) -> None:
    built = build_from_traces(traces, "library", state=place / "state", code=str(place / "tools.py"))
    with Workspace.create(tmp_path) as space:
        assert save_environment(space.store, built).kind == "mixed"
        assert load_environment("library", space).digest == library.digest
    found = examine(library, traces.episodes, check_environment(library), state=initial_state(), num_folds=2)
    assert found.deterministic
    assert found.idempotent_reads
    assert set(found.coverage) <= {"L0", "L1", "L2"}
    assert found.held_out is not None
    # code saw no episode: all that it answers is right
    assert found.held_out.by_rung["L0"].value == 1.0
    assert found.held_out.by_tool["lend"].value == found.held_out.by_tool["extend_loan"].value == 1.0
    assert found.held_out.reads.value > 0.95


def test_a_slip_in_a_name_is_no_missing_function(orders: Orders) -> None:
    traces = orders.traces(orders.cancelling("A1", "one"))
    slip = orders.code_text.replace("def cancel_order", "def cancel_orders")
    with pytest.raises(ConfigError) as caught:
        build_from_traces(traces, "o", state=orders.state(), code=orders.code(slip))
    assert "is 'cancel_orders' the function of 'cancel_order'?" in caught.value.mend


class TestRows:
    """A function on rows: what it touched is what changed."""

    def run(self, base: Base, function: Any) -> Any:
        database = base.open()
        run_function(function, ToolCall(id="c", name="f", arguments={}), database)
        return database

    def test_removed_new_and_equal_rows_and_contents_without_keys(self) -> None:
        base = Base({"t": {"a": {"n": 1}, "b": {"n": 2}}, "l": [{"id": 1}, {"id": 2}], "log": ["x"], "other": {"k": 1}})

        def f(state: Any) -> None:
            del state["t"]["a"]
            state["t"]["b"]["n"] = 3
            state["t"]["c"] = {"n": 4}
            state["l"] = [row for row in state["l"] if row["id"] != 1] + [{"id": 3}]
            state["log"].append("y")
            state["new"] = {"z": 1}
            len(state["other"])

        database = self.run(base, f)
        assert database.changes() == {
            "t": {"a": None, "b": {"n": 3}, "c": {"n": 4}},
            "l": {"1": None, "3": {"id": 3}},
            "other": {},
            "log": ["x", "y"],
            "new": {"z": 1},
        }
        assert not database.has("t", "a")
        assert dict(database.rows("t")) == {"b": {"n": 3}, "c": {"n": 4}}
        assert database.content("l") == [{"id": 2}, {"id": 3}]
        assert base.open().changes() == {"t": {}, "l": {}, "other": {}}

        def undo(state: Any) -> None:
            state["t"] = {"a": {"n": 1}, "b": {"n": 2}}
            state["log"] = ["x"]

        run_function(undo, ToolCall(id="c", name="f", arguments={}), database)
        assert database.changes()["t"] == {}
        assert "log" not in database.changes()

    def test_what_is_no_state_any_more_is_infrastructure(self) -> None:
        base = Base({"t": {"a": {"n": 1}}, "l": [{"id": 1}]})

        def no_json(state: Any) -> None:
            state["t"]["a"] = object()

        def no_keys(state: Any) -> None:
            state["l"].append({"id": 1})

        for function in (no_json, no_keys):
            with pytest.raises(InfrastructureError, match=r"table '[tl]'"):
                self.run(base, function)
