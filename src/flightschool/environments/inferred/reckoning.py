"""Numbers that are computed from other numbers: differences, products, multiples, and sums of a few of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flightschool.environments.inferred.addresses import addresses, numbers
from flightschool.environments.inferred.language import Arith, Const, Expr, Get, Missing, Scope, evaluate
from flightschool.environments.inferred.summing import LEAST_FOR_SUMS, explain_sum
from flightschool.records import Json

__all__ = ["explain_number"]

_MOST_TERMS = 80
_LEAST_FOR_PAIRS = 2
_LEAST_FOR_TRIPLES = 3
"""Distinct values that an expression of three numbers must explain: fewer are hit by chance."""
_CLOSE = 1e-9


def explain_number(cases: Sequence[tuple[Scope, Json]]) -> Expr | None:
    """Arithmetic that gives the number of every case."""
    distinct = len({value for _, value in cases})
    seed_scope, seed = max(cases, key=lambda case: abs(case[1]))
    terms = _terms(seed_scope)
    for expr in _singles(terms, seed):
        if _fits_all(expr, cases):
            return expr
    if distinct >= _LEAST_FOR_PAIRS:
        for expr in _pairs(terms, seed):
            if _fits_all(expr, cases):
                return expr
    if distinct >= _LEAST_FOR_TRIPLES:
        for expr in _triples(terms, seed):
            if _fits_all(expr, cases):
                return expr
    return explain_sum(cases) if distinct >= LEAST_FOR_SUMS else None


def _terms(scope: Scope) -> list[tuple[Expr, float]]:
    """Numbers of the scope."""
    found = numbers(addresses(scope))
    found.sort(key=lambda address: isinstance(address.expr, Get))  # sizes and totals first: they are what is added up
    return [(address.expr, address.value) for address in found[:_MOST_TERMS]]


def _fits_all(expr: Expr, cases: Sequence[tuple[Scope, Json]]) -> bool:
    for scope, value in cases:
        try:
            if abs(evaluate(expr, scope) - value) > _CLOSE * max(1.0, abs(value)):
                return False
        except Missing:
            return False
    return True


def _singles(terms: Sequence[tuple[Expr, float]], target: float) -> Iterator[Expr]:
    for expr, value in terms:
        if value == target and not isinstance(expr, Get):
            yield expr
        if value == -target and target != 0:
            yield Arith(op="-", left=Const(value=0), right=expr)
        if value and target and float(target / value).is_integer() and abs(target / value) > 1:
            yield Arith(op="*", left=Const(value=_plain(target / value)), right=expr)


def _pairs(terms: Sequence[tuple[Expr, float]], target: float) -> Iterator[Expr]:
    for left, one in terms:
        for right, two in terms:
            if one + two == target:
                yield Arith(op="+", left=left, right=right)
            if one - two == target:
                yield Arith(op="-", left=left, right=right)
            if one * two == target:
                yield Arith(op="*", left=left, right=right)
            difference = one - two
            if difference and float(target / difference).is_integer() and abs(target / difference) > 1:
                factor = Const(value=_plain(target / difference))
                yield Arith(op="*", left=factor, right=Arith(op="-", left=left, right=right))


def _triples(terms: Sequence[tuple[Expr, float]], target: float) -> Iterator[Expr]:
    by_value: dict[float, list[Expr]] = {}
    for expr, value in terms:
        by_value.setdefault(value, []).append(expr)
    for left, one in terms:
        for right, two in terms:
            difference, product = one - two, one * two
            if difference and target % difference == 0:
                for third in by_value.get(target / difference, ()):
                    yield Arith(op="*", left=Arith(op="-", left=left, right=right), right=third)
            for third in by_value.get(target - product, ()):
                yield Arith(op="+", left=Arith(op="*", left=left, right=right), right=third)
            for third in by_value.get(product - target, ()):
                yield Arith(op="-", left=Arith(op="*", left=left, right=right), right=third)
            for third in by_value.get(one + two - target, ()):
                yield Arith(op="-", left=Arith(op="+", left=left, right=right), right=third)


def _plain(value: float) -> float:
    return int(value) if float(value).is_integer() else value
