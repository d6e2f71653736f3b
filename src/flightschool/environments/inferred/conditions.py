"""Which test tells one kind of case from another.

Tests are comparisons of addresses with one another, with constants and between numbers. One that separates all cases
is looked for first, then two or three that hold together. A test is only believed if it separates *every* case: what
cannot be told apart exactly is not answered by a rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flightschool.environments.inferred.addresses import Address, addresses, numbers
from flightschool.environments.inferred.language import (
    All,
    Const,
    Expr,
    Scope,
    Test,
    Truth,
    compare,
    value_or_nothing,
)
from flightschool.records import Json

__all__ = ["atoms_of", "separate"]

_MOST_NUMBERS = 40
_MOST_ATOMS = 6000
_MOST_TOGETHER = 3


def separate(positive: Sequence[Scope], negative: Sequence[Scope], extra: Sequence[Expr] = ()) -> Truth | None:
    """The simplest test that holds in all positive scopes and in no negative one; None if none is found.

    Args:
        positive: at least one scope.
        negative: scopes in which it must not hold.
        extra: numeric expressions that are worth comparing with, beside what the scopes name.
    """
    if not negative:
        return All()
    inside, outside = _Values(positive), _Values(negative)
    chosen: list[Truth] = []
    left = (1 << len(negative)) - 1
    holding = [atom for atom in _candidates(positive, negative, extra) if inside.all_hold(atom)]
    atoms = [(atom, outside.mask(atom)) for atom in holding]
    while left and len(chosen) < _MOST_TOGETHER:
        best, remaining = None, left
        for atom, mask in atoms:
            still = left & mask
            if still.bit_count() < remaining.bit_count():
                best, remaining = atom, still
                if not still:
                    break
        if best is None:
            return None
        chosen.append(best)
        left = remaining
    if left:
        return None
    return chosen[0] if len(chosen) == 1 else All(tests=tuple(chosen))


class _Values:
    """Values of expressions in many scopes, computed once; tests become bit masks over the scopes."""

    def __init__(self, scopes: Sequence[Scope]) -> None:
        self._scopes = scopes
        self._known: dict[Expr, list[Json]] = {}

    def all_hold(self, test: Test) -> bool:
        """Whether the test holds in all scopes."""
        pairs = zip(self._of(test.left), self._of(test.right), strict=True)
        return all(compare(test.op, left, right) for left, right in pairs)

    def mask(self, test: Test) -> int:
        """Bit i: whether the test holds in scope i."""
        found = 0
        for index, (left, right) in enumerate(zip(self._of(test.left), self._of(test.right), strict=True)):
            if compare(test.op, left, right):
                found |= 1 << index
        return found

    def _of(self, expr: Expr) -> list[Json]:
        if expr not in self._known:
            self._known[expr] = [value_or_nothing(expr, scope) for scope in self._scopes]
        return self._known[expr]


def _candidates(positive: Sequence[Scope], negative: Sequence[Scope], extra: Sequence[Expr]) -> Iterable[Test]:
    seeds = [*positive[:2], *negative[:3]]
    seen: dict[Test, None] = {}
    for scope in seeds:
        for atom in atoms_of(scope, extra):
            # a record hashes by its content
            seen.setdefault(atom)
            if len(seen) >= _MOST_ATOMS:
                return seen
    return seen


def atoms_of(scope: Scope, extra: Sequence[Expr] = ()) -> Iterable[Test]:
    """Tests suggested by one scope: equalities that hold in it, with their opposites, existence, order of numbers."""
    found = addresses(scope)
    scalars = [address for address in found if _scalar(address.value)]
    for address in scalars:
        if _category(address.value):
            yield Test(op="==", left=address.expr, right=Const(value=address.value))
            yield Test(op="!=", left=address.expr, right=Const(value=address.value))
    by_value: dict[tuple[type, Json], list[Address]] = {}
    for address in scalars:
        by_value.setdefault((type(address.value), address.value), []).append(address)
    for group in by_value.values():
        for index, left in enumerate(group[:12]):
            for right in group[index + 1 : 12]:
                yield Test(op="==", left=left.expr, right=right.expr)
                yield Test(op="!=", left=left.expr, right=right.expr)
    for address in found:
        yield Test(op="missing", left=address.expr)
        yield Test(op="exists", left=address.expr)
    yield from _orders(found, extra)


def _orders(found: Sequence[Address], extra: Sequence[Expr]) -> Iterable[Test]:
    terms: list[Expr] = [*extra, *(term.expr for term in numbers(found))][:_MOST_NUMBERS]
    for left in terms:
        yield Test(op="<", left=left, right=Const(value=0))
        yield Test(op="<", left=Const(value=0), right=left)
        yield Test(op="==", left=left, right=Const(value=0))
        yield Test(op="!=", left=left, right=Const(value=0))
    for left in terms:
        for right in terms:
            if left is not right:
                yield Test(op="<", left=left, right=right)
                yield Test(op="<=", left=left, right=right)
                yield Test(op="!=", left=left, right=right)


def _scalar(value: Json) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _category(value: Json) -> bool:
    """Whether a value may be a kind of thing. A text with digits is an id or a date: equal by chance, not by rule."""
    if isinstance(value, str):
        return not any(char.isdigit() for char in value)
    return isinstance(value, bool) or value is None
