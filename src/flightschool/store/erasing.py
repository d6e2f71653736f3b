"""Taking things out of a database for good: rows removed, and their old bytes with them.

Deleting a row leaves its bytes in free pages and in the write-ahead log. ``erase`` overwrites both in SQLite: secure
deletion while the rows go, then a rebuilt file and a log cut to nothing. What the file system, a backup or a replica
still holds is out of reach, and so are the old row versions of PostgreSQL until its own vacuum ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flightschool.errors import InputError
from flightschool.store.sql import SqlStore

__all__ = ["erase", "everything"]

_PAGE = 256


def everything(store: SqlStore) -> Iterator[tuple[str, str, bytes]]:
    """All that a store holds, decompressed: (kind, key, bytes), blobs under the kind ``blob`` and their digest.

    Read page by page; no transaction is open while the caller works.

    Raises:
        StoreError: a row is damaged, or the database cannot be read.
    """
    import sqlalchemy as sa

    after = -1
    while True:
        statement = sa.text(
            "select position, kind, key, payload from records where position > :after order by position limit :limit"
        )
        with store._transaction() as connection:
            rows = connection.execute(statement, {"after": after, "limit": _PAGE}).all()
        for position, kind, key, payload in rows:
            yield kind, key, store._decompress(payload, f"{kind} {key!r}")
            after = position
        if len(rows) < _PAGE:
            break
    with store._transaction() as connection:
        digests = list(connection.execute(sa.text("select digest from blobs order by digest")).scalars())
    for digest in digests:
        yield "blob", digest, store.get_blob(digest)


def erase(store: SqlStore, records: Iterable[tuple[str, str]] = (), blobs: Iterable[str] = ()) -> None:
    """Remove records by (kind, key) and blobs by digest, and overwrite where they stood. What is gone already is fine.

    Raises:
        InputError: an entry of the audit log is named: the chain is append-only.
        StoreError: the database cannot be written.
    """
    import sqlalchemy as sa

    rows = [{"kind": kind, "key": key} for kind, key in records]
    if any(row["kind"] == "log_entry" for row in rows):
        raise InputError(
            "the audit log is append-only", where="erase", expected="records of other kinds", mend="leave it as it is"
        )
    digests = [{"digest": digest} for digest in blobs]
    is_sqlite = store._parsed.get_backend_name() == "sqlite"
    if is_sqlite:
        _pragma(store, "secure_delete = ON")
    with store._transaction() as connection:
        if rows:
            connection.execute(sa.text("delete from records where kind = :kind and key = :key"), rows)
        if digests:
            connection.execute(sa.text("delete from blobs where digest = :digest"), digests)
    if is_sqlite and not store._memory:
        # Both run outside a transaction; every connection of ours is let go, else the log cannot be cut.
        _outside(store, "VACUUM")
        _outside(store, "PRAGMA wal_checkpoint(TRUNCATE)")


def _pragma(store: SqlStore, text: str) -> None:
    import sqlalchemy as sa

    with store._transaction() as connection:
        connection.execute(sa.text(f"PRAGMA {text}"))


def _outside(store: SqlStore, text: str) -> None:
    import sqlalchemy as sa

    store._engine.dispose()
    with store._lock, store._translated(), store._engine.connect() as connection:
        done = connection.execution_options(isolation_level="AUTOCOMMIT").execute(sa.text(text))
        if done.returns_rows:
            done.fetchall()
