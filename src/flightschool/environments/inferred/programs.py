"""A tool as it was inferred: guards that end in errors, the answer otherwise, and what the answer changes."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from flightschool.environments.inferred.database import Base, Database
from flightschool.environments.inferred.language import Expr, Missing, Scope, Some, Truth, evaluate, holds, offenders
from flightschool.records import Json, Record

__all__ = ["Answer", "Outcome", "Program", "Put", "absorb", "run", "scope_of"]

_LEAST_ALIKE = 0.7


class Outcome(Record, frozen=True, kw_only=True):
    """One way in which a call ends."""

    test: Truth
    """Holds when the call ends so; the element that offends it, if it asks for one, is ``item`` in the answer."""
    answer: Expr
    is_error: bool


class Put(Record, frozen=True, kw_only=True):
    """The answer of a successful write is the row as it is from then on."""

    table: str
    field: str
    """Field of the answer that holds the row's key."""


class Program(Record, frozen=True, kw_only=True):
    """What was inferred of one tool."""

    tool: str
    outcomes: tuple[Outcome, ...]
    """In the order in which they are tried."""
    puts: tuple[Put, ...] = ()
    num_cases: int
    """Distinct recorded calls that it was inferred from."""
    num_explained: int
    """Of these, those that it answers as recorded."""


class Answer(NamedTuple):
    """What a program answers."""

    value: Json
    is_error: bool


def scope_of(arguments: dict[str, Json], database: Database) -> Scope:
    """The scope of a call."""
    return {"args": arguments, "db": database}


def run(program: Program, arguments: dict[str, Json], database: Database) -> Answer | None:
    """The answer to a call, or None where the program does not know one. Changes nothing."""
    scope = dict(scope_of(arguments, database))
    last = program.outcomes[-1]
    with contextlib.suppress(Missing):  # the guards may still say why there is no such answer
        scope["out"] = evaluate(last.answer, scope)
    for outcome in program.outcomes:
        inner = scope
        if isinstance(outcome.test, Some):
            item = next(offenders(outcome.test, scope), None)
            if item is None:
                continue
            inner = {**scope, "item": item}
        elif not holds(outcome.test, scope):
            continue
        try:
            plain = {key: value for key, value in inner.items() if key != "out" or outcome.is_error}
            return Answer(evaluate(outcome.answer, plain), outcome.is_error)
        except Missing:
            return None
    return None


def find_put(value: Json, base: Base, database: Database) -> tuple[Put, str] | None:
    """Whether an answer is a row of a table, and of which key."""
    if not isinstance(value, dict):
        return None
    for table, field in base.key_fields.items():
        key = value.get(field)
        if not field or not isinstance(key, str | int) or isinstance(key, bool):
            continue
        known = (
            database.row(table, str(key)) if database.has(table, str(key)) else next(iter(base.tables[table].values()))
        )
        if isinstance(known, dict) and sum(name in value for name in known) >= _LEAST_ALIKE * len(known):
            return Put(table=table, field=field), str(key)
    return None


def absorb(value: Json, puts: tuple[Put, ...], database: Database) -> None:
    """Take the answer of a successful write into the state."""
    for put in puts:
        if isinstance(value, dict) and isinstance(value.get(put.field), str | int):
            key = str(value[put.field])
            old = database.row(put.table, key) if database.has(put.table, key) else {}
            database.put(put.table, key, {**old, **value} if isinstance(old, dict) else value)
