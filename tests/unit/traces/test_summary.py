"""What a summary says beyond counts: errors by kind, schemas, latencies, room for parallel calls, waste, duplicates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.records import Message, ToolCall
from flightschool.store import SqlStore
from flightschool.traces import (
    FanOut,
    RecordedCall,
    RecordedEpisode,
    StoredTraces,
    TaskHint,
    TraceSet,
    save_traces,
    summarise,
)
from flightschool.traces.summary.masks import error_class, masked
from flightschool.traces.summary.shapes import Shape

Turn = Sequence[tuple[str, dict[str, Any], Any]]


def episode(name: str, request: str, *turns: Turn | str, success: bool | None = None, **extra: Any) -> RecordedEpisode:
    """Turns are calls (tool, arguments, answer), or a word of the user's."""
    messages = [Message(role="user", content=request)]
    calls: list[RecordedCall] = []
    turn = -1
    for step in turns:
        if isinstance(step, str):
            messages.append(Message(role="user", content=step))
            continue
        turn += 1
        asked = []
        for tool, arguments, answer in step:
            text = answer if isinstance(answer, str) else json.dumps(answer)
            wrong = isinstance(answer, str) and answer.startswith("Error")
            at = 10.0 * len(calls)
            call = RecordedCall(
                turn=turn, id=f"c{len(calls)}", name=tool, arguments=arguments, text=text, value=answer, is_error=wrong,
                start_ms=at, end_ms=at + len(calls) + 1,
            )  # fmt: skip
            calls.append(call)
            asked.append(call)
        wanted = tuple(ToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in asked)
        messages.append(Message(role="assistant", tool_calls=wanted))
        messages += [Message(role="tool", content=c.text, tool_call_id=c.id) for c in asked]
    return RecordedEpisode(
        id=name, source="", messages=tuple(messages), calls=tuple(calls), success=success, hint=TaskHint(**extra)
    )


def summary(*episodes: RecordedEpisode) -> Any:
    return summarise(TraceSet(format="x", episodes=episodes))


class TestRounds:
    def test_a_read_whose_argument_comes_from_the_last_answer_cannot_run_beside_it(self) -> None:
        told = summary(
            episode(
                "e", "for u1",
                [("get_user", {"id": "u1"}, {"orders": ["O-77"]})],
                [("get_order", {"id": "O-77"}, {"sku": "S-1"})],  # needs the user
                [("get_weather", {"city": "Rome"}, {"sky": "clear"})],  # needs nothing
                [("get_stock", {"sku": "S-1"}, {"n": 1})],  # needs the order, which runs beside the weather
            )
        )  # fmt: skip
        assert (told.num_rounds, told.joinable_rounds, told.mergeable_rounds) == (4, 1, 0)

    def test_writes_and_words_of_the_user_are_borders(self) -> None:
        read: Turn = [("get_order", {"id": "A"}, {})]
        told = summary(
            episode(
                "e",
                "A and B",
                read,
                [("update_order", {"id": "A"}, {})],
                [("get_order", {"id": "B"}, {})],
                "and?",
                read,
            )
        )
        assert (told.num_rounds, told.joinable_rounds, told.num_repeated_reads) == (4, 0, 0)

    def test_an_argument_that_the_user_gave_depends_on_nothing(self) -> None:
        told = summary(
            episode("e", "A77 B88", [("get_order", {"id": "A77"}, {"next": "B88"})], [("get_order", {"id": "B88"}, {})])
        )
        assert (told.joinable_rounds, told.mergeable_rounds) == (1, 1)

    def test_reads_asked_again(self) -> None:
        read: Turn = [("get_order", {"id": "A", "x": 1}, {"s": 1})]
        again: Turn = [("get_order", {"x": 1, "id": "A"}, {"s": 1})]
        told = summary(episode("e", "A", read, again, [("cancel_order", {"id": "A"}, {})], read))
        assert told.num_repeated_reads == 1
        assert next(t for t in told.tools if t.name == "get_order").num_repeated == 1

    def test_one_call_for_each_item_of_a_list(self) -> None:
        items = [[("get_item", {"item": f"I-{n}"}, {"n": n})] for n in range(4)]
        listed: Turn = [("list_items", {}, {"items": [f"I-{n}" for n in range(4)]})]
        told = summary(episode("e", "all", listed, *items), episode("f", "two", listed, *items[:2]))
        assert told.fan_outs == (
            FanOut(lists="list_items", reads="get_item", argument="item", num_episodes=1, num_calls=4),
        )


class TestTools:
    def test_errors_by_kind_and_latencies(self) -> None:
        told = summary(
            episode(
                "e", "x",
                [("get", {"id": "A1"}, "Error: order A1 not found"), ("get", {"id": "B"}, "Error: order B2 not found")],
                [("get", {"id": "C"}, {"error": None, "state": "open"})],
            )
        )  # fmt: skip
        (tool,) = told.tools
        assert tool.error_classes == {"Error: order # not found": 2}
        # Durations are 1, 2 and 3 ms.
        assert (tool.latency.count, tool.latency.mean_ms, tool.latency.p50_ms, tool.latency.max_ms) == (
            3,
            2.0,
            2.0,
            3.0,
        )

    @pytest.mark.parametrize(
        ("value", "kind"),
        [
            ({"error": {"code": 404, "message": "user 'Ann' is 12 days late"}}, "user # is # days late"),
            ("\nseat 12A gone\nat line 3", "seat # gone"),
            (None, "no message"),
            ({"error": True}, "True"),
        ],
    )
    def test_masks(self, value: Any, kind: str) -> None:
        assert error_class(value) == kind

    def test_a_mask_is_short(self) -> None:
        assert len(masked("x" * 1000)) == 100

    def test_hundreds_of_tools(self) -> None:
        calls: Turn = [(f"get_thing_{n}", {"n": n}, {}) for n in range(300)]
        assert len(summary(episode("e", "x", calls)).tools) == 300


VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["a", "b", "c d"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


class TestShapes:
    @given(st.lists(VALUE, min_size=1, max_size=30))
    @settings(max_examples=200, deadline=None)
    def test_every_value_seen_satisfies_the_schema(self, values: list[Any]) -> None:
        shape = Shape()
        for value in values:
            shape.add(value)
        refused = [value for value in values if not jsonschema.Draft202012Validator(shape.schema()).is_valid(value)]
        assert refused == []

    def test_by_hand(self) -> None:
        shape = Shape()
        for number in range(30):
            shape.add({"state": "open" if number % 2 else "closed", "n": number} | ({"note": "x"} if number else {}))
        schema = shape.schema()
        assert schema["required"] == ["state", "n"]
        assert schema["properties"]["state"] == {"type": "string", "enum": ["closed", "open"]}
        assert schema["properties"]["n"] == {"type": "integer", "examples": [0, 1, 2]}

    def test_a_map_by_id_stays_small(self) -> None:
        shape = Shape()
        for number in range(500):
            shape.add({f"id-{number}": number})
        assert shape.schema()["additionalProperties"]["type"] == "integer"
        assert "properties" not in shape.schema()


class TestTraffic:
    def test_intents_by_wording_with_their_success(self) -> None:
        asked = [(f"cancel-{n}", f"Cancel my reservation number {n} today", n % 2 == 0) for n in range(12)]
        asked += [(f"bag-{n}", f"Add checked luggage to flight {n}", True) for n in range(8)]
        told = summary(*(episode(name, text, success=ok) for name, text, ok in asked))
        assert [(c.num_episodes, c.share, c.success_share) for c in told.intents] == [(12, 0.6, 0.5), (8, 0.4, 1.0)]
        assert "reservation" in told.intents[0].label
        assert told.intents[1].example.startswith("bag-")
        assert [(s.name, s.share) for s in told.traffic] == [(c.label, c.share) for c in told.intents]

    def test_strata_that_the_traces_name_win(self) -> None:
        told = summary(
            episode("a", "x", success=True, stratum="s"),
            episode("b", "y", success=False, stratum="s"),
            episode("c", "z"),
        )
        assert [(s.name, s.num_episodes, s.success_share) for s in told.traffic] == [
            ("s", 2, 0.5),
            ("(none named)", 1, None),
        ]

    def test_nearly_equal_episodes(self) -> None:
        words = " ".join(f"word{n}" for n in range(60))
        told = summary(
            episode("a", words, [("get", {"id": 1}, {})]),
            episode("b", words + " please", [("get", {"id": 1}, {})]),
            episode("c", " ".join(f"other{n}" for n in range(60)), [("get", {"id": 1}, {})]),
            episode("d", ""),
            episode("e", ""),
        )
        assert (told.duplicates, told.num_duplicates) == ((("a", "b"),), 1)

    def test_a_set_in_the_workspace_gives_the_same_numbers(self) -> None:
        traces = TraceSet(
            format="x", episodes=tuple(episode(f"e{n}", f"ask {n}", [("get", {"n": n}, {})]) for n in range(30))
        )
        with SqlStore("sqlite://") as store:
            save_traces(store, "s", traces)
            assert summarise(StoredTraces(store, "s")) == summarise(traces)
