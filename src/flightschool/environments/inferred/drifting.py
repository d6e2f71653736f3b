"""Where recordings and the state of today call the same thing by another name, or one lacks what the other has.

A view that shows a row field by field, but for one that has another name or is absent, shows that the schema changed
between the recordings and the state.
"""

from __future__ import annotations

from collections.abc import Iterator

from flightschool.environments.inferred.addresses import last_name
from flightschool.environments.inferred.language import Each, Expr, Made, Row, Rows
from flightschool.environments.inferred.programs import Program
from flightschool.records import Record

__all__ = ["Drift", "drifts"]


class Drift(Record, frozen=True, kw_only=True):
    """One difference of schema."""

    tool: str
    path: str
    """Place of the object in the tool's answer; empty for the answer itself."""
    recorded: str
    """Name in the recordings; empty: they do not have it."""
    state: str
    """Name in the state; empty: it does not have it."""


def drifts(program: Program) -> tuple[Drift, ...]:
    """All renamed fields of a program's views. Fields that a view hides are its choice, no drift."""
    return tuple(_of(program.outcomes[-1].answer, program.tool, ""))


def _of(expr: Expr, tool: str, path: str) -> Iterator[Drift]:
    if isinstance(expr, Each | Rows):
        yield from _of(expr.body, tool, f"{path}[]")
    if not isinstance(expr, Made):
        return
    for name, field in expr.fields.items():
        inner = f"{path}.{name}" if path else name
        source = last_name(field)
        if expr.base is not None and not isinstance(field, Row) and source in expr.without and source != name:
            yield Drift(tool=tool, path=path, recorded=name, state=source)
        yield from _of(field, tool, inner)
