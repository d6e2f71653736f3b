"""Arguments against a tool's JSON Schema, with messages that a model can act on.

The common subset of JSON Schema (draft 2020-12) is compiled once per tool into a small chain of closures, since
every call of every episode passes here; a schema that uses any other keyword is judged by ``jsonschema``. A property
test holds the two to the same decisions.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence

from flightschool.errors import InputError
from flightschool.records import Json, ToolSpec

__all__ = ["json_equal", "validate_arguments"]

Problem = Callable[[Json, str], str | None]
"""Judges a value under a path; the message of the first problem, or None."""

_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "$schema", "$comment", "format", "deprecated", "readOnly"}
)
_KNOWN = _ANNOTATIONS | {
    "type",
    "enum",
    "const",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
}
_CACHE_SIZE = 4096
_cache: dict[int, tuple[ToolSpec, Problem]] = {}
"""Compiled validators by identity of the spec; the spec is kept alive beside it, so that the identity stays its own."""


def validate_arguments(spec: ToolSpec, arguments: Json) -> str | None:
    """The first problem of ``arguments`` as one short sentence naming the argument, or None when they are valid.

    Raises:
        InputError: the tool's schema itself is wrong.
    """
    entry = _cache.get(id(spec))
    if entry is None:
        if len(_cache) >= _CACHE_SIZE:
            _cache.clear()
        entry = _cache[id(spec)] = (spec, compile_schema(spec))
    return entry[1](arguments, "")


def compile_schema(spec: ToolSpec) -> Problem:
    """A validator of the tool's schema.

    Raises:
        InputError: the schema is not valid, or does not describe an object.
    """
    schema = spec.parameters
    if schema.get("type", "object") != "object":
        raise _schema_error(spec, f"describes {schema['type']!r}")
    try:
        if not _within_subset(schema):
            return _by_library(spec)
        return _compile({"type": "object", **schema})
    except (TypeError, ValueError, KeyError, AttributeError, re.error) as error:
        raise _schema_error(spec, f"cannot be read ({error})") from error


def _schema_error(spec: ToolSpec, problem: str) -> InputError:
    return InputError(
        f"the parameters of tool {spec.name!r} are no usable schema: it {problem}",
        where=f"tool {spec.name}",
        expected="a JSON Schema (draft 2020-12) of an object",
        mend="correct the tool's 'parameters'",
    )


# ------------------------------------------------------------------------------------------------ the subset


def _within_subset(schema: Json) -> bool:
    if isinstance(schema, bool):
        return True
    if not isinstance(schema, Mapping):
        raise TypeError(f"a schema is an object, not {schema!r}")
    if not _KNOWN.issuperset(schema):
        return False
    inner = [*schema.get("properties", {}).values()]
    inner += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    return all(_within_subset(part) for part in inner)


def _compile(schema: Json) -> Problem:
    """One validator for a schema of the subset: its parts in an order that gives the most telling message first."""
    if schema is True:
        return lambda _value, _path: None
    if schema is False:
        return lambda _value, path: f"{_name(path)} is not allowed"
    parts: list[Problem] = []
    if "type" in schema:
        parts.append(_of_type(schema["type"]))
    if "const" in schema:
        parts.append(_one_of([schema["const"]]))
    if "enum" in schema:
        parts.append(_one_of(schema["enum"]))
    if schema.keys() & {"required", "properties", "additionalProperties"}:
        parts.append(_object(schema))
    if schema.keys() & {"items", "minItems", "maxItems"}:
        parts.append(_array(schema))
    if schema.keys() & {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}:
        parts.append(_number(schema))
    if schema.keys() & {"minLength", "maxLength", "pattern"}:
        parts.append(_string(schema))
    if len(parts) == 1:
        return parts[0]

    def all_parts(value: Json, path: str) -> str | None:
        for part in parts:
            problem = part(value, path)
            if problem is not None:
                return problem
        return None

    return all_parts


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPE_TESTS: Mapping[str, Callable[[Json], bool]] = {
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list | tuple),
    "number": _is_number,
    # JSON Schema counts 3.0 as an integer
    "integer": lambda v: _is_number(v) and (isinstance(v, int) or v.is_integer()),
}


def _of_type(declared: str | Sequence[str]) -> Problem:
    names = [declared] if isinstance(declared, str) else list(declared)
    tests = [_TYPE_TESTS[name] for name in names]
    expected = " or ".join(names)

    def check(value: Json, path: str) -> str | None:
        for test in tests:
            if test(value):
                return None
        return f"{_name(path)}: expected {expected}, got {_show(value)}"

    return check


def _one_of(options: Sequence[Json]) -> Problem:
    texts = frozenset(o for o in options if isinstance(o, str))
    others = [o for o in options if not isinstance(o, str)]
    shown = ", ".join(_show(o) for o in options[:12]) + (", …" if len(options) > 12 else "")
    expected = shown if len(options) == 1 else f"one of {shown}"

    def check(value: Json, path: str) -> str | None:
        if value in texts if isinstance(value, str) else any(json_equal(value, option) for option in others):
            return None
        return f"{_name(path)}: expected {expected}, got {_show(value)}"

    return check


def _object(schema: Mapping[str, Json]) -> Problem:
    properties = schema.get("properties", {})
    required = tuple(schema.get("required", ()))
    inner = {name: _compile(part) for name, part in properties.items()}
    kinds = {name: _kind(part) for name, part in properties.items()}
    additional = schema.get("additionalProperties", True)
    others = None if additional is True or additional is False else _compile(additional)
    known = ", ".join(properties) or "none"

    def check(value: Json, path: str) -> str | None:
        if not isinstance(value, dict):
            return None
        for name in required:
            if name not in value:
                return f"missing {_name(_join(path, name))}{kinds.get(name, '')}"
        for name, part in value.items():
            judge = inner.get(name, others)
            if judge is not None:
                problem = judge(part, _join(path, name))
                if problem is not None:
                    return problem
            elif name not in inner and additional is False:
                return f"unknown {_name(_join(path, name))}; expected only: {known}"
        return None

    return check


def _array(schema: Mapping[str, Json]) -> Problem:
    each = _compile(schema["items"]) if "items" in schema else None
    least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)

    def check(value: Json, path: str) -> str | None:
        if not isinstance(value, list | tuple):
            return None
        if not least <= len(value) <= most:
            return f"{_name(path)}: expected {_range(least, most)} items, got {len(value)}"
        if each is not None:
            for index, part in enumerate(value):
                problem = each(part, f"{path}[{index}]")
                if problem is not None:
                    return problem
        return None

    return check


def _number(schema: Mapping[str, Json]) -> Problem:
    least, most = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    above, below = schema.get("exclusiveMinimum", -math.inf), schema.get("exclusiveMaximum", math.inf)
    words = [f"{word} {schema[key]}" for key, word in _BOUND_WORDS.items() if key in schema]
    expected = "a number " + " and ".join(words)
    strict_above, strict_below = "exclusiveMinimum" in schema, "exclusiveMaximum" in schema

    def check(value: Json, path: str) -> str | None:
        if not _is_number(value):
            return None
        inside = least <= value <= most
        inside = inside and (not strict_above or value > above) and (not strict_below or value < below)
        return None if inside else f"{_name(path)}: expected {expected}, got {_show(value)}"

    return check


_BOUND_WORDS = {
    "minimum": "of at least",
    "maximum": "of at most",
    "exclusiveMinimum": "above",
    "exclusiveMaximum": "below",
}


def _string(schema: Mapping[str, Json]) -> Problem:
    least, most = schema.get("minLength", 0), schema.get("maxLength", math.inf)
    pattern = re.compile(schema["pattern"]) if "pattern" in schema else None

    def check(value: Json, path: str) -> str | None:
        if not isinstance(value, str):
            return None
        if not least <= len(value) <= most:
            return f"{_name(path)}: expected {_range(least, most)} characters, got {len(value)}"
        if pattern is not None and pattern.search(value) is None:
            return f"{_name(path)}: expected text matching {pattern.pattern}, got {_show(value)}"
        return None

    return check


# ------------------------------------------------------------------------------------------------ everything else


def _by_library(spec: ToolSpec) -> Problem:
    import jsonschema  # slow to import, and rarely needed

    schema = {"type": "object", **spec.parameters}
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise _schema_error(spec, f"is not valid ({error.message})") from error
    validator = jsonschema.Draft202012Validator(schema)

    def check(value: Json, _path: str) -> str | None:
        first = next(iter(validator.iter_errors(value)), None)
        if first is None:
            return None
        path = ""
        for part in first.absolute_path:
            path = f"{path}[{part}]" if isinstance(part, int) else _join(path, part)
        return f"{_name(path)}: {first.message[:200]}"

    return check


# ------------------------------------------------------------------------------------------------ words and values


def json_equal(left: Json, right: Json) -> bool:
    """Equality of JSON values: 1 equals 1.0 but not true, at every depth."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(json_equal(value, right[key]) for key, value in left.items())
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(json_equal, left, right))
    return bool(left == right)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else str(name)


def _name(path: str) -> str:
    return f"argument '{path}'" if path else "arguments"


def _kind(schema: Json) -> str:
    declared = schema.get("type") if isinstance(schema, Mapping) else None
    if declared is None:
        return ""
    return f" ({declared if isinstance(declared, str) else ' or '.join(declared)})"


def _show(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else text[:57] + "…"


def _range(least: float, most: float) -> str:
    if most == math.inf:
        return f"at least {least}"
    return f"exactly {least}" if least == most else f"{least} to {most}"
