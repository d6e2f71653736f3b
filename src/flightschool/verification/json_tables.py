"""States that are JSON objects, as tables that queries of checks can be asked of.

Each top-level key whose value is a list of objects, or an object of objects, is a table; whatever else stands there is
none. Columns are the keys that rows have *in either state* of the evidence, so that a query means the same of a table
whose rows lost a key. Of an object of objects the key becomes the column ``id``, unless rows have one of that name.
Nested values are JSON text, for ``json_extract``; booleans are 0 and 1. A table without a row in either state has every
column that is asked of it: there is nothing that it could be wrong about.

Names that differ by case alone are one name to SQLite: the later one gets a number, ``Name_2``. What SQLite has no room
for is left out (columns beyond its limit, names that begin with ``sqlite_``): a state that a policy wrote must be able
to fail a check, never to break it.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import lru_cache

from flightschool.records import Json
from flightschool.verification.images import (
    QueryFailedError,
    Row,
    UnknownColumnError,
    broken_state,
    json_state,
    query,
    sealed,
)

__all__ = ["query_json"]

_MISSING = re.compile(r"no such column: (.+)", re.DOTALL)
_MOST_COLUMNS = 2_000
"""SQLite's own limit, where it was not built with another."""
_MOST_ADDED = 64
"""Columns that one query may ask of tables without rows."""
_LARGEST = 1 << 63


def query_json(state: bytes, other: bytes, text: str) -> Sequence[Row]:
    """All rows of a query on a JSON state.

    Args:
        state: the state.
        other: the other state of the evidence; only names of columns are taken from it.
        text: the query.

    Raises:
        UnknownColumnError: it names a column that no row of its tables has.
        QueryFailedError, InfrastructureError: as ``images.query``; and where the state is no JSON object.
    """
    added: tuple[str, ...] = ()
    while True:
        with sealed(_image(state, other, added)) as connection:
            try:
                return query(connection, text)
            except QueryFailedError as error:
                missing = _MISSING.fullmatch(str(error))
                if missing is None:
                    raise
                name = missing[1].rsplit(".", 1)[-1]
                if name in added or len(added) == _MOST_ADDED or not _rowless(state, other):
                    raise UnknownColumnError(str(error)) from error
        added = (*added, name)


@lru_cache(maxsize=4)
def _image(state: bytes, other: bytes, added: tuple[str, ...]) -> bytes:
    """The SQLite image of a JSON state. ``added``: columns of tables without rows."""
    tables, others = _tables(state), _tables(other)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 1")  # what holds nothing at all has no image
        connection.execute("BEGIN")
        for name, table in _distinct(name for name in tables if not name.lower().startswith("sqlite_")).items():
            rows = tables[name]
            beside = others.get(name, [])
            keys = [key for row in (*rows, *beside) for key in row]
            columns = _distinct(("id", *added) if not keys else dict.fromkeys(keys))
            _fill(connection, table, dict(list(columns.items())[:_MOST_COLUMNS]), rows)
        connection.execute("COMMIT")
        return connection.serialize()


def _fill(
    connection: sqlite3.Connection, table: str, columns: Mapping[str, str], rows: Iterable[Mapping[str, Json]]
) -> None:
    names = ", ".join(_quoted(column) for column in columns.values())
    connection.execute(f"CREATE TABLE {_quoted(table)} ({names})")
    places = ", ".join("?" * len(columns))
    cells = ([_cell(row.get(key)) for key in columns] for row in rows)
    connection.executemany(f"INSERT INTO {_quoted(table)} VALUES ({places})", cells)


def _tables(state: bytes) -> dict[str, list[dict[str, Json]]]:
    """Name → rows of what is a table."""
    found: dict[str, list[dict[str, Json]]] = {}
    for name, value in json_state(state).items():
        rows = list(value.values()) if isinstance(value, dict) else value
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            continue
        named = any(key.lower() == "id" for row in rows for key in row)
        found[name] = (
            [{"id": key, **row} for key, row in value.items()] if isinstance(value, dict) and not named else rows
        )
    return found


def _rowless(state: bytes, other: bytes) -> bool:
    """Whether some table of the state has no row, neither in it nor in the other one."""
    others = _tables(other)
    return any(not rows and not others.get(name) for name, rows in _tables(state).items())


def _distinct(names: Iterable[str]) -> dict[str, str]:
    """Name → the name that SQLite knows it by."""
    made: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        plain = shown = _text(name).replace("\x00", "\N{REPLACEMENT CHARACTER}")
        number = 1
        while shown.lower() in taken:
            number += 1
            shown = f"{plain}_{number}"
        taken.add(shown.lower())
        made[name] = shown
    return made


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _cell(value: Json) -> Json:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):  # booleans among them
        return int(value) if -_LARGEST <= value < _LARGEST else str(value)
    return _nested(value) if isinstance(value, dict | list) else value


def _nested(value: Json) -> str:
    try:
        return _text(json.dumps(value, ensure_ascii=False))
    except RecursionError as error:
        raise broken_state(f"the state is nested too deeply: {error}") from error


def _text(value: str) -> str:
    """Without halves of surrogate pairs, which JSON can hold and UTF-8 cannot."""
    return value.encode("utf-8", "replace").decode()
