"""Plausible other values: what a careless policy might have written instead of the right argument.

A mutant only proves something when its wrong value is one that the world knows: an unknown id is refused by any
domain code, a *neighbour's* id is not. So values come first from what the task's own reads returned, then from
other oracles' arguments of the same tool, and only last from a small change of the value itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from flightschool.digest import canonical_json
from flightschool.records import Json, ToolCall, ToolEvent, ToolSpec

__all__ = ["ValuePool", "is_prose", "parameter_schema", "plausible_other", "values_in"]

_DIGITS = re.compile(r"\d+")
_LETTERS = re.compile(r"[A-Za-z]+")


class ValuePool:
    """Arguments that the oracles of an environment give, by tool and parameter, nearest tasks first.

    Args:
        oracles: (family, calls) of every task, in the environment's order.
    """

    def __init__(self, oracles: Iterable[tuple[str, Sequence[ToolCall]]]) -> None:
        self._by_parameter: dict[tuple[str, str], dict[bytes, tuple[Json, set[str]]]] = {}
        for family, calls in oracles:
            for call in calls:
                for name, value in call.arguments.items():
                    known = self._by_parameter.setdefault((call.name, name), {})
                    known.setdefault(canonical_json(value), (value, set()))[1].add(family)

    def others(self, tool: str, parameter: str, value: Json, family: str) -> tuple[Json, ...]:
        """Other values given to this parameter, those of the task's own family first."""
        known = self._by_parameter.get((tool, parameter), {})
        own = canonical_json(value)
        others = [entry for key, entry in known.items() if key != own]
        return tuple(v for v, _ in sorted(others, key=lambda entry: family not in entry[1]))


def parameter_schema(spec: ToolSpec, parameter: str) -> Mapping[str, Json]:
    """JSON Schema of one parameter; empty when the tool does not describe it."""
    schema: Mapping[str, Json] = spec.parameters.get("properties", {}).get(parameter, {})
    return schema


def is_prose(value: Json) -> bool:
    """Whether a value is free text, which correct work may word in many ways."""
    return isinstance(value, str) and any(c.isspace() for c in value.strip())


def plausible_other(
    spec: ToolSpec, call: ToolCall, parameter: str, *, seen: Sequence[Json], pool: ValuePool, family: str
) -> Json | None:
    """A wrong but plausible value of one argument; None where no value is surely wrong (prose, objects).

    Args:
        spec: the called tool.
        call: the right call.
        parameter: which argument to change.
        seen: scalars that the task's reads returned (``values_in``).
        pool: arguments of other oracles.
        family: the task's family.
    """
    value = call.arguments[parameter]
    schema = parameter_schema(spec, parameter)
    if isinstance(value, bool):
        return not value
    if "enum" in schema:
        return next((v for v in schema["enum"] if v != value), None)
    if isinstance(value, int | float):
        return _other_number(value, schema)
    if isinstance(value, str) and not is_prose(value):
        return _other_string(value, seen, pool.others(call.name, parameter, value, family))
    if isinstance(value, list) and len(value) > 1:
        return value[:-1]
    return None


def values_in(events: Iterable[ToolEvent]) -> tuple[Json, ...]:
    """All distinct scalars in the JSON results of successful calls, in order of appearance."""
    seen: dict[Json, None] = {}
    for event in events:
        if event.result.is_error:
            continue
        try:
            value = json.loads(event.result.content)
        except ValueError:
            value = event.result.content
        seen.update((scalar, None) for scalar in _scalars(value))
    return tuple(seen)


def _scalars(value: Json) -> Iterator[Json]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _scalars(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _scalars(inner)
    elif value is not None:
        yield value


def _other_number(value: float, schema: Mapping[str, Json]) -> float:
    highest = schema.get("maximum")
    return value - 1 if highest is not None and value + 1 > highest else value + 1


def _other_string(value: str, seen: Sequence[Json], others: Sequence[Json]) -> str:
    shape = _shape(value)
    # an id names its kind, so any id of its shape that was read will do; a bare word does not, so other uses come first
    near = (*seen, *others) if _DIGITS.search(value) else (*others, *seen)
    for candidate in near:
        if isinstance(candidate, str) and candidate != value and _shape(candidate) == shape:
            return candidate
    return next((o for o in others if isinstance(o, str)), _changed(value))


def _shape(value: str) -> str:
    """``WO-1007`` and ``WO-2`` have one shape, ``TECH-2`` another: ids of one kind share their letters."""
    if _DIGITS.search(value):
        return _DIGITS.sub("9", value)
    return _LETTERS.sub("a", value)


def _changed(value: str) -> str:
    digits = _DIGITS.search(value)
    if digits is None:
        return value + "x"
    number = str(int(digits.group()) + 1).zfill(len(digits.group()))
    return value[: digits.start()] + number + value[digits.end() :]
