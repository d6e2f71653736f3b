"""Searches: which rows of a table an answer lists, and what of each row it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from flightschool.environments.inferred.addresses import addresses
from flightschool.environments.inferred.conditions import atoms_of
from flightschool.environments.inferred.database import Database
from flightschool.environments.inferred.language import All, Const, Expr, Rows, Scope, Test, Truth, holds
from flightschool.records import Json

__all__ = ["explain_query"]

_MOST_CASES = 24
_MOST_TESTS = 5


class _Source(NamedTuple):
    table: str
    field: str


def explain_query(
    cases: Sequence[tuple[Scope, Json]], explain_body: Callable[[Sequence[tuple[Scope, Json]]], Expr | None]
) -> Expr | None:
    """A query whose answer is the list of every case: rows by a test, in the order of the table."""
    cases = [case for case in cases if isinstance(case[1], list)][:_MOST_CASES]
    if not any(value for _, value in cases):
        return None
    for source in _sources(cases):
        members = _members(cases, source)
        if not members:
            continue
        body = explain_body(members)
        if body is None:
            continue
        test = _test(cases, source)
        if test is not None:
            return Rows(table=source.table, test=test, body=body)
    return None


def _sources(cases: Sequence[tuple[Scope, Json]]) -> Iterable[_Source]:
    """Tables of which every listed element names a row, with the field that names it."""
    elements = [element for _, value in cases for element in value]
    if not elements or not all(isinstance(element, dict) for element in elements):
        return
    database: Database = cases[0][0]["db"]
    for field, first in elements[0].items():
        if not isinstance(first, str | int) or isinstance(first, bool):
            continue
        for table in database.tables():
            if all(field in e and _names_row(database, table, e[field]) for e in elements):
                yield _Source(table, field)


def _names_row(database: Database, table: str, key: Json) -> bool:
    return isinstance(key, str | int) and database.has(table, str(key))


def _members(cases: Sequence[tuple[Scope, Json]], source: _Source) -> list[tuple[Scope, Json]]:
    return [
        ({**scope, "row": scope["db"].row(source.table, str(element[source.field]))}, element)
        for scope, value in cases
        for element in value
    ]


def _test(cases: Sequence[tuple[Scope, Json]], source: _Source) -> Truth | None:
    """Tests that all listed rows pass, the fewest that no other row passes."""
    inside = [scope for scope, _ in _members(cases, source)]
    listed = [{str(element[source.field]) for element in value} for _, value in cases]
    outside = [
        {**scope, "row": row}
        for (scope, _), keys in zip(cases, listed, strict=True)
        for key, row in scope["db"].rows(source.table)
        if key not in keys
    ]
    atoms = [atom for atom in _atoms(inside) if all(holds(atom, scope) for scope in inside)]
    chosen: list[Truth] = []
    left = outside
    while left and len(chosen) < _MOST_TESTS:
        sample = left if len(left) <= 300 else left[:: len(left) // 300]
        ranked = sorted(atoms, key=lambda atom: sum(holds(atom, scope) for scope in sample))
        if not ranked:
            return None
        still = [scope for scope in left if holds(ranked[0], scope)]
        if len(still) == len(left):
            return None
        chosen.append(ranked[0])
        left = still
    return None if left else All(tests=tuple(chosen))


def _atoms(inside: Sequence[Scope]) -> list[Truth]:
    """Equalities of a listed row with an argument or a constant, and that some member exists."""
    found: dict[Truth, None] = {}
    for scope in inside[:2]:
        rowless = {key: value for key, value in scope.items() if key != "row"}
        plain = {address.expr for address in addresses(rowless)}
        for atom in atoms_of(scope):
            if isinstance(atom, Test) and atom.op in ("==", "exists") and _speaks_of_row(atom.left, atom.right, plain):
                found.setdefault(atom)
    return list(found)


def _speaks_of_row(left: Expr, right: Expr, plain: set[Expr]) -> bool:
    """Whether a side names something that is not there without the row."""
    return left not in plain or not (isinstance(right, Const) or right in plain)
