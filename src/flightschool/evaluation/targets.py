"""What is wanted of a policy, stated before it is measured, and whether what was measured shows it.

A target is *met* when the whole interval lies on its good side, *missed* when the whole interval lies on the other,
else *open*: more tasks or repeats would tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from flightschool.errors import InputError
from flightschool.evaluation.records import EvaluationRun, Summary
from flightschool.evaluation.summary import latency
from flightschool.records import Measurement, Record

__all__ = ["TARGETS", "TargetRow", "check_targets", "held_against"]

TARGETS: dict[str, str] = {
    "success": ">=",
    "violations": "<=",
    "denied": "<=",
    "cost_usd": "<=",
    "virtual_p50_ms": "<=",
    "virtual_p95_ms": "<=",
    "wall_p50_ms": "<=",
    "wall_p95_ms": "<=",
}
"""Name → on which side of the target it shall lie. Rates and cost are weighted by traffic; cost is of one attempt."""
_LATENCIES = {
    "virtual_p50_ms": "p50",
    "virtual_p95_ms": "p95",
    "wall_p50_ms": "wall_p50",
    "wall_p95_ms": "wall_p95",
}


class TargetRow(Record, frozen=True, kw_only=True):
    """One target beside what was measured."""

    name: str
    target: float
    relation: str
    measured: Measurement | None
    """None where it could not be measured."""
    state: Literal["met", "missed", "open"]


def check_targets(targets: Mapping[str, float]) -> dict[str, float]:
    """The targets, if they can be held against anything.

    Raises:
        InputError: an unknown name, or no number.
    """
    for name, value in targets.items():
        if name not in TARGETS or not (math.isfinite(value) and value >= 0):
            raise InputError(
                f"target {name!r} of {value}",
                where="targets",
                expected=f"one of {', '.join(TARGETS)}, each 0 or more",
                mend="correct the target",
            )
    return dict(targets)


def held_against(targets: Mapping[str, float], run: EvaluationRun, summary: Summary) -> tuple[TargetRow, ...]:
    """Every target with its measurement, in the order of ``TARGETS``."""
    seconds = latency(run)
    known = {m.name.removesuffix("/weighted"): m for m in summary.measurements if m.name.endswith("/weighted")}
    rows = []
    for name, relation in TARGETS.items():
        if name in targets:
            measured = seconds.get(_LATENCIES[name]) if name in _LATENCIES else known.get(name)
            state = _state(targets[name], relation, measured)
            rows.append(TargetRow(name=name, target=targets[name], relation=relation, measured=measured, state=state))
    return tuple(rows)


def _state(target: float, relation: str, measured: Measurement | None) -> Literal["met", "missed", "open"]:
    if measured is None:
        return "open"
    above, below = measured.low >= target, measured.high <= target
    if (above, below) == (True, True):
        return "met"
    good, bad = (above, measured.high < target) if relation == ">=" else (below, measured.low > target)
    return "met" if good else "missed" if bad else "open"
