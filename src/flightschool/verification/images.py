"""End states as verifiers read them: SQLite images in a sealed connection, JSON objects as they are.

A connection here can read and do nothing else: an authorizer refuses every action but reading, the database is a
private copy in memory, and a query is cut after a fixed number of steps of SQLite's virtual machine: counted steps, not
seconds, so that the cut falls at the same place on every machine.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from flightschool.errors import InfrastructureError
from flightschool.records import Json

__all__ = [
    "MAX_ROWS",
    "MAX_STEPS",
    "OverBudgetError",
    "QueryFailedError",
    "UnknownColumnError",
    "is_sqlite",
    "json_state",
    "query",
    "sealed",
    "table",
]

MAX_STEPS = 5_000_000
"""Steps of SQLite's virtual machine that one query may take (some tenths of a second)."""
MAX_ROWS = 10_000
"""Rows that one query of a check may return."""

Row: TypeAlias = tuple[Json, ...]

_MAGIC = b"SQLite format 3\x00"
_STEP = 10_000
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_FORBIDDEN_FUNCTIONS = frozenset({"load_extension", "random", "randomblob", "zeroblob"})
_DATA_ERRORS = frozenset(
    {
        sqlite3.SQLITE_ERROR,  # such as text that is no JSON in json_extract, or a table that is gone
        sqlite3.SQLITE_INTERRUPT,  # out of steps
        sqlite3.SQLITE_TOOBIG,
        sqlite3.SQLITE_MISMATCH,
    }
)
"""Errors of a query that its *data* can cause; all others mean that the image or this process is broken."""


class QueryFailedError(Exception):
    """A query could not be answered on this state, for a reason that can lie in the data."""


def is_sqlite(state: bytes) -> bool:
    """Whether the state is an SQLite image."""
    return state.startswith(_MAGIC)


class UnknownColumnError(QueryFailedError):
    """A query names a column that no row has, where rows alone say which columns there are."""


class OverBudgetError(QueryFailedError):
    """A query took too many steps, or returned too many rows."""


@contextmanager
def sealed(
    end_state: bytes, initial_state: bytes | None = None, *, guarded: bool = True
) -> Iterator[sqlite3.Connection]:
    """A read-only connection to ``end_state`` (schema ``main``) and, if given, the initial one (schema ``initial``).

    Args:
        end_state: image of the end state.
        initial_state: image of the initial state.
        guarded: whether an authorizer stands guard, as it must wherever queries of checks run. This package's own
            comparisons do without: it asks Python about every column of every statement.

    Raises:
        InfrastructureError: an image is not a usable SQLite database.
    """
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        try:
            _load(connection, end_state, "main")
            if initial_state is not None:
                connection.execute("ATTACH ':memory:' AS initial")
                _load(connection, initial_state, "initial")
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
        except sqlite3.Error as error:
            raise broken_state(f"the state is not a usable SQLite image: {error}") from error
        if guarded:
            connection.set_authorizer(_authorize)
        yield connection
    finally:
        connection.close()


def _load(connection: sqlite3.Connection, state: bytes, schema: str) -> None:
    if not is_sqlite(state):
        raise broken_state("the state is not an SQLite image")
    connection.deserialize(state, name=schema)
    connection.execute(f"SELECT count(*) FROM {schema}.sqlite_master").fetchone()


def _authorize(action: int, first: str | None, second: str | None, _schema: str | None, _inner: str | None) -> int:
    if action == sqlite3.SQLITE_UPDATE and first == "sqlite_master":
        return sqlite3.SQLITE_OK  # how SQLite declares json_each and its like; a real update is stopped by query_only
    if action not in _ALLOWED:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and (second or first or "").lower() in _FORBIDDEN_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def query(
    connection: sqlite3.Connection, text: str, *, max_rows: int = MAX_ROWS, max_steps: int = MAX_STEPS
) -> Sequence[Row]:
    """All rows of a query.

    Raises:
        QueryFailedError: too many steps or rows, or an error that data can cause.
        InfrastructureError: the query does more than read, or the image is corrupt.
    """
    left = max_steps // _STEP

    def count() -> int:
        nonlocal left
        left -= 1
        return left <= 0

    connection.set_progress_handler(count, _STEP)
    try:
        cursor = connection.execute(text)
        rows = cursor.fetchmany(max_rows + 1)
        cursor.close()
    except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code in _DATA_ERRORS:
            if code == sqlite3.SQLITE_INTERRUPT:
                raise OverBudgetError(f"more than {max_steps} steps") from error
            raise QueryFailedError(str(error)) from error
        raise broken_state(f"a query cannot be run: {error}", where=text[:200]) from error
    finally:
        connection.set_progress_handler(None, 0)
    if len(rows) > max_rows:
        raise OverBudgetError(f"more than {max_rows} rows")
    return rows


def table(connection: sqlite3.Connection, name: str) -> tuple[Sequence[str], Sequence[Row]]:
    """Names of the columns and all rows of a table of the end state.

    Raises:
        QueryFailedError: more rows than a check may read, or an error that data can cause.
        InfrastructureError: the image is corrupt.
    """
    quoted = '"' + name.replace('"', '""') + '"'
    rows = query(connection, f"SELECT * FROM main.{quoted}")
    described = connection.execute(f"SELECT * FROM main.{quoted} LIMIT 0").description
    return [column[0] for column in described], rows


def json_state(state: bytes) -> dict[str, Json]:
    """A state that is a JSON object: top-level keys are its tables.

    Raises:
        InfrastructureError: it is neither SQLite nor a JSON object.
    """
    try:
        value = json.loads(state)
    except (ValueError, RecursionError) as error:
        raise broken_state(f"the state is neither an SQLite image nor JSON: {error}") from error
    if not isinstance(value, dict):
        raise broken_state(f"the state is JSON, but a {type(value).__name__}")
    return value


def broken_state(problem: str, where: str = "evidence") -> InfrastructureError:
    """Evidence, or a check, that cannot be judged."""
    return InfrastructureError(
        problem,
        where=where,
        expected="an SQLite image (sqlite3.Connection.serialize) or a JSON object, and checks that only read",
        mend="check what the environment's snapshot() returns and the query of the check",
    )
