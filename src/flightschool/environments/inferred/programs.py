"""A tool as it was inferred: guards that end in errors, the answer otherwise, and what the answer changes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import NamedTuple

from flightschool.environments.inferred.database import Base, Database
from flightschool.environments.inferred.language import (
    Expr,
    Missing,
    Scope,
    Some,
    Truth,
    evaluate,
    holds,
    offenders,
    shown,
)
from flightschool.records import Json, Record

__all__ = [
    "Answer",
    "Change",
    "Outcome",
    "Program",
    "Put",
    "absorb",
    "find_put",
    "make_changes",
    "run",
    "scope_of",
    "take_effect",
]

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


class Change(Record, frozen=True, kw_only=True):
    """A successful write sets a field of a row, though its answer does not show it."""

    table: str
    key: Expr
    field: str
    value: Expr


class Program(Record, frozen=True, kw_only=True):
    """What was inferred of one tool."""

    tool: str
    outcomes: tuple[Outcome, ...]
    """In the order in which they are tried."""
    puts: tuple[Put, ...] = ()
    changes: tuple[Change, ...] = ()
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


def take_effect(program: Program, arguments: dict[str, Json], value: Json, database: Database) -> None:
    """Take a successful write into the state: the row that its answer is, and the fields that it sets."""
    before = database.fork()
    absorb(value, program.puts, database)
    make_changes(program.changes, {**scope_of(arguments, before), "out": value}, database)


def make_changes(changes: Iterable[Change], scope: Scope, database: Database) -> None:
    """Set the fields that a successful write sets. ``scope``: that of the write, with its answer as ``out``."""
    for change in changes:
        with contextlib.suppress(Missing):
            key, new = shown(evaluate(change.key, scope)), evaluate(change.value, scope)
            row = database.row(change.table, key) if database.has(change.table, key) else None
            if isinstance(row, dict):
                database.put(change.table, key, {**row, change.field: new})


def absorb(value: Json, puts: tuple[Put, ...], database: Database) -> None:
    """Take the answer of a successful write into the state."""
    for put in puts:
        if isinstance(value, dict) and isinstance(value.get(put.field), str | int):
            key = str(value[put.field])
            old = database.row(put.table, key) if database.has(put.table, key) else {}
            database.put(put.table, key, {**old, **value} if isinstance(old, dict) else value)
