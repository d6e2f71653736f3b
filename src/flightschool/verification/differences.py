"""Rows added, removed and changed between two states.

Most tables of most episodes are as they were. An SQLite table whose pages are all the same bytes holds the same rows,
so only tables with a changed page are read. Where SQLite cannot tell which pages a table has, every table is read.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from flightschool.digest import canonical_json
from flightschool.records import Json
from flightschool.verification.images import OverBudgetError, QueryFailedError, Row, json_state, query, sealed

__all__ = ["Change", "json_changes", "sqlite_changes"]

_FEW_ROWS = 2_000
_SMALL_BYTES = 1 << 20
_MOST_PAGES = 100_000
_SMALLEST_PAGE = 512
_DECISIVE = (slice(0, 24), slice(40, 72))
"""Parts of SQLite's file header that say how the rest is read (file format, 1.3)."""


@dataclass(frozen=True)
class Change:
    """How many rows of one table differ."""

    added: int = 0
    removed: int = 0
    changed: int = 0

    @property
    def total(self) -> int:
        """All rows that differ."""
        return self.added + self.removed + self.changed

    def __str__(self) -> str:
        return f"{self.added} added, {self.removed} removed, {self.changed} changed"


# ------------------------------------------------------------------------------------------------ SQLite


@dataclass(frozen=True)
class _Table:
    """A table of an initial state."""

    definition: str
    columns: tuple[str, ...]
    """Names of its columns."""
    key: tuple[int, ...]
    """Columns that identify a row; empty where only the rowid does."""
    rows: Mapping[Row, Row] | None
    """Rows by key, or None for a table that is better compared by SQLite itself."""
    pages: frozenset[int]
    """Numbers of all pages that hold its rows; empty if unknown."""


@dataclass(frozen=True)
class _Initial:
    """What is known of an initial state."""

    tables: Mapping[str, _Table]
    schema_pages: frozenset[int]
    """Pages that hold the definitions of all tables; empty if unknown."""


def sqlite_changes(end: sqlite3.Connection, initial_state: bytes, end_state: bytes) -> Mapping[str, Change]:
    """Changes of all tables of either image; rows are matched by primary key, or by rowid where there is none.

    Args:
        end: the end state, opened.
        initial_state: image before the episode.
        end_state: image after it.

    Raises:
        InfrastructureError: an image is unusable.
        OverBudgetError: the comparison takes too many steps.
    """
    initial = _initial(initial_state)
    before, changed_pages = initial.tables, _changed_pages(initial_state, end_state)
    same_schema = _untouched(initial.schema_pages, changed_pages)
    after = {name: table.definition for name, table in before.items()} if same_schema else _definitions(end)
    if initial_state == end_state:
        return {name: Change() for name in after}
    changes: dict[str, Change] = {}
    large: list[str] = []
    for name in sorted(before.keys() | after.keys()):
        table = before.get(name)
        if table is None or table.definition != after.get(name):  # redefined: no row is what it was
            added = 0 if name not in after else _count(end, name)
            changes[name] = Change(added=added, removed=_count_before(initial_state, name) if table else 0)
            continue
        if same_schema and _untouched(table.pages, changed_pages):
            changes[name] = Change()
            continue
        change = _compare_with_end(end, name, table)
        if change is None:
            large.append(name)
        else:
            changes[name] = change
    if large:
        with sealed(end_state, initial_state, guarded=False) as both:
            changes.update((name, _compare_by_query(both, name, before[name])) for name in large)
    return changes


def _initial(state: bytes) -> _Initial:
    """Facts of an initial state: the same for all attempts at a task, hence kept, fewer where states are large."""
    return _small_initial(state) if len(state) <= _SMALL_BYTES else _large_initial(state)


@lru_cache(maxsize=128)
def _small_initial(state: bytes) -> _Initial:
    return _read_initial(state)


@lru_cache(maxsize=4)
def _large_initial(state: bytes) -> _Initial:
    return _read_initial(state)


def _read_initial(state: bytes) -> _Initial:
    tables: dict[str, _Table] = {}
    with sealed(state, guarded=False) as connection:
        pages = _pages(connection)
        for name, definition in _definitions(connection).items():
            info = query(connection, f"PRAGMA table_info({_quoted(name)})")  # cid, name, type, notnull, default, pk
            key = tuple(row[0] for row in sorted(info, key=lambda row: int(row[5])) if row[5])
            columns = tuple(row[1] for row in info)
            rows = _rows_by_key(connection, name, key)
            tables[name] = _Table(definition, columns, key, rows, pages.get(name, frozenset()))
    schema_pages = pages.get("sqlite_master", frozenset()) | pages.get("sqlite_schema", frozenset())
    return _Initial(tables, schema_pages)


def _pages(connection: sqlite3.Connection) -> dict[str, frozenset[int]]:
    """Table → its pages, from SQLite's own account of them; nothing where it was built without one."""
    try:
        rows = query(connection, "SELECT name, pageno FROM dbstat", max_rows=_MOST_PAGES)
    except QueryFailedError:
        return {}
    pages: dict[str, set[int]] = {}
    for name, number in rows:
        pages.setdefault(name, set()).add(number)
    return {name: frozenset(numbers) for name, numbers in pages.items()}


def _changed_pages(initial_state: bytes, end_state: bytes) -> frozenset[int] | None:
    """Numbers of the pages that differ; None if the two files are not laid out alike.

    Page 1 begins with the header of the file. Of the header, what decides how pages are read must be equal (page size,
    text encoding, version of the schema); counters of transactions and of pages may differ.
    """
    if any(initial_state[part] != end_state[part] for part in _DECISIVE):
        return None
    size = int.from_bytes(initial_state[16:18], "big")
    size = 65536 if size == 1 else size
    if size < _SMALLEST_PAGE:
        return None
    starts = range(size, max(len(initial_state), len(end_state)), size)
    changed = {at // size + 1 for at in starts if initial_state[at : at + size] != end_state[at : at + size]}
    return frozenset(changed if initial_state[100:size] == end_state[100:size] else changed | {1})


def _untouched(pages: frozenset[int], changed: frozenset[int] | None) -> bool:
    """Whether the pages are known, and none of them changed."""
    return bool(pages) and changed is not None and pages.isdisjoint(changed)


def _definitions(connection: sqlite3.Connection) -> dict[str, str]:
    """Table → its definition; SQLite's own tables apart."""
    rows = query(connection, "SELECT name, sql FROM main.sqlite_master WHERE type = 'table'")
    return {name: sql for name, sql in rows if not name.startswith("sqlite_")}


def _rows_by_key(connection: sqlite3.Connection, name: str, key: Sequence[int]) -> Mapping[Row, Row] | None:
    """Rows of a small table by their key; None for a large one."""
    columns = "*" if key else "rowid, *"
    try:
        rows = query(connection, f"SELECT {columns} FROM main.{_quoted(name)}", max_rows=_FEW_ROWS)
    except OverBudgetError:
        return None
    by_key: dict[Row, Row] = {}
    for row in rows:
        row_key = tuple(row[i] for i in key or (0,))
        if None in row_key:  # SQLite lets a primary key be NULL, and then repeat: its n-th such row is matched as n-th
            row_key = next((*row_key, n) for n in range(len(rows)) if (*row_key, n) not in by_key)
        by_key[row_key] = row
    return by_key


def _compare_with_end(end: sqlite3.Connection, name: str, table: _Table) -> Change | None:
    """The change of one table; None if it is better compared by SQLite itself."""
    rows = None if table.rows is None else _rows_by_key(end, name, table.key)
    return None if rows is None or table.rows is None else _compare(table.rows, rows)


def _compare(old: Mapping[Row, Row], new: Mapping[Row, Row]) -> Change:
    if old == new:
        return Change()
    common = old.keys() & new.keys()
    changed = sum(old[key] != new[key] for key in common)
    return Change(added=len(new) - len(common), removed=len(old) - len(common), changed=changed)


def _compare_by_query(both: sqlite3.Connection, name: str, table: _Table) -> Change:
    """The same comparison, made inside SQLite."""
    old, new = f"initial.{_quoted(name)}", f"main.{_quoted(name)}"
    key = _key_of(both, table, old, new)
    on = " AND ".join(f"a.{column} IS b.{column}" for column in key)
    # a column's own collation may hold "a" and "A" for equal: a change of case is a change
    left = ", ".join(f"a.{_quoted(column)} COLLATE BINARY" for column in table.columns)
    right = ", ".join(f"b.{_quoted(column)}" for column in table.columns)
    pairs = f"SELECT count(*), total(({left}) IS NOT ({right})) FROM {new} a JOIN {old} b ON {on}"
    counts = f"(SELECT count(*) FROM {new}), (SELECT count(*) FROM {old})"
    num_new, num_old, num_common, num_changed = query(both, f"SELECT {counts}, * FROM ({pairs})")[0]
    return Change(added=num_new - num_common, removed=num_old - num_common, changed=int(num_changed))


def _key_of(both: sqlite3.Connection, table: _Table, old: str, new: str) -> list[str]:
    """Columns that identify a row: the rowid where there is no primary key, or one that is NULL somewhere."""
    key = [_quoted(table.columns[i]) for i in table.key]
    if not key:
        return ["rowid"]
    absent = " OR ".join(f"{column} IS NULL" for column in key)
    some = " OR ".join(f"EXISTS (SELECT 1 FROM {source} WHERE {absent})" for source in (old, new))
    return ["rowid"] if query(both, f"SELECT {some}")[0][0] else key


def _count(connection: sqlite3.Connection, name: str) -> int:
    return int(query(connection, f"SELECT count(*) FROM main.{_quoted(name)}")[0][0])


def _count_before(initial_state: bytes, name: str) -> int:
    with sealed(initial_state) as connection:
        return _count(connection, name)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# ------------------------------------------------------------------------------------------------ JSON


def json_changes(initial_state: bytes, end_state: bytes) -> Mapping[str, Change]:
    """Changes by top-level key of two JSON objects.

    An object's entries are rows by key; a list's entries are rows by their ``id`` where each has its own, else a
    multiset; anything else is a table of one row.

    Raises:
        InfrastructureError: a state is no JSON object.
    """
    before, after = json_state(initial_state), json_state(end_state)
    names = [*before, *(name for name in after if name not in before)]
    return {name: _collection(before.get(name, {}), after.get(name, {})) for name in names}


def _collection(old: Json, new: Json) -> Change:
    old_rows, new_rows = _rows(old), _rows(new)
    if old_rows is not None and new_rows is not None:
        common = old_rows.keys() & new_rows.keys()
        return Change(
            added=len(new_rows) - len(common),
            removed=len(old_rows) - len(common),
            changed=sum(old_rows[key] != new_rows[key] for key in common),
        )
    if isinstance(old, list) and isinstance(new, list):
        left, right = Counter(map(canonical_json, old)), Counter(map(canonical_json, new))
        return Change(added=(right - left).total(), removed=(left - right).total())
    return Change(changed=int(canonical_json(old) != canonical_json(new)))


def _rows(collection: Json) -> dict[str, bytes] | None:
    """Rows by key in canonical form, or None where they have no keys."""
    if isinstance(collection, dict):
        return {key: canonical_json(row) for key, row in collection.items()}
    if not isinstance(collection, list):
        return None
    keyed = {
        canonical_json(row["id"]).decode(): canonical_json(row)
        for row in collection
        if isinstance(row, dict) and "id" in row
    }
    return keyed if len(keyed) == len(collection) else None
