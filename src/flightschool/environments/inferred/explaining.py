"""Where values come from: one expression that gives the right value in *every* case, or none.

Cases are pairs of a scope and a value. The search goes from the plain to the involved: something that already has a
name, an object made from another with a few fields changed, a list made of a list, arithmetic of up to three numbers,
a text with values in it, and at last two explanations with a test that tells when which holds. Ties are broken by the
name: a field ``price`` is sooner explained by another ``price`` than by an equal number called ``seats``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from flightschool.environments.inferred.addresses import addresses, last_name, same_name
from flightschool.environments.inferred.conditions import separate
from flightschool.environments.inferred.database import Database
from flightschool.environments.inferred.language import (
    Const,
    Each,
    Either,
    Expr,
    Fresh,
    Joined,
    Listed,
    Made,
    Missing,
    Scope,
    evaluate,
)
from flightschool.environments.inferred.reckoning import explain_number
from flightschool.environments.inferred.wording import explain_text, explain_written
from flightschool.records import Json

__all__ = ["Case", "explain"]

_DEEPEST = 6
_MOST_SPLITS = 2
_LEAST_SHARED = 0.4
_MOST_LISTED = 6
_MOST_PARTIAL = 40
_MOST_KEYS = 50


class Case(NamedTuple):
    """A value, and the scope that it is to be explained in."""

    scope: Scope
    value: Json


def explain(cases: Sequence[Case], name: str = "", *, depth: int = 0, splits: int = _MOST_SPLITS) -> Expr | None:
    """An expression that gives every case's value.

    Args:
        cases: at least one.
        name: the field that holds the values, if any.
        depth: nesting so far.
        splits: how often cases may be told apart by a test.
    """
    if depth > _DEEPEST:
        return None
    found = _fresh(cases, name) or _named(cases, name)
    if found is not None:
        return found
    for kind, attempt in _ATTEMPTS:
        if all(isinstance(case.value, kind) and not isinstance(case.value, bool) for case in cases):
            made = attempt(cases, name, depth, splits)
            if made is not None:
                return made
    return _split(cases, name, depth, splits) if splits > 0 and len(cases) > 1 else None


def fits(expr: Expr, case: Case) -> bool:
    """Whether an expression gives a case's value, of the same type."""
    try:
        value = evaluate(expr, case.scope)
    except Missing:
        return False
    return same(value, case.value)


def same(left: Json, right: Json) -> bool:
    """Equality of JSON values: truth values are no numbers."""
    if isinstance(left, bool) is not isinstance(right, bool):
        return False
    return bool(left == right)


# ------------------------------------------------------------------------------------------------ what has a name


def _named(cases: Sequence[Case], name: str) -> Expr | None:
    """An address with the value of every case, else the constant; an address of the same name wins over both."""
    others: list[Expr] = []
    constant = all(same(case.value, cases[0].value) for case in cases[1:])
    for expr in _candidates(cases[0]):
        if all(fits(expr, case) for case in cases[1:]):
            if name and same_name(last_name(expr), name):
                return expr
            others.append(expr)
            if not name and not constant:
                break
    if constant:
        return Const(value=cases[0].value)
    return others[0] if others else None


def _candidates(case: Case) -> Iterator[Expr]:
    for expr, value in addresses(case.scope):
        if same(value, case.value):
            yield expr


def _fresh(cases: Sequence[Case], name: str) -> Expr | None:
    """Keys of rows that a call makes: the first of a sequence that the table does not have."""
    values = {case.value for case in cases if isinstance(case.value, str)}
    if not name or len(values) > _MOST_KEYS:
        return None
    database: Database = cases[0].scope["db"]
    for table, field in database.base.key_fields.items():
        if field != name or any(database.base.tables[table].get(value) is not None for value in values):
            continue
        taken = {value: min(_taken(case, table, values) for case in cases if case.value == value) for value in values}
        made = Fresh(table=table, sequence=tuple(sorted(values, key=lambda value: (taken[value], value))))
        if all(fits(made, case) for case in cases):
            return made
    return None


def _taken(case: Case, table: str, values: Collection[str]) -> int:
    return sum(case.scope["db"].has(table, value) for value in values)


# ------------------------------------------------------------------------------------------------ objects


def _made(cases: Sequence[Case], name: str, depth: int, splits: int) -> Expr | None:
    bases: list[Expr | None] = [*_bases(cases, name), None]
    for base in bases[:3]:
        for nulls in (True, False) if base is not None else (True,):
            made = _made_from(base, cases, depth, splits, nulls=nulls)
            if made is not None:
                return made
    return None


def _bases(cases: Sequence[Case], name: str) -> list[Expr]:
    """Addresses of objects that share most fields with the values of all cases; those that share most first."""
    ranked: list[tuple[float, int, Expr]] = []
    for order, (expr, value) in enumerate(addresses(cases[0].scope)):
        if not isinstance(value, dict) or _shared(value, cases[0].value) < _LEAST_SHARED:
            continue
        shares = [_shared(_value(expr, case.scope), case.value) for case in cases]
        if min(shares) >= _LEAST_SHARED:
            bonus = 1.0 if name and same_name(last_name(expr), name) else 0.0
            ranked.append((-sum(shares) / len(shares) - bonus, order, expr))
    return [expr for _, _, expr in sorted(ranked, key=lambda entry: entry[:2])]


def _value(expr: Expr, scope: Scope) -> Json:
    try:
        return evaluate(expr, scope)
    except Missing:
        return None


def _shared(base: Json, value: dict[str, Json]) -> float:
    """Share of a value's fields that a base has with an equal value, where both have at least two fields alike."""
    if not isinstance(base, dict) or not value:
        return 0.0
    equal = sum(1 for key, field in value.items() if key in base and same(base[key], field))
    filled = sum(field is not None for field in base.values())
    return equal / max(len(value), min(len(base), filled)) if equal >= min(2, len(value)) else 0.0


def _made_from(base: Expr | None, cases: Sequence[Case], depth: int, splits: int, *, nulls: bool = True) -> Expr | None:
    bases = [{} if base is None else _fields(_value(base, case.scope), nulls) for case in cases]
    keys = [key for key in cases[0].value if all(key in case.value for case in cases)]
    if any(set(case.value) - set(keys) - set(own) for case, own in zip(cases, bases, strict=True)):
        return None  # a field that is there only at times, and does not come from the base
    known = dict.fromkeys(key for own in bases for key in own)
    without = tuple(key for key in known if not any(key in case.value for case in cases))
    outs = [{k: v for k, v in own.items() if k not in without} for own in bases]
    if any(set(out) - set(case.value) for case, out in zip(cases, outs, strict=True)):
        return None
    pending = [
        key
        for key in keys
        if not all(key in out and same(out[key], case.value[key]) for case, out in zip(cases, outs, strict=True))
    ]
    fields: dict[str, Expr] = {}
    while pending:
        solved = ""
        for key in pending:
            inner = [
                Case({"out": dict(out), **case.scope}, case.value[key]) for case, out in zip(cases, outs, strict=True)
            ]
            found = explain(inner, key, depth=depth + 1, splits=splits)
            if found is not None:
                fields[key], solved = found, key
                break
        if not solved:
            return None
        pending.remove(solved)
        for case, out in zip(cases, outs, strict=True):
            out[solved] = case.value[solved]
    return Made(fields=fields, base=base, without=without, nulls=nulls)


def _fields(value: Json, nulls: bool) -> dict[str, Json]:
    return {key: field for key, field in value.items() if nulls or field is not None}


# ------------------------------------------------------------------------------------------------ lists


def _listed(cases: Sequence[Case], name: str, depth: int, splits: int) -> Expr | None:
    for expr, value in addresses(cases[0].scope):
        if isinstance(value, list) and len(value) == len(cases[0].value) > 0:
            body = _each(expr, cases, depth, splits)
            if body is not None:
                return Each(of=expr, body=body)
    appended = _appended(cases, name, depth, splits)
    if appended is not None:
        return appended
    lengths = {len(case.value) for case in cases}
    if len(lengths) == 1 and 0 < max(lengths) <= _MOST_LISTED:
        items = [
            explain([Case(case.scope, case.value[index]) for case in cases], depth=depth + 1, splits=splits)
            for index in range(max(lengths))
        ]
        if all(item is not None for item in items):
            return Listed(items=tuple(item for item in items if item is not None))
    return None


def _each(of: Expr, cases: Sequence[Case], depth: int, splits: int) -> Expr | None:
    """What every element of a list becomes, if it becomes an element of the value."""
    inner: list[Case] = []
    for case in cases:
        source = _value(of, case.scope)
        if not isinstance(source, list) or len(source) != len(case.value):
            return None
        if any(isinstance(item, list) for item in source):
            return None
        inner += [Case({**case.scope, "item": item}, made) for item, made in zip(source, case.value, strict=True)]
    if not inner or not _kin(inner):
        return None
    return explain(inner, depth=depth + 1, splits=splits)


def _kin(cases: Sequence[Case]) -> bool:
    """Whether elements have something in common with what they are said to become: one value at least."""
    for case in cases[:20]:
        item, made = case.scope["item"], case.value
        if isinstance(made, dict):
            values = item.values() if isinstance(item, dict) else [item]
            if not any(same(value, field) for value in values for field in made.values()):
                return False
    return True


def _appended(cases: Sequence[Case], name: str, depth: int, splits: int) -> Expr | None:
    """A list that grew: a named list, then single new elements, or one for each element of a list."""
    for expr, value in addresses(cases[0].scope):
        if not isinstance(value, list) or cases[0].value[: len(value)] != value:
            continue
        starts = [_value(expr, case.scope) for case in cases]
        if not all(isinstance(s, list) and c.value[: len(s)] == s for s, c in zip(starts, cases, strict=True)):
            continue
        if not any(starts) or (name and last_name(expr) and not same_name(last_name(expr), name)):
            continue
        rest = [Case(case.scope, case.value[len(start) :]) for case, start in zip(cases, starts, strict=True)]
        if not all(case.value for case in rest):
            continue
        found = _listed_without_growth(rest, depth, splits)
        if found is not None:
            return Joined(parts=(expr, found))
    return None


def _listed_without_growth(cases: Sequence[Case], depth: int, splits: int) -> Expr | None:
    lengths = {len(case.value) for case in cases}
    if len(lengths) == 1 and max(lengths) <= 2:
        items = [
            explain([Case(case.scope, case.value[index]) for case in cases], depth=depth + 1, splits=splits)
            for index in range(max(lengths))
        ]
        if all(item is not None for item in items):
            return Listed(items=tuple(item for item in items if item is not None))
    for expr, value in addresses(cases[0].scope):
        if isinstance(value, list) and len(value) == len(cases[0].value):
            body = _each(expr, cases, depth, splits)
            if body is not None:
                return Each(of=expr, body=body)
    return None


# ------------------------------------------------------------------------------------------------ two explanations


def _split(cases: Sequence[Case], name: str, depth: int, splits: int) -> Expr | None:
    """Two explanations, each of some cases, with a test that tells which cases are whose."""
    partial = [expr for seed in (cases[0], cases[-1]) for expr in _partial(seed, cases, name, depth)]
    for nested in range(splits):
        tried: set[frozenset[int]] = set()
        for expr in partial:
            covered = frozenset(index for index, case in enumerate(cases) if fits(expr, case))
            rest = [case for index, case in enumerate(cases) if index not in covered]
            if covered in tried or not rest or (len(covered) < 2 and len(cases) > 3):
                continue
            tried.add(covered)
            other = explain(rest, name, depth=depth, splits=nested)
            if other is None:
                continue
            found = _either(expr, other, [cases[index] for index in sorted(covered)], rest)
            if found is not None:
                return found
    return None


def _either(expr: Expr, other: Expr, covered: Sequence[Case], rest: Sequence[Case]) -> Expr | None:
    """The choice between two explanations. Cases that both explain say nothing about it."""
    alone = [case.scope for case in covered if not fits(other, case)]
    if not alone:
        return other
    others = [case.scope for case in rest]
    test = separate(alone, others)
    if test is not None:
        return Either(test=test, then=expr, other=other)
    test = separate(others, alone)
    return None if test is None else Either(test=test, then=other, other=expr)


def _partial(seed: Case, cases: Sequence[Case], name: str, depth: int) -> list[Expr]:
    """Explanations of one case, those that explain most others first."""
    found = [*_candidates(seed), Const(value=seed.value)]
    if isinstance(seed.value, list) and depth < _DEEPEST:
        alike = [case for case in cases if _alike(case, seed)]
        if 1 < len(alike) < len(cases):
            made = explain(alike, name, depth=depth, splits=0)
            if made is not None:
                found.append(made)
    counted = [(sum(fits(expr, case) for case in cases), expr) for expr in found[:_MOST_PARTIAL]]
    return [expr for _, expr in sorted(counted, key=lambda entry: -entry[0])][:3]


def _alike(case: Case, seed: Case) -> bool:
    """Whether two values grew alike against the field of the same name before."""
    return _growth(case) == _growth(seed)


def _growth(case: Case) -> int:
    sizes = [
        len(case.value) - len(value)
        for _, value in addresses(case.scope)
        if isinstance(value, list) and value and case.value[: len(value)] == value
    ]
    return min(sizes, default=len(case.value))


def _number(cases: Sequence[Case], name: str, depth: int, splits: int) -> Expr | None:
    del name, depth, splits
    pairs = [(case.scope, case.value) for case in cases]
    return explain_written(pairs) or explain_number(pairs)


def _worded(cases: Sequence[Case], name: str, depth: int, splits: int) -> Expr | None:
    del name, splits
    return explain_text([(case.scope, case.value) for case in cases], lambda inner: _token(inner, depth + 1))


def _token(inner: Sequence[tuple[Scope, Json]], depth: int) -> Expr | None:
    return explain([Case(*pair) for pair in inner], depth=depth, splits=0)


_ATTEMPTS: tuple[tuple[type | tuple[type, ...], Callable[[Sequence[Case], str, int, int], Expr | None]], ...] = (
    (dict, _made),
    (list, _listed),
    ((int, float), _number),
    (str, _worded),
)
