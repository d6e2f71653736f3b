"""Tables of the desk, and the canonical image of a state.

A state is a small SQLite database. ``Connection.serialize`` alone is not canonical: its header counts transactions and
deleted rows leave traces. The canonical image is therefore made anew from the start state: in one transaction, each
table whose rows differ from the start is emptied and filled in primary-key order. What is written, and in which order,
depends on the start and on the present rows alone, so equal states give equal bytes.

A fresh connection parses the schema of its image before its first statement, and each attempt opens three (its world,
the canonical image, the grader): an image therefore holds only the tables that its family's tools can reach. Using
connections again is no way out: ``deserialize`` frees the parsed schema under compiled statements, which then crash.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

__all__ = ["TABLES", "Cell", "Rows", "StartState", "open_image"]

Cell = str | int | None
Rows = Mapping[str, Sequence[Mapping[str, Cell]]]
"""Table → rows; columns left out are null."""

TABLES: dict[str, str] = {
    "assets": "id TEXT PRIMARY KEY, zone TEXT, owner TEXT, backup TEXT, spare TEXT, supplier TEXT, lock TEXT, "
    "state TEXT",
    "alerts": "id TEXT PRIMARY KEY, asset TEXT, level TEXT, code TEXT, person TEXT, task TEXT, advice TEXT, "
    "taken_by TEXT, state TEXT",
    "orders": "id TEXT PRIMARY KEY, asset TEXT, task TEXT, technician TEXT, lead TEXT, helper TEXT, day TEXT, "
    "level TEXT, part TEXT, bin TEXT, hours INTEGER, value INTEGER, code TEXT, state TEXT",
    "parts": "id TEXT PRIMARY KEY, asset TEXT, supplier TEXT, main TEXT, second TEXT, bin TEXT, stock INTEGER, "
    "price INTEGER, state TEXT",
    "permits": 'id TEXT PRIMARY KEY, "order" TEXT, zone TEXT, entry TEXT, exit TEXT, holder TEXT, day TEXT, state TEXT',
    "technicians": "id TEXT PRIMARY KEY, skill TEXT, shift TEXT, free TEXT, deputy TEXT, state TEXT",
    "plans": "id TEXT PRIMARY KEY, task TEXT, first TEXT, second TEXT, hours INTEGER, level TEXT",
    "readings": "id TEXT PRIMARY KEY, temp INTEGER, flow INTEGER, speed INTEGER, top INTEGER",
    "reservations": 'part TEXT, "order" TEXT, PRIMARY KEY (part, "order")',
    "purchases": "id TEXT PRIMARY KEY, part TEXT, supplier TEXT",
    "bookings": "person TEXT, day TEXT, PRIMARY KEY (person, day)",
    "notices": "id TEXT PRIMARY KEY, person TEXT, about TEXT",
    "approvals": "id TEXT PRIMARY KEY, action TEXT, subject TEXT, state TEXT",
    "rulings": "action TEXT, subject TEXT, state TEXT, PRIMARY KEY (action, subject)",
    "declines": "id TEXT PRIMARY KEY, reason TEXT, grounds TEXT",
}
"""Table → columns. ``rulings`` holds what the supervisor would answer; no tool reads it directly."""

_PAGE_BYTES = 1024  # tables hold a handful of rows; small pages keep an image near 20 KB


@cache
def _blank(tables: frozenset[str]) -> bytes:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
    for table, columns in TABLES.items():
        if table in tables:
            connection.execute(f"CREATE TABLE {table} ({columns}) STRICT, WITHOUT ROWID")
    image = connection.serialize()
    connection.close()
    return image


def open_image(image: bytes) -> sqlite3.Connection:
    """An in-memory database holding ``image``, in autocommit mode."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.deserialize(image)
    return connection


class StartState:
    """A state that many attempts start from: its canonical image, and its rows.

    Args:
        rows: the rows, by table.
        tables: tables that the image holds beside those of the rows; all tables by default.
    """

    def __init__(self, rows: Rows, tables: Iterable[str] = TABLES) -> None:
        self.tables: frozenset[str] = frozenset((*tables, *rows))
        connection = open_image(_blank(self.tables))
        connection.execute("BEGIN")
        for table, entries in rows.items():
            for entry in entries:
                columns = ",".join(f'"{column}"' for column in entry)
                marks = ",".join("?" * len(entry))
                connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(entry.values()))
        connection.execute("COMMIT")
        self.image: bytes = connection.serialize()
        self._rows = {table: _rows(connection, table) for table in self.tables}
        connection.close()

    def canonical_image(self, connection: sqlite3.Connection, touched: Iterable[str]) -> bytes:
        """The present state of ``connection`` as bytes.

        Args:
            connection: a database that began as this start state.
            touched: tables that were written to; others are known to be as they were.
        """
        present = {table: _rows(connection, table) for table in sorted(touched)}
        changed = {table: rows for table, rows in present.items() if rows != self._rows[table]}
        if not changed:
            return self.image
        copy = open_image(self.image)
        copy.execute("BEGIN")
        for table, rows in changed.items():
            copy.execute(f"DELETE FROM {table}")
            if rows:
                copy.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(rows[0]))})", rows)
        copy.execute("COMMIT")
        image = copy.serialize()
        copy.close()
        return image


def _rows(connection: sqlite3.Connection, table: str) -> list[tuple[Cell, ...]]:
    """All rows in primary-key order, which is the order of a table without rowids."""
    return connection.execute(f"SELECT * FROM {table}").fetchall()
