"""Recorded answers: only state-correct ones, and a typed error otherwise."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from flightschool.environments import Ladder, LadderWorld, Recordings, coverage, record_answers
from flightschool.environments.inferred import Base
from flightschool.environments.recordings import Recording
from flightschool.environments.subsets import SubsetIndex
from flightschool.records import ToolCall

if TYPE_CHECKING:
    from tests.unit.environments.conftest import Orders

WRITES = frozenset({"cancel_order"})


def ask(tool: str, **arguments: object) -> ToolCall:
    return ToolCall(id="x", name=tool, arguments=dict(arguments))


def opened(answers: tuple[Recording, ...], scope: str = "s") -> LadderWorld:
    """A world of recordings alone."""
    ladder = Ladder(
        recordings=Recordings(answers), subsets=SubsetIndex((), answers), programs={}, writes=WRITES, declines=True
    )
    return LadderWorld(ladder, scope, Base({}).open())


def world(orders: Orders, *episodes: dict[str, Any]) -> LadderWorld:
    return opened(record_answers(orders.traces(*episodes).episodes, WRITES, lambda e: "s")[0])


REASON = "the customer of A1 asked for it by mail"


class TestWorld:
    def test_a_read_answers_for_the_writes_before_it(self, orders: Orders) -> None:
        one = world(orders, orders.cancelling("A1", "t"))
        assert one.execute(ask("get_order", order_id="A1")).value["status"] == "open"
        fork = one.fork()
        assert not one.execute(ask("cancel_order", order_id="A1", reason=REASON)).is_error
        after = one.execute(ask("get_order", order_id="A1"))
        assert (after.value["status"], after.served_by) == ("cancelled", "recording")
        assert fork.execute(ask("get_order", order_id="A1")).value["status"] == "open"
        assert json.loads(one.snapshot())["(writes)"] == [
            {"name": "cancel_order", "arguments": {"order_id": "A1", "reason": REASON}}
        ]
        assert fork.snapshot() == world(orders, orders.cancelling("A1", "t")).snapshot()

    def test_what_was_not_recorded_is_a_typed_error_and_changes_nothing(self, orders: Orders) -> None:
        one = world(orders, orders.cancelling("A1", "t"))
        fresh = one.snapshot()
        for wanted in (ask("get_order", order_id="B9"), ask("cancel_order", order_id="A1"), ask("other")):
            reply = one.execute(wanted)
            assert reply.is_error
            assert reply.served_by == "none"
            assert reply.value["error"] == "not recorded"
        assert one.snapshot() == fresh

    def test_another_order_of_writes_is_another_state(self, orders: Orders) -> None:
        first = orders.call("cancel_order", "1", "ok", order_id="A1")
        second = orders.call("cancel_order", "2", "ok", order_id="A2")
        read = orders.call("get_order", "3", "both", order_id="A1")
        one = world(orders, orders.episode(first, second, read, ask="x"), orders.episode(second, ask="y"))
        assert not one.execute(ask("cancel_order", order_id="A2")).is_error
        assert one.execute(ask("cancel_order", order_id="A1")).served_by == "none"

    def test_a_failed_write_is_no_write(self, orders: Orders) -> None:
        failed = orders.call("cancel_order", "1", "Error: locked", order_id="A1")
        one = world(orders, orders.episode(failed, orders.call("get_order", "2", "same", order_id="A1"), ask="x"))
        assert one.execute(ask("cancel_order", order_id="A1")).is_error
        assert one.execute(ask("get_order", order_id="A1")).value == "same"

    def test_scopes_do_not_answer_for_one_another(self, orders: Orders) -> None:
        answers, _ = record_answers(orders.traces(orders.cancelling("A1", "t")).episodes, WRITES, lambda e: "s")
        other = opened(answers, "elsewhere")
        assert other.execute(ask("get_order", order_id="A1")).served_by == "none"

    def test_whole_floats_are_integers(self, orders: Orders) -> None:
        one = world(orders, orders.episode(orders.call("get_order", "1", "x", n=3, deep=[{"m": 2.0}]), ask="x"))
        assert one.execute(ask("get_order", n=3.0, deep=[{"m": 2}])).value == "x"

    def test_decline_needs_a_reason(self, orders: Orders) -> None:
        one = world(orders, orders.cancelling("A1", "t"))
        assert one.execute(ask("decline", reason=" ")).is_error
        assert one.execute(ask("decline", reason="shipped")).value["declined"] is True


class TestRecordings:
    def test_of_differing_answers_the_most_frequent_is_kept_and_counted(self, orders: Orders) -> None:
        made = [orders.episode(orders.call("get_order", "1", a, n=1), ask="x") for a in ("odd", "same", "same")]
        answers, conflicts = record_answers(orders.traces(*made).episodes, WRITES, lambda e: "s")
        assert [(a.value, a.seen) for a in answers] == [("same", 2)]
        assert conflicts == 1

    def test_faulted_and_incomplete_calls_teach_nothing(self, orders: Orders) -> None:
        asked, answered = orders.call("get_order", "1", "stale", n=1)
        faulted = orders.episode([asked, answered | {"fault": "stale_read"}], ask="x")
        unanswered = orders.episode(
            [orders.call("cancel_order", "1", "?", n=1)[0]], orders.call("get_order", "2", "who knows", n=2), ask="x"
        )
        answers, _ = record_answers(orders.traces(faulted, unanswered).episodes, WRITES, lambda e: "s")
        assert answers == ()

    def test_a_write_that_timed_out_after_it_took_effect_counts(self, orders: Orders) -> None:
        asked, answered = orders.call("cancel_order", "1", "Error: timeout", n=1)
        late = [asked, answered | {"fault": "timeout_after_write"}]
        made = orders.episode(late, orders.call("get_order", "2", "changed", n=1), ask="x")
        answers, _ = record_answers(orders.traces(made).episodes, WRITES, lambda e: "s")
        assert [(a.name, bool(a.history)) for a in answers] == [("get_order", True)]


class TestCoverage:
    @pytest.mark.parametrize(("key", "expected"), [("arguments", (5, 2)), ("writes", (3, 2)), ("calls", (3, 2))])
    def test_leave_one_episode_out(self, orders: Orders, key: str, expected: tuple[int, int]) -> None:
        get_1, get_2 = (orders.call("get_order", str(n), "x", n=n) for n in (1, 2))
        write = orders.call("cancel_order", "3", "ok", n=1)
        made = [
            orders.episode(get_1, get_2, ask="a"),  # both covered under "arguments" and "writes"; get_1 under "calls"
            orders.episode(get_1, write, ask="b"),
            orders.episode(get_1, write, get_2, ask="c"),
        ]
        rates = coverage(orders.traces(*made).episodes, WRITES, lambda e: "s", key)  # type: ignore[arg-type]
        assert (rates.reads.hits, rates.writes.hits) == expected
        assert (rates.reads.total, rates.writes.total) == (5, 2)
        assert rates.episodes.total == 3
