"""Values that every machine behind the boundary can hold.

A model can write what JSON readers let through and databases, encoders and digests choke on: NaN, integers beyond
64 bits, lone surrogates, absurd nesting. Such a call must fail as the policy's own fault; passed on, it would break
the world and let the policy out of its own denominator.
"""

from __future__ import annotations

import math

import msgspec

from flightschool.records import Json, ToolCall

__all__ = ["unusable_value", "wire_safe"]

_MAX_DEPTH = 32
_INT_LIMIT = 2**63


def unusable_value(value: Json, path: str = "", depth: int = 0) -> str | None:
    """Why a value cannot be carried (naming its path), or None."""
    if not isinstance(value, dict | list | tuple):
        expected = _scalar_problem(value)
        return None if expected is None else _problem(path, expected)
    if depth >= _MAX_DEPTH:
        return _problem(path, f"at most {_MAX_DEPTH} levels of nesting")
    if isinstance(value, dict):
        if not all(isinstance(key, str) and _encodes(key) for key in value):
            return _problem(path, "keys that are valid Unicode text")
        parts = [(f"{path}.{key}" if path else key, part) for key, part in value.items()]
    else:
        parts = [(f"{path}[{index}]", part) for index, part in enumerate(value)]
    for inner_path, part in parts:
        problem = unusable_value(part, inner_path, depth + 1)
        if problem is not None:
            return problem
    return None


def _scalar_problem(value: Json) -> str | None:
    """What a scalar should have been, or None when it is fine."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return None if value.isascii() or _encodes(value) else "text that is valid Unicode"
    if isinstance(value, int):
        return None if -_INT_LIMIT <= value < _INT_LIMIT else "an integer within 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else "a finite number"
    return "a JSON value"


def wire_safe(call: ToolCall) -> ToolCall:
    """The call as it may be logged: unchanged where possible, else with its arguments shown as escaped text."""
    arguments = call.arguments
    if unusable_value(arguments) is not None:
        arguments = {"unusable": _as_text(arguments)}
    elif _encodes(call.name) and _encodes(call.id):
        return call
    return msgspec.structs.replace(call, id=_escaped(call.id), name=_escaped(call.name), arguments=arguments)


def _problem(path: str, expected: str) -> str:
    return f"argument '{path[:80]}': expected {expected}" if path else f"arguments: expected {expected}"


def _as_text(value: Json) -> str:
    try:
        return ascii(value)[:500]
    except (RecursionError, ValueError):  # nested too deep, or an integer too long to print
        return "a value too large to show"


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _escaped(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
