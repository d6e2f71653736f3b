"""``SqlStore``: records and blobs in one SQL database, safe for several threads and processes.

Records are msgpack of their struct, blobs are bytes under their SHA-256; both are compressed by zstandard with a
checksum, so damage is noticed when reading and never handed on. What is encoded is encoded before a transaction
begins: a record that cannot be written leaves nothing behind.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import zstandard

from flightschool.digest import digest as content_digest
from flightschool.errors import InputError, NotFoundError, StoreError
from flightschool.store.packing import compress, pack

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

__all__ = ["SCHEMA_VERSION", "SqlStore"]

SCHEMA_VERSION = 1
"""Version of the tables; a store of any other version is refused, never migrated in silence."""

_PAGE_ROWS = 256
_MAX_SUGGESTIONS = 3

R = TypeVar("R", bound=msgspec.Struct)


class SqlStore:
    """A ``protocols.Store`` over SQLAlchemy Core.

    Args:
        url: ``sqlite:///path/to/file``, ``sqlite://`` (in memory, one process) or ``postgresql+psycopg://…``.

    Raises:
        StoreError: the URL is wrong, the database cannot be opened, is damaged, or is of another schema version.
    """

    def __init__(self, url: str) -> None:
        from flightschool.store import _tables

        self._tables = _tables
        self.url = url
        try:
            self._parsed = _tables.parse_url(url)
        except ValueError as error:
            raise StoreError(
                f"wrong database URL: {error}",
                where=url.rsplit("@", maxsplit=1)[-1],
                expected="sqlite:///path/to/file or postgresql+psycopg://host/name",
                mend="correct the URL in flightschool.toml",
            ) from error
        self.location = self._parsed.render_as_string(hide_password=True)
        """The URL without its password."""
        self._memory = _tables.is_memory(self._parsed)
        # The one connection of a memory store would mix the transactions of several threads.
        self._lock = threading.RLock() if self._memory else nullcontext()
        self._statements = _tables.build_statements(self._parsed.get_backend_name())
        self._connect()
        self._check_version()

    def _connect(self) -> None:
        try:
            self._engine: Engine = self._tables.open_engine(self._parsed)
        except ModuleNotFoundError as error:
            raise StoreError(
                f"the database driver {error.name!r} is not installed",
                where=self.location,
                mend=f"pip install {error.name}",
            ) from error
        self._pid = os.getpid()
        weakref.finalize(self, _dispose, self._engine, self._pid)

    def _check_version(self) -> None:
        with self._translated():
            version = self._tables.schema_version(self._engine, SCHEMA_VERSION)
        if version != str(SCHEMA_VERSION):
            raise StoreError(
                f"the store was written by another version of flightschool (schema {version})",
                where=self.location,
                expected=f"schema {SCHEMA_VERSION}",
                mend="use the flightschool version that wrote it, or start afresh with: flightschool init DIR",
            )

    def __reduce__(self) -> tuple[type[SqlStore], tuple[str]]:
        if self._memory:
            raise TypeError("a store in memory belongs to one process; use a file to share it")
        return SqlStore, (self.url,)

    def __enter__(self) -> SqlStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let all connections go. A store on disk reopens by itself at its next use; one in memory is gone."""
        self._engine.dispose()

    # -------------------------------------------------------------------------------------------- records

    def put(self, kind: str, key: str, record: msgspec.Struct) -> None:
        """Write or replace one record; it is committed when this returns."""
        row = _row(kind, key, record)
        with self._transaction() as connection:
            connection.execute(self._statements.put, row)

    def put_new(self, kind: str, key: str, record: msgspec.Struct) -> bool:
        """Write one record unless its key is taken, atomically among all processes; whether it was written."""
        row = _row(kind, key, record)
        with self._transaction() as connection:
            return connection.execute(self._statements.put_new, row).rowcount == 1

    def put_many(self, records: Iterable[tuple[str, str, msgspec.Struct]]) -> None:
        """Write or replace (kind, key, record) triples in one transaction: all or none, in their order."""
        rows = [_row(kind, key, record) for kind, key, record in records]
        if not rows:
            return
        with self._transaction() as connection:
            connection.execute(self._statements.put, rows)

    def get(self, kind: str, key: str, type_: type[R]) -> R:
        """One record.

        Raises:
            NotFoundError: no such record; names the nearest known keys.
            StoreError: the record is damaged or of another shape than ``type_``.
        """
        with self._transaction() as connection:
            payload = connection.execute(self._statements.get, {"kind": kind, "key": key}).scalar()
        if payload is None:
            raise NotFoundError(f"no {kind} named {key!r}", where=self.location, mend=self._suggest(kind, key))
        return self._decode(kind, key, payload, type_)

    def items(self, kind: str, type_: type[R], prefix: str = "") -> Iterator[tuple[str, R]]:
        """Keys and records in the order of first writing; no transaction is open while the caller works.

        Records that others write meanwhile may or may not be seen.
        """
        after = -1
        while True:
            values = {"kind": kind, "prefix": prefix, "length": len(prefix), "after": after, "limit": _PAGE_ROWS}
            with self._transaction() as connection:
                rows = connection.execute(self._statements.page, values).all()
            for position, key, payload in rows:
                yield key, self._decode(kind, key, payload, type_)
                after = position
            if len(rows) < _PAGE_ROWS:
                return

    def has(self, kind: str, key: str) -> bool:
        """Whether the record exists."""
        with self._transaction() as connection:
            return connection.execute(self._statements.has, {"kind": kind, "key": key}).first() is not None

    def keys(self, kind: str, prefix: str = "") -> list[str]:
        """Keys of a kind in the order of first writing; replacing keeps the place, deleting gives it up."""
        values = {"kind": kind, "prefix": prefix, "length": len(prefix)}
        with self._transaction() as connection:
            return list(connection.execute(self._statements.keys, values).scalars())

    def delete(self, kind: str, key: str) -> None:
        """Remove one record if it exists."""
        with self._transaction() as connection:
            connection.execute(self._statements.delete, {"kind": kind, "key": key})

    # -------------------------------------------------------------------------------------------- blobs

    def put_blob(self, data: bytes) -> str:
        """Keep bytes; returns their digest. Equal bytes are kept once."""
        digest = content_digest(data)
        with self._transaction() as connection:
            known = connection.execute(self._statements.has_blob, {"digest": digest}).first() is not None
        if not known:
            row = {"digest": digest, "payload": compress(data)}
            with self._transaction() as connection:
                connection.execute(self._statements.put_blob, row)
        return digest

    def get_blob(self, digest: str) -> bytes:
        """Bytes of a digest.

        Raises:
            NotFoundError: the store holds no such blob.
            StoreError: the bytes kept no longer have this digest.
        """
        with self._transaction() as connection:
            payload = connection.execute(self._statements.get_blob, {"digest": digest}).scalar()
        if payload is None:
            raise NotFoundError(
                f"no blob {digest!r}", where=self.location, mend="check the digest; blobs are never deleted"
            )
        data = self._decompress(payload, f"blob {digest}")
        if content_digest(data) != digest:
            raise self._damage(f"blob {digest}", "the bytes do not have the digest they are kept under")
        return data

    # -------------------------------------------------------------------------------------------- inside

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        if self._pid != os.getpid() and not self._memory:
            # After a fork the child must neither use nor close the parent's connections.
            self._engine.dispose(close=False)
            self._connect()
        with self._lock, self._translated(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._tables.DRIVER_ERRORS as error:
            raise self._explain(error) from error

    def _explain(self, error: Exception) -> StoreError:
        text = str(getattr(error, "orig", None) or error)
        mend = "check that the database exists and can be reached and written"
        if "locked" in text:
            mend = "another process holds the database; wait for it or end it"
        elif "not a database" in text or "malformed" in text or "disk image" in text:
            mend = "restore the file from a copy, or start afresh with: flightschool init DIR"
        elif "readonly" in text:
            mend = "give this user the right to write the file and its folder"
        elif "full" in text:
            mend = "free disk space and run again; what was committed is kept"
        return StoreError(
            f"the store cannot be used: {text}", where=self.location, expected="a flightschool database", mend=mend
        )

    def _decode(self, kind: str, key: str, payload: bytes, type_: type[R]) -> R:
        data = self._decompress(payload, f"{kind} {key!r}")
        try:
            return msgspec.msgpack.decode(data, type=type_)
        except msgspec.MsgspecError as error:
            raise StoreError(
                f"{kind} {key!r} is not a {type_.__name__}: {error}",
                where=self.location,
                expected="a record of this version's shape",
                mend="use the flightschool version that wrote it",
            ) from error

    def _decompress(self, payload: bytes, what: str) -> bytes:
        try:
            return zstandard.ZstdDecompressor().decompress(payload)
        except zstandard.ZstdError as error:
            raise self._damage(what, str(error)) from error

    def _damage(self, what: str, why: str) -> StoreError:
        return StoreError(
            f"{what} is damaged: {why}", where=self.location, expected="undamaged data", mend="restore it from a copy"
        )

    def _suggest(self, kind: str, key: str) -> str:
        from rapidfuzz import process

        near = [str(match[0]) for match in process.extract(key, self.keys(kind), limit=_MAX_SUGGESTIONS)]
        return "nearest known: " + ", ".join(near) if near else f"the store holds no {kind} yet"


def _dispose(engine: Engine, pid: int) -> None:
    engine.dispose(close=pid == os.getpid())


def _row(kind: str, key: str, record: msgspec.Struct) -> dict[str, Any]:
    for name, value in (("kind", kind), ("key", key)):
        if not value or "\0" in value or not value.isprintable():
            raise InputError(
                f"{value!r} cannot be the {name} of a record",
                expected="printable text, not empty",
                mend=f"choose another {name}",
            )
    return {"kind": kind, "key": key, "payload": pack(record)}
