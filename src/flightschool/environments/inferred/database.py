"""A JSON state as rows that can be looked up, changed and forked cheaply.

Tables are objects of rows by key, or lists of rows of which one field is unique (that field is their key). Rows are
never changed in place: a change puts another row into the overlay, so that a fork copies only what was changed. What
has no keys is kept whole; inferred tools do not see it, code does.
"""

from __future__ import annotations

import copy
import itertools
import json
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from flightschool.digest import canonical_json
from flightschool.errors import InfrastructureError
from flightschool.records import Json

__all__ = ["Base", "Database"]

_GONE: Any = object()
_REMOVED: Any = object()
"""What stands in the overlay for a row that is no more."""
_SAMPLE = 60
_LEAST_SAMPLE = 8


class Base:
    """The initial state, shared by all worlds. Immutable.

    Args:
        tables: name → content as it is in the state folder.
    """

    def __init__(self, tables: Mapping[str, Json]) -> None:
        self.contents: Mapping[str, Json] = dict(tables)
        self.tables: dict[str, Mapping[str, Json]] = {}
        self.key_fields: dict[str, str] = {}
        self._frozen: dict[str, bytes] = {}
        for name, content in tables.items():
            rows, field = _keyed(content)
            if rows is not None:
                self.tables[name] = rows
                self.key_fields[name] = field

        self._collections: dict[tuple[str, ...], bool] = {}

    def open(self) -> Database:
        """A fresh state."""
        return Database(self, {})

    def copy(self, table: str) -> Json:
        """A table as it is in the state folder, to be changed by whoever asked."""
        if table not in self._frozen:
            self._frozen[table] = pickle.dumps(self.contents[table], pickle.HIGHEST_PROTOCOL)
        return pickle.loads(self._frozen[table])  # our own pickle of a JSON value, made in this process

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

    def __init__(
        self, base: Base, changed: dict[str, dict[str, Json]], whole: Mapping[str, Json] | None = None
    ) -> None:
        self.base = base
        self._changed = changed
        self._whole = dict(whole or {})

    def has_table(self, table: str) -> bool:
        """Whether the state has this table."""
        return table in self.base.tables or table in self._changed

    def tables(self) -> tuple[str, ...]:
        """Names of all tables."""
        return tuple(dict.fromkeys((*self.base.tables, *self._changed)))

    def row(self, table: str, key: str) -> Json:
        """A row. Raises ``KeyError``."""
        found = self._changed.get(table, {}).get(key, _GONE)
        if found is _REMOVED:
            raise KeyError(key)
        return self.base.tables[table][key] if found is _GONE else found

    def has(self, table: str, key: str) -> bool:
        """Whether there is such a row."""
        found = self._changed.get(table, {}).get(key, _GONE)
        return key in self.base.tables.get(table, {}) if found is _GONE else found is not _REMOVED

    def rows(self, table: str) -> Iterator[tuple[str, Json]]:
        """All rows: those of the initial state in its order, then new ones."""
        changed = self._changed.get(table, {})
        first = self.base.tables.get(table, {})
        for key, row in first.items():
            now = changed.get(key, row)
            if now is not _REMOVED:
                yield key, now
        for key, row in changed.items():
            if key not in first and row is not _REMOVED:
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
        return Database(self.base, dict(self._changed), self._whole)

    def changes(self) -> dict[str, Json]:
        """Table → changed and new rows by key, null for removed ones; every table is named. Whole contents beside."""
        rows: dict[str, Json] = {
            table: {key: None if row is _REMOVED else row for key, row in self._changed.get(table, {}).items()}
            for table in self.tables()
        }
        return {**rows, **self._whole}

    def snapshot(self) -> bytes:
        """Canonical JSON of ``changes``: equal states give equal bytes."""
        return canonical_json(self.changes())

    # -------------------------------------------------------------------------------------------- whole tables

    def names(self) -> tuple[str, ...]:
        """Names of all that the state holds, tables or not."""
        return tuple(dict.fromkeys((*self.base.contents, *self._whole)))

    def content(self, name: str) -> Json:
        """A table in the shape that it has in the state folder, as it is now; a copy. Raises ``KeyError``."""
        if name in self._whole or name not in self.base.tables:
            return copy.deepcopy(self._whole[name]) if name in self._whole else self.base.copy(name)
        content = self.base.copy(name)
        changed = self._changed.get(name, {})
        if changed:
            rows = {key: copy.deepcopy(row) for key, row in self.rows(name)}
            return rows if isinstance(content, dict) else list(rows.values())
        return content

    def settle(self, name: str, content: Json) -> None:
        """Take a table as code left it: changed, new and removed rows, or the whole where there are no keys.

        Raises:
            InfrastructureError: it is no JSON, or its rows have lost their key.
        """
        if name not in self.base.tables:
            if name not in self.base.contents or content != self.base.contents[name]:
                self._whole[name] = _plain(name, content)
            else:
                self._whole.pop(name, None)
            return
        now = _rows_by(content, self.base.key_fields[name], name, isinstance(self.base.contents[name], dict))
        for key in [key for key, _ in self.rows(name) if key not in now]:
            kept = {**self._changed.get(name, {}), key: _REMOVED}
            if key not in self.base.tables[name]:
                del kept[key]
            self._changed = {**self._changed, name: kept}
        for key, row in now.items():
            if not self.has(name, key) or self.row(name, key) != row:
                self.put(name, key, _plain(name, row))


def _rows_by(content: Json, field: str, name: str, by_key: bool) -> dict[str, Json]:
    if by_key and isinstance(content, dict):
        return {str(key): row for key, row in content.items()}
    if not by_key and isinstance(content, list):
        rows = {str(row[field]): row for row in content if isinstance(row, dict) and field in row}
        if len(rows) == len(content):
            return rows
    raise InfrastructureError(
        "code left a table whose rows can no longer be told apart",
        where=f"table {name!r}",
        expected="an object of rows by key" if by_key else f"a list of rows, each with its own {field!r}",
        mend="mend the tool function that changed it",
    )


def _plain(name: str, value: Json) -> Json:
    """The value as JSON, detached from whatever the code keeps of it."""
    try:
        return json.loads(canonical_json(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InfrastructureError(
            f"the state is no longer JSON: {error}",
            where=f"table {name!r}",
            expected="objects, lists, texts, numbers, truth values and null",
            mend="mend the tool function that put it there",
        ) from error
