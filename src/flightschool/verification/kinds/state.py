"""The end state is an expected one, table by table, with places that do not count."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

import msgspec

from flightschool.records import Json, StateCheck
from flightschool.verification.comparing import comparison_problem, differences
from flightschool.verification.images import OverBudgetError, QueryFailedError, broken_state, json_state, query, table
from flightschool.verification.kinds.base import Finding, Kind
from flightschool.verification.states import States

__all__ = ["STATE", "leaves"]


def _judge(rule: StateCheck, states: States) -> Finding:
    try:
        wrong = _sqlite(rule, states) if states.are_sqlite else _json(rule, states)
    except OverBudgetError as error:
        return Finding(False, f"too much to compare: {error}")
    except QueryFailedError as error:
        return Finding(False, f"a table of the end state cannot be read: {error}")
    return Finding(not wrong, "; ".join(wrong[:8]) or "as expected")


def _sqlite(rule: StateCheck, states: States) -> list[str]:
    wrong = []
    end = states.end()
    tables = {name for (name,) in query(end, "SELECT name FROM main.sqlite_master WHERE type = 'table'")}
    for name, expected in rule.expected.items():
        if name not in tables:
            wrong.append(f"{name}: no such table")
            continue
        found = {name: _rows(end, name)}
        wrong += map(str, differences(found, {name: _as_sqlite(expected)}, rule.compare))
    return wrong + _unnamed(rule, states)


def _rows(connection: sqlite3.Connection, name: str) -> list[Json]:
    columns, rows = table(connection, name)
    return [{c: _plain(value) for c, value in zip(columns, row, strict=True)} for row in rows]


def _plain(value: Json) -> Json:
    return value.hex() if isinstance(value, bytes) else value


def _as_sqlite(value: Json) -> Json:
    """SQLite has no booleans: they are stored as 0 and 1."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, dict):
        return {key: _as_sqlite(inner) for key, inner in value.items()}
    return [_as_sqlite(inner) for inner in value] if isinstance(value, list | tuple) else value


def _json(rule: StateCheck, states: States) -> list[str]:
    try:
        end = json_state(states.evidence.end_state)
    except RecursionError as error:
        raise broken_state(f"the state is nested too deeply: {error}") from error
    subset = {name: end[name] for name in rule.expected if name in end}
    return [str(d) for d in differences(subset, rule.expected, rule.compare)] + _unnamed(rule, states)


def _unnamed(rule: StateCheck, states: States) -> list[str]:
    """Changes of tables that the expected state does not name; ignored places are looked for in whole tables only."""
    if rule.unnamed == "ignored":
        return []
    return [
        f"{name}: {change}, expected as before"
        for name, change in sorted(states.changes().items())
        if change.total and name not in rule.expected and name not in rule.compare.ignore
    ]


def _problem(rule: StateCheck) -> str:
    if not rule.expected and rule.unnamed == "ignored":
        return "no table is compared, so every state would pass"
    try:
        json.dumps(msgspec.to_builtins(rule.expected), allow_nan=False)
    except ValueError:
        return "an expected value is NaN or infinite"
    unseen = [name for name in rule.expected if name in rule.compare.ignore]
    if unseen:
        return f"table {unseen[0]!r} is expected and ignored"
    return comparison_problem(rule.compare, rule.expected)


def _expected(rule: StateCheck) -> Iterator[Json]:
    return leaves(rule.expected)


def leaves(value: Json) -> Iterator[Json]:
    """All values of a JSON value that are neither objects nor lists."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


STATE = Kind(_judge, _problem, _expected)
