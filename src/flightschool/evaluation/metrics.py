"""What is measured, and over which part of a suite.

Names are ``metric/scope``: ``success/weighted``, ``virtual_ms/trained``, ``violations/stratum:abstain`` … The unit of
analysis is the task: repeats are averaged first, since they share everything but luck.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from flightschool.evaluation.records import EvaluationItem

__all__ = [
    "CORRECTED",
    "METRICS",
    "TRAFFIC_SCOPES",
    "WEIGHTED",
    "Metric",
    "TaskValue",
    "family_or_task",
    "scopes_of",
    "task_values",
]

WEIGHTED = "weighted"
"""All strata, each with its share of real traffic: what a user would meet."""
CLEAN, SUSPECTED = "clean", "suspected"
"""Tasks without and with kin in the policy's training; told apart only where there are suspected ones."""
TRAFFIC_SCOPES = frozenset({WEIGHTED, CLEAN})
"""Scopes in which strata are weighted by traffic."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number of an item."""

    name: str
    unit: str
    higher_is_better: bool
    is_rate: bool
    """Whether values lie in 0..1."""
    of: Callable[[EvaluationItem], float | None]
    """None where an item has no such number; it then counts neither way."""


METRICS: tuple[Metric, ...] = (
    Metric(name="success", unit="", higher_is_better=True, is_rate=True, of=lambda item: float(bool(item.success))),
    Metric(
        name="violations", unit="", higher_is_better=False, is_rate=True, of=lambda item: float(bool(item.violations))
    ),
    Metric(name="denied", unit="", higher_is_better=False, is_rate=True, of=lambda item: float(item.num_denied > 0)),
    Metric(name="virtual_ms", unit="ms", higher_is_better=False, is_rate=False, of=lambda item: item.virtual_ms),
    Metric(name="tokens", unit="tokens", higher_is_better=False, is_rate=False, of=lambda item: float(item.num_tokens)),
    Metric(name="calls", unit="calls", higher_is_better=False, is_rate=False, of=lambda item: float(item.num_calls)),
    Metric(name="cost_usd", unit="USD", higher_is_better=False, is_rate=False, of=lambda item: item.cost_usd),
)
"""Accuracy; risk (shares of attempts with a violation, and with a call that no permission allows; cost, where prices
are known); latency (critical path, tokens, calls)."""

CORRECTED = replace(METRICS[0], name="success_corrected")
"""Success freed of the verifier's errors, where reviews have measured them; no item alone has such a value."""


@dataclass(frozen=True, kw_only=True)
class TaskValue:
    """A metric at one task, averaged over its repeats."""

    task: str
    family: str
    stratum: str
    trained: bool
    value: float
    suspected: bool = False


def task_values(items: Iterable[EvaluationItem], metric: Metric) -> list[TaskValue]:
    """Averages of graded items by task, in order of first appearance."""
    by_task: dict[str, list[tuple[EvaluationItem, float]]] = defaultdict(list)
    for item in items:
        value = metric.of(item) if item.success is not None else None
        if value is not None:
            by_task[item.task].append((item, value))
    return [
        TaskValue(
            task=task,
            family=rows[0][0].family,
            stratum=rows[0][0].stratum,
            trained=rows[0][0].trained,
            value=sum(value for _, value in rows) / len(rows),
            suspected=any(item.suspected for item, _ in rows),
        )
        for task, rows in by_task.items()
    ]


def scopes_of(values: Sequence[TaskValue], weights: Mapping[str, float]) -> dict[str, list[TaskValue]]:
    """Scope → its tasks: ``weighted``, ``all``, ``trained``, ``untrained`` and each stratum; empty ones left out.

    Where some tasks are suspected: ``clean`` and ``suspected`` as well.
    """
    suspected = [v for v in values if v.suspected]
    scopes = {
        WEIGHTED: list(values),
        **({CLEAN: [v for v in values if not v.suspected], SUSPECTED: suspected} if suspected else {}),
        "all": list(values),
        "trained": [v for v in values if v.trained],
        "untrained": [v for v in values if not v.trained],
        **{f"stratum:{stratum}": [v for v in values if v.stratum == stratum] for stratum in weights},
    }
    return {scope: members for scope, members in scopes.items() if members}


def family_or_task(members: Sequence[TaskValue]) -> tuple[list[str], str]:
    """Clusters for an interval, and a remark: families, or single tasks where there is but one family."""
    families = [member.family for member in members]
    if len(set(families)) > 1:
        return families, ""
    return [member.task for member in members], ", one family: its tasks taken for independent"
