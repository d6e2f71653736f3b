"""Tables of the desk, and the canonical image of a state.

A state is a small SQLite database. ``Connection.serialize`` alone is not canonical: its header counts transactions and
deleted rows leave traces. The canonical image is therefore made anew: all rows in primary-key order are
inserted into one blank database in one transaction, so equal rows give equal bytes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

__all__ = ["TABLES", "Cell", "Rows", "canonical_image", "image_of_rows", "open_image", "rows_of"]

Cell = str | int | None
Rows = Mapping[str, Sequence[Mapping[str, Cell]]]
"""Table → rows; columns left out are null."""

TABLES: dict[str, str] = {
    "assets": "id TEXT PRIMARY KEY, zone TEXT, owner TEXT, backup TEXT, spare TEXT, supplier TEXT, lock TEXT, state TEXT",
    "alerts": "id TEXT PRIMARY KEY, asset TEXT, level TEXT, code TEXT, person TEXT, task TEXT, advice TEXT, "
    "taken_by TEXT, state TEXT",
    "orders": 'id TEXT PRIMARY KEY, asset TEXT, task TEXT, technician TEXT, lead TEXT, helper TEXT, day TEXT, '
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
def _blank() -> bytes:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
    for table, columns in TABLES.items():
        connection.execute(f"CREATE TABLE {table} ({columns}) STRICT, WITHOUT ROWID")
    image = connection.serialize()
    connection.close()
    return image


def open_image(image: bytes) -> sqlite3.Connection:
    """An in-memory database holding ``image``, in autocommit mode."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.deserialize(image)
    return connection


def rows_of(connection: sqlite3.Connection) -> Iterator[tuple[str, list[tuple[Cell, ...]]]]:
    """Each table with its rows in primary-key order."""
    for table in TABLES:
        yield table, connection.execute(f"SELECT * FROM {table}").fetchall()  # without rowid: the key is the order


def canonical_image(connection: sqlite3.Connection) -> bytes:
    """The state as bytes: equal rows give equal bytes, however they came about."""
    blank = open_image(_blank())
    blank.execute("BEGIN")
    for table, rows in rows_of(connection):
        if rows:
            marks = ",".join("?" * len(rows[0]))
            blank.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    blank.execute("COMMIT")
    image = blank.serialize()
    blank.close()
    return image


def image_of_rows(rows: Rows) -> bytes:
    """The canonical image of a state given as rows."""
    connection = open_image(_blank())
    for table, entries in rows.items():
        for entry in entries:
            columns = ",".join(f'"{column}"' for column in entry)
            marks = ",".join("?" * len(entry))
            connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(entry.values()))
    image = canonical_image(connection)
    connection.close()
    return image
