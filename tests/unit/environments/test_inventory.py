"""What is inferred about tools, and how sure it claims to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.environments import take_inventory
from flightschool.environments.schemas import infer_schema
from flightschool.records import Effect

if TYPE_CHECKING:
    from tests.unit.environments.conftest import Orders

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


class TestSchemas:
    @given(st.lists(VALUES, min_size=1, max_size=30))
    @settings(max_examples=50, deadline=None)
    def test_every_seen_value_is_valid(self, values: list[object]) -> None:
        schema = infer_schema(values)
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        assert all(validator.is_valid(value) for value in values)

    def test_required_are_the_keys_that_were_always_there(self) -> None:
        schema = infer_schema([{"a": 1, "b": "x"}, {"a": 2.5}])
        assert schema["required"] == ["a"]
        assert schema["properties"]["a"]["type"] == "number"
        assert schema["properties"]["b"] == {"type": "string", "examples": ["x"]}

    def test_a_closed_set_needs_many_sightings_of_every_word(self) -> None:
        often = ["open"] * 10 + ["closed"] * 10
        assert infer_schema(often)["enum"] == ["closed", "open"]
        assert "enum" not in infer_schema([*often, "stuck", "stuck"])
        assert "enum" not in infer_schema(["open"] * 50)
        assert "enum" not in infer_schema(["A1"] * 10 + ["B2"] * 10)


class TestEffects:
    def test_verbs_are_guesses_with_a_reason(self, orders: Orders) -> None:
        entries = {e.spec.name: e for e in take_inventory(orders.traces(orders.cancelling("A1", "t")).episodes)}
        assert entries["get_order"].spec.effect is Effect.READ
        assert entries["cancel_order"].spec.effect is Effect.WRITE
        assert entries["cancel_order"].effect_guessed
        assert "'cancel'" in entries["cancel_order"].effect_reason
        assert entries["get_order"].spec.idempotent
        assert entries["get_order"].schema_inferred

    def test_evidence_overrules_the_name_and_the_unknown_is_a_write(self, orders: Orders) -> None:
        def sly(task: str) -> dict[str, Any]:
            return orders.episode(
                orders.call("get_order", "1", {"n": 1}, order_id=task),
                orders.call("check_in", "2", "ok", order_id=task),
                orders.call("get_order", "3", {"n": 2}, order_id=task),
                orders.call("frobnicate", "4", "ok"),
                ask=task,
            )

        entries = {e.spec.name: e for e in take_inventory(orders.traces(sly("a"), sly("b")).episodes)}
        assert entries["check_in"].spec.effect is Effect.WRITE
        assert "2 times" in entries["check_in"].effect_reason
        assert entries["frobnicate"].spec.effect is Effect.WRITE
        assert entries["get_order"].spec.effect is Effect.READ

    def test_a_recorded_definition_wins(self, orders: Orders) -> None:
        tool = {"name": "get_order", "description": "D", "parameters": {"type": "object"}}
        stated = tool | {"x-flightschool": {"effect": "send", "latency": {"median_ms": 7.0, "sigma": 0.0}}}
        (plain,) = take_inventory(orders.traces(orders.episode(ask="x") | {"tools": [tool]}).episodes)
        assert (plain.spec.description, plain.effect_guessed, plain.schema_inferred) == ("D", True, False)
        (known,) = take_inventory(orders.traces(orders.episode(ask="x") | {"tools": [stated]}).episodes)
        assert (known.spec.effect, known.spec.latency.median_ms, known.effect_guessed) == (Effect.SEND, 7.0, False)

    def test_latency_is_fitted_to_recorded_durations(self, orders: Orders) -> None:
        parts = []
        for number, took in enumerate((10, 20, 40)):
            asked, answered = orders.call("get_order", str(number), "x", n=number)
            parts.append([asked, answered | {"start_ms": 100 * number, "end_ms": 100 * number + took}])
        (entry,) = take_inventory(orders.traces(orders.episode(*parts, ask="x")).episodes)
        assert entry.spec.latency.median_ms == 20
        assert 0.5 < entry.spec.latency.sigma < 0.6
