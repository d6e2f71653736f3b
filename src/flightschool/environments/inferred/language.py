"""The small language in which tools are explained: where each value of an answer comes from.

An expression is data (it is kept with the environment and covered by its digest) and is evaluated in a scope: the
arguments of the call (``args``), the state (``db``), an element of a list (``item``), a row of a query (``row``), the
outermost object of the
answer so far (``out``). There are no loops but over lists that exist, no names but these, and no code: whatever was
inferred can be read, and can do nothing but look up, compare and compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

from flightschool.environments.inferred.arithmetic import evaluate_arithmetic
from flightschool.environments.inferred.database import Database
from flightschool.records import Json, Record

__all__ = [
    "All",
    "Arith",
    "Const",
    "Each",
    "Either",
    "Expr",
    "Fresh",
    "Get",
    "Joined",
    "Listed",
    "Made",
    "Match",
    "Missing",
    "Reckoned",
    "Root",
    "Row",
    "Rows",
    "Scope",
    "Size",
    "Some",
    "Test",
    "Text",
    "Total",
    "Truth",
    "compare",
    "evaluate",
    "holds",
    "offenders",
    "shown",
    "value_or_nothing",
]

Scope: TypeAlias = Mapping[str, Json]
"""Name → value; ``db`` holds a ``Database``."""


class Missing(Exception):  # noqa: N818  it is no error: an address leads nowhere in this scope
    """What an expression names does not exist in a scope."""


class Const(Record, frozen=True, kw_only=True, tag="const"):
    """A value that is always the same."""

    value: Json


class Root(Record, frozen=True, kw_only=True, tag="root"):
    """A name of the scope."""

    name: str


class Get(Record, frozen=True, kw_only=True, tag="get"):
    """A member of an object."""

    base: Expr
    key: Expr


class Row(Record, frozen=True, kw_only=True, tag="row"):
    """The row of a table with a key."""

    table: str
    key: Expr


class Match(Record, frozen=True, kw_only=True, tag="match"):
    """The first element of a list that agrees with ``item`` in some fields."""

    of: Expr
    fields: tuple[str, ...]


class Size(Record, frozen=True, kw_only=True, tag="size"):
    """Number of elements."""

    of: Expr


class Total(Record, frozen=True, kw_only=True, tag="total"):
    """Sum of a field over a list of objects."""

    of: Expr
    field: str


class Arith(Record, frozen=True, kw_only=True, tag="arith"):
    """Arithmetic of two numbers."""

    op: Literal["+", "-", "*"]
    left: Expr
    right: Expr


class Reckoned(Record, frozen=True, kw_only=True, tag="reckoned"):
    """The value of an arithmetic expression that is written in a text."""

    of: Expr
    style: str
    """How the number is written (see ``arithmetic``)."""


class Text(Record, frozen=True, kw_only=True, tag="text"):
    """A text with values in it."""

    parts: tuple[Expr, ...]


class Made(Record, frozen=True, kw_only=True, tag="made"):
    """An object: ``base`` (if any) without some keys, then fields of its own."""

    fields: dict[str, Expr]
    base: Expr | None = None
    without: tuple[str, ...] = ()
    nulls: bool = True
    """Whether fields of the base that are null are shown."""


class Each(Record, frozen=True, kw_only=True, tag="each"):
    """A list of what the elements of another become."""

    of: Expr
    body: Expr


class Rows(Record, frozen=True, kw_only=True, tag="rows"):
    """A list of what the rows that pass a test become, in the order of the table."""

    table: str
    test: Truth
    body: Expr


class Joined(Record, frozen=True, kw_only=True, tag="joined"):
    """Lists one after the other."""

    parts: tuple[Expr, ...]


class Listed(Record, frozen=True, kw_only=True, tag="listed"):
    """A list of single values."""

    items: tuple[Expr, ...]


class Either(Record, frozen=True, kw_only=True, tag="either"):
    """One of two, by a test."""

    test: Truth
    then: Expr
    other: Expr


class Fresh(Record, frozen=True, kw_only=True, tag="fresh"):
    """The first of a sequence of keys that a table does not have yet."""

    table: str
    sequence: tuple[str, ...]


Expr: TypeAlias = (
    Const
    | Root
    | Get
    | Row
    | Match
    | Size
    | Total
    | Arith
    | Reckoned
    | Text
    | Made
    | Each
    | Rows
    | Joined
    | Listed
    | Either
    | Fresh
)


class Test(Record, frozen=True, kw_only=True, tag="test"):
    """A comparison. One that leads nowhere does not hold; ``exists`` and ``missing`` ask for just that."""

    __test__ = False  # no test case, whatever its name
    op: Literal["==", "!=", "<", "<=", "exists", "missing"]
    left: Expr
    right: Expr = Const(value=None)


class Some(Record, frozen=True, kw_only=True, tag="some"):
    """Whether a test holds for some element of a list."""

    of: Expr
    test: Truth


class All(Record, frozen=True, kw_only=True, tag="all"):
    """All tests hold; of no tests, always."""

    tests: tuple[Truth, ...] = ()


Truth: TypeAlias = Test | Some | All


# ------------------------------------------------------------------------------------------------ evaluation


def evaluate(expr: Expr, scope: Scope) -> Json:
    """The value of an expression. Raises ``Missing`` where something that it names does not exist."""
    return _EVALUATE[type(expr)](expr, scope)


def _get(expr: Get, scope: Scope) -> Json:
    base, key = evaluate(expr.base, scope), evaluate(expr.key, scope)
    if isinstance(base, dict):
        if isinstance(key, str) and key in base:
            return base[key]
        if str(key) in base and isinstance(key, int) and not isinstance(key, bool):
            return base[str(key)]
    raise Missing


def _row(expr: Row, scope: Scope) -> Json:
    key = evaluate(expr.key, scope)
    database: Database = scope["db"]
    if not isinstance(key, str | int) or isinstance(key, bool) or not database.has(expr.table, str(key)):
        raise Missing
    return database.row(expr.table, str(key))


def _match(expr: Match, scope: Scope) -> Json:
    item = scope.get("item")
    for element in _list(expr.of, scope):
        if (
            isinstance(element, dict)
            and isinstance(item, dict)
            and all(f in element and f in item and element[f] == item[f] for f in expr.fields)
        ):
            return element
    raise Missing


def _total(expr: Total, scope: Scope) -> Json:
    total: float = 0
    for element in _list(expr.of, scope):
        if not isinstance(element, dict) or expr.field not in element:
            raise Missing
        total += _number(element[expr.field])
    return total


def _arith(expr: Arith, scope: Scope) -> Json:
    left, right = _number(evaluate(expr.left, scope)), _number(evaluate(expr.right, scope))
    if expr.op == "+":
        return left + right
    return left - right if expr.op == "-" else left * right


def _text(expr: Text, scope: Scope) -> Json:
    return "".join(shown(evaluate(part, scope)) for part in expr.parts)


def _made(expr: Made, scope: Scope) -> Json:
    base = {} if expr.base is None else evaluate(expr.base, scope)
    if not isinstance(base, dict):
        raise Missing
    made = {key: value for key, value in base.items() if key not in expr.without and (expr.nulls or value is not None)}
    inner = scope if "out" in scope else {**scope, "out": made}
    for key, field in expr.fields.items():
        made[key] = evaluate(field, inner)
    return made


def _each(expr: Each, scope: Scope) -> Json:
    return [evaluate(expr.body, {**scope, "item": item}) for item in _list(expr.of, scope)]


def _rows(expr: Rows, scope: Scope) -> Json:
    found = []
    for _, row in scope["db"].rows(expr.table):
        inner = {**scope, "row": row}
        if holds(expr.test, inner):
            found.append(evaluate(expr.body, inner))
    return found


def _joined(expr: Joined, scope: Scope) -> Json:
    return [item for part in expr.parts for item in _list(part, scope)]


def _either(expr: Either, scope: Scope) -> Json:
    return evaluate(expr.then if holds(expr.test, scope) else expr.other, scope)


def _fresh(expr: Fresh, scope: Scope) -> Json:
    for key in expr.sequence:
        if not scope["db"].has(expr.table, key):
            return key
    raise Missing


def _reckoned(expr: Reckoned, scope: Scope) -> Json:
    value = evaluate_arithmetic(evaluate(expr.of, scope), expr.style)
    if value is None:
        raise Missing
    return value


def _list(expr: Expr, scope: Scope) -> list[Json]:
    value = evaluate(expr, scope)
    if not isinstance(value, list):
        raise Missing
    return value


def _number(value: Json) -> float:
    if not _is_number(value):
        raise Missing
    number: float = value
    return number


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _root(expr: Root, scope: Scope) -> Json:
    if expr.name not in scope:
        raise Missing
    return scope[expr.name]


_EVALUATE: dict[type, Callable[..., Json]] = {
    Const: lambda expr, _: expr.value,
    Root: _root,
    Get: _get,
    Row: _row,
    Match: _match,
    Size: lambda expr, scope: len(_list(expr.of, scope)),
    Total: _total,
    Arith: _arith,
    Reckoned: _reckoned,
    Text: _text,
    Made: _made,
    Each: _each,
    Rows: _rows,
    Joined: _joined,
    Listed: lambda expr, scope: [evaluate(item, scope) for item in expr.items],
    Either: _either,
    Fresh: _fresh,
}


def holds(test: Truth, scope: Scope) -> bool:
    """Whether a test holds."""
    if isinstance(test, All):
        return all(holds(one, scope) for one in test.tests)
    if isinstance(test, Some):
        return next(offenders(test, scope), None) is not None
    return compare(test.op, value_or_nothing(test.left, scope), value_or_nothing(test.right, scope))


NOTHING: Any = object()
"""Stands for the value of an expression that leads nowhere."""


def value_or_nothing(expr: Expr, scope: Scope) -> Json:
    """The value of an expression, or ``NOTHING``."""
    try:
        return evaluate(expr, scope)
    except Missing:
        return NOTHING


def compare(op: str, left: Json, right: Json) -> bool:
    """Whether a comparison of two values holds; one with nothing does not, but for ``missing``."""
    if op in ("exists", "missing"):
        return (left is NOTHING) is (op == "missing")
    if left is NOTHING or right is NOTHING:
        return False
    if op in ("==", "!="):
        return bool(left == right) is (op == "==")
    if not _is_number(left) or not _is_number(right):
        return False
    return bool(left < right) if op == "<" else bool(left <= right)


def offenders(test: Some, scope: Scope) -> Iterator[Json]:
    """The elements for which the test holds."""
    try:
        items = _list(test.of, scope)
    except Missing:
        return
    for item in items:
        if holds(test.test, {**scope, "item": item}):
            yield item


def shown(value: Json) -> str:
    """A value inside a text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
