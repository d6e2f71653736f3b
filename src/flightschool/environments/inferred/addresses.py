"""All that can be named in a scope: arguments, members of objects, rows that arguments point to, numbers of lists.

Objects whose keys are data (a price by class, a status by date) are entered by the arguments and fields that hold the
key; rows are found by values that are keys of a table, and by values of such rows in turn.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from flightschool.environments.inferred.database import Database
from flightschool.environments.inferred.language import Const, Expr, Get, Match, Root, Row, Scope, Size, Total, shown
from flightschool.records import Json

__all__ = ["Address", "addresses", "last_name", "numbers", "same_name"]

_MOST = 4000
_MOST_FIELDS = 24
"""A larger object is a collection: entered by keys that are data, not by each of its own."""
_DEEPEST = 7
_LINKS = 2
"""Rows are followed to rows this often."""


class Address(NamedTuple):
    """Something that has a name in a scope."""

    expr: Expr
    value: Json


_CACHE: OrderedDict[int, tuple[Scope, list[Address]]] = OrderedDict()
_MOST_CACHED = 2048


def addresses(scope: Scope) -> list[Address]:
    """All addresses of a scope, nearest first. Scopes must not be changed once they were asked for."""
    kept = _CACHE.get(id(scope))
    if kept is not None and kept[0] is scope:
        return kept[1]
    found = _Walk(scope).run()
    _CACHE[id(scope)] = (scope, found)  # the entry keeps the scope alive, so that its id stays its own
    if len(_CACHE) > _MOST_CACHED:
        _CACHE.popitem(last=False)
    return found


class _Walk:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._database: Database = scope["db"]
        self._found: list[Address] = []
        self._keys: list[tuple[Expr, str]] = []
        self._seen_rows: set[tuple[str, str]] = set()

    def run(self) -> list[Address]:
        roots = [name for name in ("item", "row", "args", "out") if name in self._scope]
        for name in roots:
            if name != "out":
                self._collect_keys(Root(name=name), self._scope[name], 2 if name == "args" else 1)
        for name in roots:
            self._expand(Root(name=name), self._scope[name], 0)
        start = 0
        for _ in range(_LINKS):
            end = len(self._found)
            for address in self._found[start:end]:
                self._follow(address)
            start = end
        self._enter_by_fields()
        return self._found[:_MOST]

    def _enter_by_fields(self) -> None:
        """Members of objects whose key stands in a field of a row: a price by the class that the booking has."""
        known = {key for _, key in self._keys}
        fields = [
            address
            for address in self._found
            if isinstance(address.value, str) and address.value not in known and not isinstance(address.expr, Root)
        ]
        for expr, value in tuple(self._found):
            if isinstance(value, dict) and len(value) > 1:
                for field in fields:
                    if field.value in value:
                        self._found.append(Address(Get(base=expr, key=field.expr), value[field.value]))

    def _collect_keys(self, expr: Expr, value: Json, depth: int) -> None:
        if isinstance(value, dict) and depth >= 0:
            for key, child in value.items():
                self._collect_keys(Get(base=expr, key=Const(value=key)), child, depth - 1)
        elif _is_key(value):
            self._keys.append((expr, shown(value)))

    def _expand(self, expr: Expr, value: Json, depth: int, place: tuple[str, ...] = ()) -> None:
        """``place``: table and path of field names, where the value is part of a row."""
        if len(self._found) >= _MOST or depth > _DEEPEST:
            return
        self._found.append(Address(expr, value))
        if isinstance(value, dict):
            closed = bool(place) and self._database.base.is_collection(place[0], place[1:])
            for inner, child in _members(expr, value, self._keys, closed):
                field = inner.key.value if isinstance(inner.key, Const) else "*"
                self._expand(inner, child, depth + 1, (*place, field) if place else ())
        elif isinstance(value, list) and "item" in self._scope:
            fields = _agreeing(value, self._scope["item"])
            if fields:
                element = next(e for e in value if all(e[f] == self._scope["item"][f] for f in fields))
                self._expand(Match(of=expr, fields=fields), element, depth + 1)

    def _follow(self, address: Address) -> None:
        if not _is_key(address.value):
            return
        key = shown(address.value)
        for table in self._database.tables():
            if self._database.has(table, key) and (table, key) not in self._seen_rows:
                self._seen_rows.add((table, key))
                self._expand(Row(table=table, key=address.expr), self._database.row(table, key), 1, (table,))


def _members(
    expr: Expr, value: dict[str, Json], keys: Sequence[tuple[Expr, str]], closed: bool
) -> Iterator[tuple[Get, Json]]:
    for name, key in keys:
        if key in value:
            yield Get(base=expr, key=name), value[key]
    if len(value) <= _MOST_FIELDS and not closed:
        for field, child in value.items():
            yield Get(base=expr, key=Const(value=field)), child


def _is_key(value: Json) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and value != ""


def _agreeing(elements: list[Json], item: Json) -> tuple[str, ...]:
    """Fields in which some element agrees with the item, the most that one agrees in; at least one must be a text."""
    best: tuple[str, ...] = ()
    if not isinstance(item, dict):
        return best
    for element in elements:
        if isinstance(element, dict) and element is not item:
            fields = tuple(f for f in item if f in element and _is_key(item[f]) and element[f] == item[f])
            if len(fields) > len(best) and any(isinstance(item[f], str) for f in fields):
                best = fields
    return best


def numbers(found: Sequence[Address]) -> list[Address]:
    """Numbers among addresses, and sizes and totals of the lists."""
    terms: list[Address] = []
    for expr, value in found:
        if isinstance(value, int | float) and not isinstance(value, bool):
            terms.append(Address(expr, value))
        elif isinstance(value, list) and value:
            terms.append(Address(Size(of=expr), len(value)))
            if all(isinstance(element, dict) for element in value):
                for field, first in value[0].items():
                    if _number(first) and all(_number(element.get(field)) for element in value):
                        terms.append(Address(Total(of=expr, field=field), sum(e[field] for e in value)))
    return terms


def _number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def last_name(expr: Expr) -> str:
    """The last field name of an address, empty if it has none."""
    if isinstance(expr, Get):
        return expr.key.value if isinstance(expr.key, Const) else last_name(expr.base)
    return ""


def same_name(left: str, right: str) -> bool:
    """Whether two field names are the same, singular and plural apart."""
    return left.casefold().rstrip("s") == right.casefold().rstrip("s")
