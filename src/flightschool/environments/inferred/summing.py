"""Sums of up to three parts: totals and their products with sizes, plus what is charged apiece or in some cases only.

The first part stands as it is; the others are multiples. Their factors are solved for in one case each and must then
hold in all. Parts that apply to some cases only (an option that was taken) are numbers times a yes or no.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flightschool.environments.inferred.addresses import Address, addresses, numbers
from flightschool.environments.inferred.language import (
    Arith,
    Const,
    Either,
    Expr,
    Scope,
    Size,
    Test,
    Total,
    value_or_nothing,
)
from flightschool.records import Json

__all__ = ["LEAST_FOR_SUMS", "explain_sum"]

LEAST_FOR_SUMS = 5
"""Distinct values that a sum must explain."""
_MOST_PARTS = 160
_MOST_MAIN = 40
_CLOSE = 1e-9


class _Part(NamedTuple):
    expr: Expr
    values: tuple[float, ...]


def explain_sum(cases: Sequence[tuple[Scope, Json]]) -> Expr | None:
    """A sum that gives the number of every case."""
    wanted = [float(value) for _, value in cases]
    scopes = [scope for scope, _ in cases]
    plain, products = _parts(scopes)
    extras = [*plain, *_optional(scopes, plain), *products][:_MOST_PARTS]
    for main in [*products, *(part for part in plain if isinstance(part.expr, Total))][:_MOST_MAIN]:
        rest = [value - part for value, part in zip(wanted, main.values, strict=True)]
        found = _multiples(rest, extras)
        if found is not None:
            total: Expr = main.expr
            for factor, part in found:
                total = Arith(op="+", left=total, right=Arith(op="*", left=Const(value=factor), right=part.expr))
            return total
    return None


def _parts(scopes: Sequence[Scope]) -> tuple[list[_Part], list[_Part]]:
    """Numbers that every scope has, totals and sizes first; and products of totals and numbers with sizes."""
    found = sorted(numbers(addresses(scopes[0])), key=lambda term: not isinstance(term.expr, Total | Size))
    plain: dict[tuple[float, ...], _Part] = {}
    for term in found:
        values = _everywhere(term, scopes)
        if values is not None and any(values):
            plain.setdefault(values, _Part(term.expr, values))
    sizes = [part for part in plain.values() if isinstance(part.expr, Size)]
    products: dict[tuple[float, ...], _Part] = {}
    for part in plain.values():
        for size in sizes:
            if isinstance(part.expr, Total) and set(size.values) != {1.0}:
                values = tuple(a * b for a, b in zip(part.values, size.values, strict=True))
                products.setdefault(values, _Part(Arith(op="*", left=part.expr, right=size.expr), values))
    return list(plain.values()), list(products.values())


def _everywhere(term: Address, scopes: Sequence[Scope]) -> tuple[float, ...] | None:
    values = [value_or_nothing(term.expr, scope) for scope in scopes]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return tuple(float(value) for value in values)
    return None


def _optional(scopes: Sequence[Scope], plain: Sequence[_Part]) -> list[_Part]:
    """Sizes, and one, times whether an argument has a value that not all have."""
    counted = [part for part in plain if isinstance(part.expr, Size)]
    found: dict[tuple[float, ...], _Part] = {}
    for expr, value in addresses({key: scopes[0][key] for key in ("args", "db")}):
        if not isinstance(value, str | bool):
            continue
        seen = [value_or_nothing(expr, scope) for scope in scopes]
        for kind in {one for one in seen if isinstance(one, str | bool)}:
            if isinstance(kind, str) and any(char.isdigit() for char in kind):
                continue
            test = Test(op="==", left=expr, right=Const(value=kind))
            chosen = [one == kind for one in seen]
            if all(chosen) or len({one for one in seen if isinstance(one, str)}) > 6:
                continue
            for part in [*counted, _Part(Const(value=1), (1.0,) * len(scopes))]:
                values = tuple(number * yes for number, yes in zip(part.values, chosen, strict=True))
                found.setdefault(values, _Part(Either(test=test, then=part.expr, other=Const(value=0)), values))
    return list(found.values())


def _multiples(rest: Sequence[float], parts: Sequence[_Part]) -> list[tuple[float, _Part]] | None:
    """Up to two parts of which multiples add up to the rest in every case."""
    if not any(rest):
        return []
    single = _multiple(rest, parts)
    if single is not None:
        return [single]
    for part in parts:
        for index in {next(i for i, value in enumerate(part.values) if value), _last(part.values)}:
            factor = rest[index] / part.values[index]
            if not factor or not factor.is_integer():
                continue
            left = [value - factor * own for value, own in zip(rest, part.values, strict=True)]
            other = _multiple(left, parts)
            if other is not None:
                return [(int(factor), part), other]
    return None


def _last(values: Sequence[float]) -> int:
    return max(i for i, value in enumerate(values) if value)


def _multiple(rest: Sequence[float], parts: Sequence[_Part]) -> tuple[float, _Part] | None:
    pivot = max(range(len(rest)), key=lambda index: abs(rest[index]))
    for part in parts:
        if part.values[pivot]:
            factor = rest[pivot] / part.values[pivot]
            if factor.is_integer() and all(
                abs(value - factor * own) < _CLOSE for value, own in zip(rest, part.values, strict=True)
            ):
                return int(factor), part
    return None
