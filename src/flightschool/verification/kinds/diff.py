"""Rows added, removed or changed stay within what is allowed: damage beside the task."""

from __future__ import annotations

from flightschool.records import DiffCheck
from flightschool.verification.images import OverBudgetError, QueryFailedError, broken_state
from flightschool.verification.kinds.base import Finding, Kind
from flightschool.verification.states import States

__all__ = ["DIFF"]


def _judge(rule: DiffCheck, states: States) -> Finding:
    try:
        changes = states.changes()
    except OverBudgetError as error:
        return Finding(False, f"too much changed to compare: {error}")
    except QueryFailedError as error:
        raise broken_state(f"two states cannot be compared: {error}") from error
    unknown = rule.allowed.keys() - changes.keys()
    if unknown and states.are_sqlite:
        raise broken_state(f"a check allows changes of a table that does not exist: {min(unknown)!r}")
    beyond = {name: c for name, c in changes.items() if c.total > rule.allowed.get(name, 0)}
    shown = beyond or {name: c for name, c in changes.items() if c.total}
    text = "; ".join(f"{name}: {c}, allowed {rule.allowed.get(name, 0)}" for name, c in sorted(shown.items()))
    return Finding(not beyond, text or "nothing changed")


def _problem(_rule: DiffCheck) -> str:
    return ""


DIFF = Kind(_judge, _problem)
