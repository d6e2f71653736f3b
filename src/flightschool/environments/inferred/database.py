"""A JSON state as rows that can be looked up, changed and forked cheaply.

Tables are objects of rows by key, or lists of rows of which one field is unique (that field is their key). Rows are
never changed in place: a change puts another row into the overlay, so that a fork copies only what was changed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from flightschool.digest import canonical_json
from flightschool.records import Json

__all__ = ["Base", "Database"]

_GONE: Any = object()
_SAMPLE = 60
_LEAST_SAMPLE = 8


class Base:
    """The initial state, shared by all worlds. Immutable.

    Args:
        tables: name → content as it is in the state folder.
    """

    def __init__(self, tables: Mapping[str, Json]) -> None:
        self.tables: dict[str, Mapping[str, Json]] = {}
        self.key_fields: dict[str, str] = {}
        for name, content in tables.items():
            rows, field = _keyed(content)
            if rows is not None:
                self.tables[name] = rows
                self.key_fields[name] = field

        self._collections: dict[tuple[str, ...], bool] = {}

    def open(self) -> Database:
        """A fresh state."""
        return Database(self, {})

    def is_collection(self, table: str, path: tuple[str, ...]) -> bool:
        """Whether the object at a path of the table's rows has keys that are data: no two rows have the same ones."""
        place = (table, *path)
        if place not in self._collections:
            rows = [_at(row, path) for row in itertools.islice(self.tables.get(table, {}).values(), _SAMPLE)]
            objects = [row for row in rows if isinstance(row, dict) and row]
            counts = Counter(key for row in objects for key in row)
            rare = sum(count <= len(objects) / 4 for count in counts.values())
            self._collections[place] = len(objects) >= _LEAST_SAMPLE and 2 * rare > len(counts)
        return self._collections[place]


def _at(value: Json, path: tuple[str, ...]) -> Json:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _keyed(content: Json) -> tuple[dict[str, Json] | None, str]:
    """Rows by key, and the field of a row that holds its key (empty: none does)."""
    if isinstance(content, dict):
        rows = {str(key): row for key, row in content.items()}
        objects = {key: row for key, row in rows.items() if isinstance(row, dict)}
        if not rows:
            return rows, ""
        first = next(iter(objects.values()), {})
        named = [f for f in first if len(objects) == len(rows) and all(r.get(f) == k for k, r in objects.items())]
        return rows, next(iter(named), "")
    if isinstance(content, list) and content and all(isinstance(row, dict) for row in content):
        for field in content[0]:
            values = [row.get(field) for row in content]
            plain = all(isinstance(value, str | int) and not isinstance(value, bool) for value in values)
            if plain and len({str(value) for value in values}) == len(values):
                return {str(row[field]): row for row in content}, field
    return None, ""


class Database:
    """One attempt's state."""

    def __init__(self, base: Base, changed: dict[str, dict[str, Json]]) -> None:
        self.base = base
        self._changed = changed

    def has_table(self, table: str) -> bool:
        """Whether the state has this table."""
        return table in self.base.tables or table in self._changed

    def tables(self) -> tuple[str, ...]:
        """Names of all tables."""
        return tuple(dict.fromkeys((*self.base.tables, *self._changed)))

    def row(self, table: str, key: str) -> Json:
        """A row. Raises ``KeyError``."""
        found = self._changed.get(table, {}).get(key, _GONE)
        return self.base.tables[table][key] if found is _GONE else found

    def has(self, table: str, key: str) -> bool:
        """Whether there is such a row."""
        return key in self._changed.get(table, {}) or key in self.base.tables.get(table, {})

    def rows(self, table: str) -> Iterator[tuple[str, Json]]:
        """All rows: those of the initial state in its order, then new ones."""
        changed = self._changed.get(table, {})
        first = self.base.tables.get(table, {})
        for key, row in first.items():
            yield key, changed.get(key, row)
        for key, row in changed.items():
            if key not in first:
                yield key, row

    def put(self, table: str, key: str, row: Json) -> None:
        """Put a row; one that is equal to the initial row counts as unchanged."""
        changed = dict(self._changed.get(table, {}))
        if self.base.tables.get(table, {}).get(key, _GONE) == row:
            changed.pop(key, None)
        else:
            changed[key] = row
        self._changed = {**self._changed, table: changed}

    def fork(self) -> Database:
        """An independent copy."""
        return Database(self.base, dict(self._changed))

    def changes(self) -> dict[str, dict[str, Json]]:
        """Table → changed and new rows by key; every table is named."""
        return {table: dict(self._changed.get(table, {})) for table in self.tables()}

    def snapshot(self) -> bytes:
        """Canonical JSON of ``changes``: equal states give equal bytes."""
        return canonical_json(self.changes())
