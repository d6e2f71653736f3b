"""Grouping rows of a file by key without holding the file: a private temporary database that goes with the process.

Formats that write one span or observation a row scatter the rows of an episode over the file. Rows wait here, on disk
once they outgrow a small cache, outside the workspace; an anonymous SQLite file has no name that could be left behind.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

from flightschool.errors import InfrastructureError
from flightschool.records import Json

__all__ = ["Spool"]

_BATCH = 500


class Spool:
    """Rows by key; use it in a ``with`` block.

    Raises:
        InfrastructureError: the temporary disk is full or cannot be written.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("")
        self._database.execute("PRAGMA cache_size = -32768")
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("CREATE TABLE row (number INTEGER PRIMARY KEY, key TEXT NOT NULL, data TEXT NOT NULL)")
        self._waiting: list[tuple[str, str]] = []
        self._indexed = False

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add(self, key: str, row: Json) -> None:
        """Keep one row (JSON)."""
        self._waiting.append((key, json.dumps(row, ensure_ascii=False)))
        if len(self._waiting) >= _BATCH:
            self._flush()

    def rows(self, keys: list[str]) -> Iterator[Json]:
        """The rows of these keys in the order in which they were added to each."""
        self._flush()
        if not self._indexed:
            self._run("CREATE INDEX by_key ON row (key, number)")
            self._indexed = True
        for key in keys:
            for (data,) in self._database.execute("SELECT data FROM row WHERE key = ? ORDER BY number", (key,)):
                yield json.loads(data)

    def _flush(self) -> None:
        try:
            self._database.executemany("INSERT INTO row (key, data) VALUES (?, ?)", self._waiting)
        except sqlite3.Error as error:
            raise _full(error) from error
        self._waiting = []

    def _run(self, statement: str) -> None:
        try:
            self._database.execute(statement)
        except sqlite3.Error as error:
            raise _full(error) from error


def _full(error: sqlite3.Error) -> InfrastructureError:
    return InfrastructureError(
        f"rows cannot be set aside: {error}",
        where="the folder for temporary files",
        expected="room for about the size of the trace file",
        mend="set TMPDIR (or SQLITE_TMPDIR) to a disk with more room",
    )
