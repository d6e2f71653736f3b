"""Calls that took effect are counted."""

from __future__ import annotations

from collections.abc import Mapping

from flightschool.records import CallCheck, Json, ToolEvent
from flightschool.tools import json_equal
from flightschool.verification.kinds.base import Finding, Kind, show
from flightschool.verification.states import States

__all__ = ["CALLS", "FAULTS_THAT_TOOK_EFFECT", "contains", "took_effect"]

FAULTS_THAT_TOOK_EFFECT = frozenset({"timeout_after_write"})
"""Faults whose result reads as an error although the call changed the world."""


def took_effect(event: ToolEvent) -> bool:
    """Whether a call succeeded in the world, whatever the policy was told."""
    fault = event.result.fault
    return not event.result.is_error or (fault is not None and fault.kind in FAULTS_THAT_TOOK_EFFECT)


def contains(arguments: Json, part: Json) -> bool:
    """Whether every key of ``part`` is in ``arguments`` with an equal value, nested objects likewise."""
    if isinstance(part, Mapping) and isinstance(arguments, Mapping):
        return all(key in arguments and contains(arguments[key], value) for key, value in part.items())
    return json_equal(arguments, part)


def _judge(rule: CallCheck, states: States) -> Finding:
    done = [event for event in states.evidence.events if took_effect(event)]
    if rule.before is not None:
        cut = next((i for i, event in enumerate(done) if event.call.name == rule.before), len(done))
        done = done[:cut]
    found = [e for e in done if e.call.name == rule.tool and contains(e.call.arguments, rule.arguments)]
    passed = len(found) >= rule.least and (rule.most is None or len(found) <= rule.most)
    wanted = f"at least {rule.least}" if rule.most is None else f"{rule.least} to {rule.most}"
    which = f"{rule.tool}({show(rule.arguments)})" + (f" before {rule.before}" if rule.before else "")
    where = f" at call {', '.join(str(e.index) for e in found[:8])}" if found else ""
    return Finding(passed, f"{len(found)} successful {which}{where}; expected {wanted}")


def _problem(rule: CallCheck) -> str:
    if rule.least <= 0 and rule.most is None:
        return "any number of calls would pass"
    if rule.most is not None and rule.most < max(rule.least, 0):
        return f"no number of calls is at least {rule.least} and at most {rule.most}"
    return ""


CALLS = Kind(_judge, _problem)
