"""One value of a JSON end state, found by a JSON pointer (RFC 6901)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from flightschool.records import Json, JsonCheck
from flightschool.verification.comparing import comparison_problem, differences
from flightschool.verification.images import json_state
from flightschool.verification.kinds.base import Finding, Kind, show
from flightschool.verification.kinds.state import leaves
from flightschool.verification.states import States

__all__ = ["JSON_VALUE"]


def _judge(rule: JsonCheck, states: States) -> Finding:
    value: Json = json_state(states.evidence.end_state)
    for part in _parts(rule.pointer):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and re.fullmatch(r"0|[1-9]\d{0,8}", part, re.ASCII) and int(part) < len(value):
            value = value[int(part)]
        else:
            return Finding(False, f"nothing is at {rule.pointer}: no {part!r}")
    wrong = differences(value, rule.expected, rule.compare)
    return Finding(not wrong, "; ".join(map(str, wrong[:8])) or f"found {show(value)}")


def _parts(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _problem(rule: JsonCheck) -> str:
    if rule.pointer and not rule.pointer.startswith("/"):
        return f"pointer {rule.pointer!r} does not begin with a slash"
    if re.search(r"~(?![01])", rule.pointer):
        return f"pointer {rule.pointer!r} has a ~ that is neither ~0 nor ~1"
    return comparison_problem(rule.compare, rule.expected)


def _expected(rule: JsonCheck) -> Iterator[Json]:
    return leaves(rule.expected)


JSON_VALUE = Kind(_judge, _problem, _expected)
