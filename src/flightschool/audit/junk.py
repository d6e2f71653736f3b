"""Junk of the right type: arguments that satisfy a tool's schema and mean nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from flightschool.audit.mutants import DECLINE
from flightschool.records import Effect, Json, ToolCall, ToolSpec

__all__ = ["junk_arguments", "junk_calls"]


def junk_calls(specs: Sequence[ToolSpec]) -> tuple[ToolCall, ...]:
    """One call of every tool that changes something, with junk; ``decline`` is left out (it has its own probe)."""
    writes = [spec for spec in specs if spec.effect is not Effect.READ and spec.name != DECLINE]
    return tuple(
        ToolCall(id=f"junk-{index}", name=spec.name, arguments=junk_arguments(spec.parameters))
        for index, spec in enumerate(writes)
    )


def junk_arguments(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Values for every property of an object schema."""
    return {name: _junk(inner) for name, inner in schema.get("properties", {}).items()}


def _junk(schema: Mapping[str, Json]) -> Json:
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return _junk(schema[key][0])
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) else kind
    return _JUNK_BY_TYPE.get(kind, _junk_string)(schema)


def _junk_string(schema: Mapping[str, Json]) -> str:
    formats = {"date": "2001-01-01", "date-time": "2001-01-01T00:00:00Z", "time": "00:00:00"}
    text = formats.get(schema.get("format", ""), "junk")
    text = text.ljust(schema.get("minLength", 0), "x")
    return text[: schema.get("maxLength", len(text))]


def _junk_number(schema: Mapping[str, Json]) -> Json:
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
    return min(max(1, low), schema.get("maximum", max(1, low)))


def _junk_array(schema: Mapping[str, Json]) -> list[Json]:
    return [_junk(schema.get("items", {})) for _ in range(max(1, schema.get("minItems", 1)))]


_JUNK_BY_TYPE: dict[str, Callable[[Mapping[str, Json]], Json]] = {
    "string": _junk_string,
    "integer": _junk_number,
    "number": _junk_number,
    "boolean": lambda _: True,
    "array": _junk_array,
    "object": junk_arguments,
    "null": lambda _: None,
}
