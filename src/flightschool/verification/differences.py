"""Rows added, removed and changed between two states."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from flightschool.digest import canonical_json
from flightschool.records import Json
from flightschool.verification.images import broken_state, json_state, query, sealed

__all__ = ["Change", "json_changes", "sqlite_changes"]


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


def sqlite_changes(initial_state: bytes, end_state: bytes, named: Collection[str]) -> Mapping[str, Change]:
    """Changes by table; rows are matched by primary key, or by rowid where there is none.

    Args:
        initial_state: image before the episode.
        end_state: image after it.
        named: tables that the check names; each must exist in one of the states.

    Raises:
        InfrastructureError: an image is unusable, or a named table exists in neither.
        QueryFailedError: the comparison takes too many steps.
    """
    same = initial_state == end_state
    with sealed(end_state, None if same else initial_state) as connection:
        after = _tables(connection, "main")
        before = after if same else _tables(connection, "initial")
        unknown = set(named) - after.keys() - before.keys()
        if unknown:
            raise broken_state(f"a check allows changes of a table that does not exist: {min(unknown)!r}")
        if same:
            return {name: Change() for name in after}
        return {name: _table(connection, name, before, after) for name in sorted(before.keys() | after.keys())}


def _tables(connection: sqlite3.Connection, schema: str) -> dict[str, str]:
    """Table → its definition; SQLite's own tables apart."""
    rows = query(connection, f"SELECT name, sql FROM {schema}.sqlite_master WHERE type = 'table'")
    return {name: sql for name, sql in rows if not name.startswith("sqlite_")}


def _table(connection: sqlite3.Connection, name: str, before: Mapping[str, str], after: Mapping[str, str]) -> Change:
    old, new = f"initial.{_quoted(name)}", f"main.{_quoted(name)}"
    if name not in before:
        return Change(added=_count(connection, new))
    if name not in after:
        return Change(removed=_count(connection, old))
    if before[name] != after[name]:  # redefined: no row is what it was
        return Change(added=_count(connection, new), removed=_count(connection, old))
    columns, key = _columns(connection, name)
    on = " AND ".join(f"a.{column} IS b.{column}" for column in key)
    lost = f"(SELECT count(*) FROM {old} b WHERE NOT EXISTS (SELECT 1 FROM {new} a WHERE {on}))"
    gained = f"(SELECT count(*) FROM {new} a WHERE NOT EXISTS (SELECT 1 FROM {old} b WHERE {on}))"
    differ = " OR ".join(
        f"a.{column} IS NOT b.{column} OR typeof(a.{column}) <> typeof(b.{column})" for column in columns
    )
    changed = f"(SELECT count(*) FROM {new} a JOIN {old} b ON {on} WHERE {differ})"
    row = query(connection, f"SELECT {gained}, {lost}, {changed}")[0]
    return Change(added=row[0], removed=row[1], changed=row[2])


def _columns(connection: sqlite3.Connection, name: str) -> tuple[list[str], list[str]]:
    """Quoted names of all columns, and of those that identify a row."""
    rows = query(connection, f"PRAGMA main.table_info({_quoted(name)})")  # cid, name, type, notnull, default, pk
    columns = [_quoted(row[1]) for row in rows]
    key = [_quoted(row[1]) for row in sorted(rows, key=lambda row: int(row[5])) if row[5]]
    return columns, key or ["rowid"]


def _count(connection: sqlite3.Connection, table: str) -> int:
    return int(query(connection, f"SELECT count(*) FROM {table}")[0][0])


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
