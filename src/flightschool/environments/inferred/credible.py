"""Which programs may answer.

A program that explains every recording can still be an accident of few recordings. Believed are those that look their
answer up in the state; and, without it, answers that are always the same, arithmetic, and what a write says about its
own arguments. A read that makes up an object of constants is not believed: it would answer for things that do not
exist.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from flightschool.environments.inferred.language import Const, Expr, Reckoned, Row, Rows
from flightschool.environments.inferred.programs import Program

__all__ = ["credible", "parts"]

_LEAST_SHARE = 0.9
_LEAST_CASES = 3
_LEAST_CONSTANT = 5


def credible(program: Program, *, writes: bool) -> bool:
    """Whether a program may answer.

    Args:
        program: what was inferred.
        writes: whether its tool changes something.
    """
    if program.num_explained < _LEAST_SHARE * program.num_cases:
        return False
    answer = program.outcomes[-1].answer
    if any(isinstance(part, Row | Rows) for part in parts(answer)):
        return program.num_explained >= _LEAST_CASES
    if isinstance(answer, Const):
        return program.num_explained >= _LEAST_CONSTANT
    if isinstance(answer, Reckoned):
        return program.num_explained >= _LEAST_CASES
    return writes and program.num_explained >= _LEAST_CASES


def parts(expr: Expr) -> Iterator[Expr]:
    """An expression and all that it is made of."""
    yield expr
    for field in expr.__struct_fields__:
        value = getattr(expr, field)
        children: tuple[object, ...] = ()
        if isinstance(value, msgspec.Struct):
            children = (value,)
        elif isinstance(value, tuple):
            children = value
        elif isinstance(value, dict):
            children = tuple(value.values())
        for child in children:
            if isinstance(child, msgspec.Struct):
                yield from parts(child)  # type: ignore[arg-type]  # tests are walked for the expressions in them
