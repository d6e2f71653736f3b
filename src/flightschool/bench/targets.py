"""Targets: what a figure was promised to be, and whether it is."""

from __future__ import annotations

from collections.abc import Iterable

from flightschool.records import Record

__all__ = ["Target", "all_met", "at_least", "at_most", "more_than"]


class Target(Record, frozen=True, kw_only=True):
    """One promise beside what was measured."""

    name: str
    """Key of the figure."""
    value: float
    relation: str
    """``<=``, ``>=`` or ``>``."""
    limit: float
    met: bool


def at_most(name: str, value: float, limit: float) -> Target:
    """``value`` ≤ ``limit``; NaN meets nothing."""
    return Target(name=name, value=value, relation="<=", limit=limit, met=value <= limit)


def at_least(name: str, value: float, limit: float) -> Target:
    """``value`` ≥ ``limit``; NaN meets nothing."""
    return Target(name=name, value=value, relation=">=", limit=limit, met=value >= limit)


def more_than(name: str, value: float, limit: float) -> Target:
    """``value`` > ``limit``; NaN meets nothing."""
    return Target(name=name, value=value, relation=">", limit=limit, met=value > limit)


def all_met(targets: Iterable[Target]) -> bool:
    """Whether every promise was kept."""
    return all(target.met for target in targets)
