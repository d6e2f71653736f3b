"""Proposed checks: where they come from, that they score nothing, and what signing one changes."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flightschool.cli.env_drafts import as_toml
from flightschool.environments import (
    DraftCheck,
    TracedEnvironment,
    build_from_traces,
    decide,
    draft_checks,
    load_drafts,
    load_environment,
    save_drafts,
    save_environment,
)
from flightschool.errors import ConfigError, InputError
from flightschool.records import CallCheck, CheckKind, JsonCheck
from flightschool.store import Workspace
from flightschool.verification import parse_checks

if TYPE_CHECKING:
    from tests.unit.environments.conftest import Orders


@pytest.fixture
def environment(orders: Orders) -> TracedEnvironment:
    made = [orders.cancelling(f"A{n}", f"t{n}") for n in (1, 2, 3, 4, 6, 7)]
    made.append(orders.cancelling("A8", "open", success=False))
    made[0]["messages"][0]["content"] = "Cancel open orders only. You must not cancel_order twice. Be kind."
    traces = orders.traces(*made)
    built = build_from_traces(traces, "o", state=orders.state()).environment
    assert isinstance(built, TracedEnvironment)
    return built


def proposals(environment: TracedEnvironment, orders: Orders, *statements: str) -> dict[str, DraftCheck]:
    from flightschool.traces import import_traces

    episodes = import_traces(orders.folder / "traces.jsonl").episodes
    return {one.id: one for one in draft_checks(environment, episodes, statements)}


def test_what_successes_leave_behind_and_an_order_that_none_broke(
    environment: TracedEnvironment, orders: Orders
) -> None:
    found = proposals(environment, orders)
    state = found["t1/state-orders-A1"]
    assert state.check is not None
    assert isinstance(state.check.rule, JsonCheck)
    assert (state.check.rule.pointer, state.check.rule.expected) == ("/orders/A1", {"id": "A1", "status": "cancelled"})
    order = found["cancel_order-only-after-get_order"]
    assert order.evidence == "6 of 6 uses in recorded successes come after get_order"
    assert order.check is not None
    assert order.check.kind is CheckKind.CONSTRAINT
    assert all(one.status == "draft" for one in found.values())


def test_statements_become_checks_or_stay_sentences(environment: TracedEnvironment, orders: Orders) -> None:
    lines = ("never cancel_order", "t1: answer contains 'done'", "# a remark", "Be polite", "cancel_order at most 2")
    found = proposals(environment, orders, *lines)
    rules = {key: one.check.rule if one.check else None for key, one in found.items() if one.source == "statements"}
    assert rules["statement-1"] == CallCheck(tool="cancel_order", least=0, most=0)
    assert rules["statement-5"] == CallCheck(tool="cancel_order", least=0, most=2)
    assert found["t1/statement-2"].task == "t1"
    assert rules["statement-4"] is None
    assert "statement-3" not in rules


def test_the_file_is_toml_and_its_checks_can_be_given_back(
    environment: TracedEnvironment, orders: Orders, tmp_path: Path
) -> None:
    hostile = 'never cancel_order"\n[x]\x07'
    table = tomllib.loads(as_toml("o", tuple(proposals(environment, orders, "never cancel_order", hostile).values())))
    assert {row["status"] for row in table["draft"]} == {"draft"}
    for row in table["draft"]:
        if "check" in row:
            assert len(parse_checks({"check": row["check"]}, folder=tmp_path, where="draft")) == 1


def test_a_draft_scores_nothing_until_it_is_signed(orders: Orders, tmp_path: Path) -> None:
    traces = orders.traces(*(orders.cancelling(f"A{n}", f"t{n}") for n in (1, 2, 3)))
    built = build_from_traces(traces, "o", state=orders.state())
    with Workspace.create(tmp_path / "space") as space:
        save_environment(space.store, built)
        before = load_environment("o", space)
        assert isinstance(before, TracedEnvironment)
        save_drafts(space.store, "o", draft_checks(before, traces.episodes, ("never cancel_order", "be kind")))
        assert load_environment("o", space).digest == before.digest
        decide(space.store, "o", "t1/state-orders-A1", sign=True, by="ann", reason="it is what the customer wants")
        after = load_environment("o", space)
        assert after.digest != before.digest
        signed = [check for check in after.reference("t1").checks if check.author == "ann"]
        assert [check.id for check in signed] == ["state-orders-A1"]
        assert after.reference("t2") == before.reference("t2")
        decide(space.store, "o", "statement-1", sign=False, by="ann", reason="cancelling is the job")
        assert load_environment("o", space).digest == after.digest
        with pytest.raises(InputError, match="was signed by ann"):
            decide(space.store, "o", "t1/state-orders-A1", sign=True, by="bob", reason="again")
        with pytest.raises(InputError, match="a sentence without a check"):
            decide(space.store, "o", "statement-2", sign=True, by="bob", reason="yes")
        with pytest.raises(InputError, match="needs a reason"):
            decide(space.store, "o", "t2/state-orders-A2", sign=True, by="bob", reason=" ")
        rows = {
            "check": [
                {"id": "no", "kind": "constraint", "rule": "minefields", "mines": [{"id": "m", "tool": "cancel_ordr"}]}
            ]
        }
        (mined,) = parse_checks(rows, folder=tmp_path, where="edit.toml")
        with pytest.raises(ConfigError, match="there is no tool 'cancel_ordr'"):
            decide(space.store, "o", "statement-2", sign=True, by="bob", reason="yes", edited=mined)
        assert load_environment("o", space).digest == after.digest
        # proposing again does not ask again about what was decided
        save_drafts(space.store, "o", draft_checks(before, traces.episodes, ("never cancel_order",)))
        status = {one.id: one.status for one in load_drafts(space.store, "o")}
        assert (status["t1/state-orders-A1"], status["statement-1"]) == ("signed", "rejected")


def test_a_waiting_task_becomes_one_when_an_expert_signs(orders: Orders, tmp_path: Path) -> None:
    traces = orders.traces(orders.cancelling("A1", "t1"), orders.cancelling("A2", "unsolved", success=False))
    built = build_from_traces(traces, "o", state=orders.state())
    with Workspace.create(tmp_path / "space") as space:
        save_environment(space.store, built)
        world = load_environment("o", space)
        assert isinstance(world, TracedEnvironment)
        assert [task.id for task in world.tasks()] == ["t1"]
        assert [one.task.id for one in world.content.waiting] == ["unsolved"]
        save_drafts(space.store, "o", draft_checks(world, traces.episodes, ("unsolved: answer contains A2",)))
        decide(space.store, "o", "unsolved/statement-1", sign=True, by="ann", reason="they ask for the number")
        after = load_environment("o", space)
        assert [task.id for task in after.tasks()] == ["t1", "unsolved"]
        assert [check.author for check in after.reference("unsolved").checks] == ["ann"]
