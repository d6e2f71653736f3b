"""Argument validation: the own subset decides as the JSON Schema library does, in words that can be acted on."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.errors import InputError
from flightschool.records import Json, ToolSpec
from flightschool.tools import validate_arguments
from flightschool.tools.schema import compile_schema, json_equal

ORDER: dict[str, Json] = {
    "type": "object",
    "properties": {
        "asset": {"type": "string", "pattern": "^A-[0-9]+$"},
        "priority": {"enum": ["low", "high"]},
        "hours": {"type": "integer", "minimum": 1, "maximum": 8},
        "note": {"type": ["string", "null"], "maxLength": 5},
        "parts": {"type": "array", "items": {"type": "object", "required": ["sku"], "properties": {"sku": {}}}},
    },
    "required": ["asset"],
    "additionalProperties": False,
}


def spec_of(parameters: dict[str, Json]) -> ToolSpec:
    return ToolSpec(name="make_order", description="Make an order.", parameters=parameters)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["missing argument 'asset'", "string"]),
        ({"asset": 3}, ["'asset'", "expected string", "got 3"]),
        ({"asset": "B-1"}, ["'asset'", "^A-[0-9]+$", '"B-1"']),
        ({"asset": "A-1", "priority": "urgent"}, ["'priority'", 'one of "low", "high"', '"urgent"']),
        ({"asset": "A-1", "hours": 9}, ["'hours'", "at most 8", "got 9"]),
        ({"asset": "A-1", "hours": True}, ["'hours'", "expected integer", "got true"]),
        ({"asset": "A-1", "hours": 1.5}, ["'hours'", "expected integer"]),
        ({"asset": "A-1", "note": "too long"}, ["'note'", "0 to 5 characters", "got 8"]),
        ({"asset": "A-1", "parts": [{"sku": "x"}, {}]}, ["missing argument 'parts[1].sku'"]),
        ({"asset": "A-1", "colour": "red"}, ["unknown argument 'colour'", "asset, priority"]),
        (["A-1"], ["arguments", "expected object"]),
    ],
)
def test_the_message_names_the_argument_and_what_was_expected(arguments: Json, words: list[str]) -> None:
    message = validate_arguments(spec_of(ORDER), arguments)
    assert message is not None
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "arguments",
    [{"asset": "A-1"}, {"asset": "A-12", "priority": "low", "hours": 8.0, "note": None, "parts": [{"sku": 1}]}],
)
def test_valid_arguments_have_no_problem(arguments: Json) -> None:
    assert validate_arguments(spec_of(ORDER), arguments) is None


def test_keywords_beyond_the_subset_are_judged_by_the_library() -> None:
    spec = spec_of({"properties": {"a": {"anyOf": [{"type": "integer"}, {"const": "all"}]}, "b": {"not": {}}}})
    assert validate_arguments(spec, {"a": 3}) is None
    assert validate_arguments(spec, {"a": "all"}) is None
    message = validate_arguments(spec, {"a": "some"})
    assert message is not None
    assert message.startswith("argument 'a':")


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "string"},
        {"properties": {"a": {"type": "text"}}},
        {"properties": {"a": {"pattern": "("}}},
        {"properties": {"a": 3}},
        {"oneOf": 3},
    ],
)
def test_a_schema_that_is_none_is_the_tools_fault(parameters: dict[str, Json]) -> None:
    with pytest.raises(InputError, match="tool 'make_order'"):
        validate_arguments(spec_of(parameters), {"a": "x"})


def test_equality_is_that_of_json() -> None:
    assert json_equal({"a": [1, None]}, {"a": [1.0, None]})
    assert not json_equal(1, True)
    assert not json_equal([0], [False])
    assert not json_equal({"a": 1}, {"a": 1, "b": 2})


scalars: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-4, 4) | st.sampled_from([0.5, 1.0, -2.0]) | st.text("ab1", max_size=3)
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=6,
)
kinds = st.sampled_from(["string", "integer", "number", "boolean", "null", "object", "array"])
leaf_schemas: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "type": kinds | st.lists(kinds, min_size=1, max_size=3, unique=True),
        "enum": st.lists(scalars, min_size=1, max_size=3),
        "const": scalars,
        "minimum": st.integers(-2, 2),
        "maximum": st.integers(-2, 2),
        "exclusiveMinimum": st.integers(-2, 2),
        "exclusiveMaximum": st.integers(-2, 2),
        "minLength": st.integers(0, 2),
        "maxLength": st.integers(0, 2),
        "pattern": st.sampled_from(["^a", "b$", "1"]),
        "minItems": st.integers(0, 2),
        "maxItems": st.integers(0, 2),
    },
)
schemas: st.SearchStrategy[Any] = st.recursive(
    leaf_schemas | st.booleans(),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": kinds,
            "items": inner,
            "properties": st.dictionaries(st.sampled_from("xyz"), inner, max_size=2),
            "required": st.lists(st.sampled_from("xyz"), max_size=2, unique=True),
            "additionalProperties": inner,
        },
    ),
    max_leaves=5,
)


@given(
    properties=st.dictionaries(st.sampled_from("xyz"), schemas, max_size=3),
    arguments=st.dictionaries(st.sampled_from("xyz"), values, max_size=3),
)
@settings(max_examples=50, deadline=None)
def test_the_subset_decides_as_the_library(properties: dict[str, Json], arguments: dict[str, Json]) -> None:
    schema = {"type": "object", "properties": properties}
    expected = jsonschema.Draft202012Validator(schema).is_valid(arguments)
    assert (compile_schema(spec_of(schema))(arguments, "") is None) is expected
