"""A JSON state of many tables, copied table by table and only when touched.

The base holds each table pickled once. A world loads a table when a tool first asks for it; whatever a tool touched
counts as changed, since a function that was called a read may still write. Forks share the bytes of all tables that
are not loaded.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path

from flightschool.digest import canonical_json
from flightschool.digest import digest as content_digest
from flightschool.errors import ConfigError, InfrastructureError, TraceError
from flightschool.records import Json
from flightschool.traces.loading import parse_json_document, read_text

__all__ = ["JsonBase", "JsonTables", "load_state"]


def load_state(folder: Path) -> dict[str, Json]:
    """``{stem: content}`` of all ``*.json`` files of a folder, in the order of their names.

    Raises:
        ConfigError: no such folder, no JSON file in it, or a file that is no JSON.
    """
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    if not files:
        raise ConfigError(
            "no initial state found", where=str(folder), expected="a folder with *.json files", mend="check --state"
        )
    try:
        return {file.stem: parse_json_document(file, read_text(file)) for file in files}
    except TraceError as error:
        raise ConfigError(
            f"a state file cannot be read: {error.what}", where=error.where, expected=error.expected, mend=error.mend
        ) from error


class JsonBase:
    """The initial state that all worlds of an environment share. Immutable."""

    def __init__(self, tables: Mapping[str, Json]) -> None:
        self.chunks = {name: canonical_json(table) for name, table in tables.items()}
        # frozen twice, so that loading and freezing an untouched table gives these very bytes
        self.frozen = {name: _frozen(pickle.loads(_frozen(table))) for name, table in tables.items()}
        self.digest = content_digest({name: content_digest(chunk) for name, chunk in self.chunks.items()})

    def open(self) -> JsonTables:
        """A fresh copy."""
        return JsonTables(self, dict(self.frozen))


class JsonTables(MutableMapping[str, Json]):
    """The state as tool functions see it: a mapping of table to content, theirs to change."""

    def __init__(self, base: JsonBase, frozen: dict[str, bytes]) -> None:
        self._base = base
        self._frozen = frozen
        self._live: dict[str, Json] = {}
        self._touched: set[str] = set()

    def __getitem__(self, name: str) -> Json:
        if name not in self._live:
            # our own pickles of JSON values, made in this process: nothing foreign is ever unpickled
            self._live[name] = pickle.loads(self._frozen[name])
        self._touched.add(name)
        return self._live[name]

    def __setitem__(self, name: str, value: Json) -> None:
        self._live[name] = value
        self._frozen.setdefault(name, b"")
        self._touched.add(name)

    def __delitem__(self, name: str) -> None:
        del self._frozen[name]
        self._live.pop(name, None)
        self._touched.discard(name)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._frozen))

    def __len__(self) -> int:
        return len(self._frozen)

    def fork(self) -> JsonTables:
        """An independent copy of the present state."""
        self._freeze()
        return JsonTables(self._base, dict(self._frozen))

    def snapshot(self) -> bytes:
        """The whole state as canonical JSON.

        Raises:
            InfrastructureError: tool code left something in the state that is no JSON.
        """
        self._freeze()
        parts = [canonical_json(name) + b":" + self._chunk(name) for name in sorted(self._frozen)]
        return b"{" + b",".join(parts) + b"}"

    def _chunk(self, name: str) -> bytes:
        if self._frozen[name] == self._base.frozen.get(name):
            return self._base.chunks[name]
        try:
            return canonical_json(self._live[name] if name in self._live else pickle.loads(self._frozen[name]))
        except (TypeError, ValueError, RecursionError) as error:
            raise _not_json(name, error) from error

    def _freeze(self) -> None:
        for name in self._touched:
            try:
                self._frozen[name] = _frozen(self._live[name])
            except (TypeError, ValueError, AttributeError, RecursionError, pickle.PicklingError) as error:
                raise _not_json(name, error) from error
        self._touched.clear()


def _frozen(table: Json) -> bytes:
    return pickle.dumps(table, pickle.HIGHEST_PROTOCOL)


def _not_json(name: str, error: Exception) -> InfrastructureError:
    return InfrastructureError(
        f"the state is no longer JSON: {error}",
        where=f"table {name!r}",
        expected="objects, lists, texts, numbers, truth values and null",
        mend="mend the tool function that put it there",
    )
