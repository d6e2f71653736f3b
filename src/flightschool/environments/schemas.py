"""JSON Schemas inferred from values that were seen: types, always-present keys, small closed sets of words.

An inferred schema describes, it does not forbid: unknown keys stay allowed, and a set of words is only called closed
after many independent sightings, since a schema that is too tight turns correct work away at the boundary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from flightschool.records import Json

__all__ = ["infer_schema"]

_MOST_ENUM_VALUES = 8
_LEAST_ENUM_CALLS = 20
_LEAST_SIGHTINGS = 3
"""Of the rarest word: where words were seen only once or twice, more unseen ones must be expected (Good–Turing)."""
_NUM_EXAMPLES = 3


def infer_schema(values: Sequence[Json]) -> dict[str, Json]:
    """A schema that all of ``values`` satisfy.

    Objects list the keys seen, and as required those that were always there. A text is an enumeration when 2 to 8
    distinct words without digits cover at least 20 values, each word at least 3. Otherwise up to 3 examples are kept.
    """
    kinds = sorted({_kind(value) for value in values})
    if not kinds:
        return {}
    schema: dict[str, Json] = {"type": _merged(kinds)}
    objects = [value for value in values if isinstance(value, dict)]
    if objects:
        keys = dict.fromkeys(key for value in objects for key in value)
        schema["properties"] = {key: infer_schema([v[key] for v in objects if key in v]) for key in keys}
        schema["required"] = [key for key in keys if all(key in value for value in objects)]
    items = [item for value in values if isinstance(value, list) for item in value]
    if items:
        schema["items"] = infer_schema(items)
    if all(isinstance(value, str) for value in values):
        schema |= _words(values)
    elif not objects and not items:
        schema["examples"] = _distinct(values)[:_NUM_EXAMPLES]
    return schema


def _kind(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    names = {float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")


def _merged(kinds: list[str]) -> Json:
    if "number" in kinds and "integer" in kinds:
        kinds = [kind for kind in kinds if kind != "integer"]
    return kinds[0] if len(kinds) == 1 else kinds


def _words(values: Sequence[Json]) -> dict[str, Json]:
    distinct = _distinct(values)
    closed = (
        len(values) >= _LEAST_ENUM_CALLS
        and 2 <= len(distinct) <= _MOST_ENUM_VALUES
        and min(Counter(values).values()) >= _LEAST_SIGHTINGS
        and not any(char.isdigit() or char.isspace() for word in distinct for char in word)
    )
    return {"enum": sorted(distinct)} if closed else {"examples": distinct[:_NUM_EXAMPLES]}


def _distinct(values: Sequence[Json]) -> list[Json]:
    found: list[Json] = []
    for value in values:
        if value not in found:
            found.append(value)
            if len(found) > _MOST_ENUM_VALUES:
                break
    return found
