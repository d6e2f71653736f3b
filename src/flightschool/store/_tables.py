"""Tables, statements and engines. The only module here that imports SQLAlchemy at its top; opened late, by need.

Every write is one statement or a run of inserts, so no transaction reads before it writes: SQLite never has to
raise a read lock to a write lock, the one case in which its busy timeout does not help.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Engine
from sqlalchemy.pool import ConnectionPoolEntry, StaticPool
from sqlalchemy.schema import CreateTable

DRIVER_ERRORS = (sa.exc.SQLAlchemyError, sqlite3.Error)
"""What a failing database raises: SQLAlchemy wraps all but what happens while a connection is being set up."""

BUSY_TIMEOUT_S = 60.0
"""How long a writer waits for another process's write; single writes last milliseconds."""

# Both dialects spell their upsert alike, but SQLAlchemy has no common type for it.
_SUPPORTED: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}

_CREATION_LOCK = 0x666C6967
"""Key of the advisory lock under which a PostgreSQL database gets its tables."""

_metadata = sa.MetaData()
_meta = sa.Table(
    "meta",
    _metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
_records = sa.Table(
    "records",
    _metadata,
    # Replacing a record keeps its row, so this is the order of first writing.
    sa.Column("position", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("payload", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("kind", "key"),
)
_blobs = sa.Table(
    "blobs",
    _metadata,
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("payload", sa.LargeBinary, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements of one dialect, built once, so that SQLAlchemy's compiled cache always hits."""

    put: sa.Executable
    put_new: sa.Executable
    get: sa.Executable
    has: sa.Executable
    keys: sa.Executable
    page: sa.Executable
    delete: sa.Executable
    put_blob: sa.Executable
    has_blob: sa.Executable
    get_blob: sa.Executable


def build_statements(dialect: str) -> Statements:
    """All statements for ``sqlite`` or ``postgresql``."""
    insert = _SUPPORTED[dialect]
    # Inline: no row id is fetched back. Kept row counts say whether a row was written.
    row = insert(_records).inline().execution_options(preserve_rowcount=True)
    this = sa.and_(_records.c.kind == sa.bindparam("kind"), _records.c.key == sa.bindparam("key"))
    # substr compares exactly; LIKE would need escapes and is blind to case in SQLite.
    prefixed = sa.and_(
        _records.c.kind == sa.bindparam("kind"),
        sa.func.substr(_records.c.key, 1, sa.bindparam("length", type_=sa.Integer)) == sa.bindparam("prefix"),
    )
    return Statements(
        put=row.on_conflict_do_update(index_elements=["kind", "key"], set_={"payload": row.excluded.payload}),
        put_new=row.on_conflict_do_nothing(index_elements=["kind", "key"]),
        get=sa.select(_records.c.payload).where(this),
        has=sa.select(sa.literal(1)).where(this),
        keys=sa.select(_records.c.key).where(prefixed).order_by(_records.c.position),
        page=sa.select(_records.c.position, _records.c.key, _records.c.payload)
        .where(prefixed, _records.c.position > sa.bindparam("after"))
        .order_by(_records.c.position)
        .limit(sa.bindparam("limit", type_=sa.Integer)),
        delete=sa.delete(_records).where(this),
        put_blob=insert(_blobs).on_conflict_do_nothing(index_elements=["digest"]),
        has_blob=sa.select(sa.literal(1)).where(_blobs.c.digest == sa.bindparam("digest")),
        get_blob=sa.select(_blobs.c.payload).where(_blobs.c.digest == sa.bindparam("digest")),
    )


def parse_url(url: str) -> sa.URL:
    """The parsed URL.

    Raises:
        ValueError: it is no URL, or names a database that this store has no dialect for.
    """
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as error:
        raise ValueError("not a database URL") from error
    if parsed.get_backend_name() not in _SUPPORTED:
        raise ValueError(f"{parsed.get_backend_name()!r} is not supported")
    return parsed


def is_memory(url: sa.URL) -> bool:
    """Whether the database lives and dies with this process."""
    return url.get_backend_name() == "sqlite" and url.database in {None, "", ":memory:"}


def open_engine(url: sa.URL) -> Engine:
    """An engine for ``url``; connects lazily.

    Raises:
        ModuleNotFoundError: the driver of the database is not installed.
    """
    if url.get_backend_name() != "sqlite":
        return sa.create_engine(url, pool_pre_ping=True)
    arguments: dict[str, Any] = {"timeout": BUSY_TIMEOUT_S, "check_same_thread": False}
    if is_memory(url):
        return sa.create_engine(url, connect_args=arguments, poolclass=StaticPool)
    engine = sa.create_engine(url, connect_args=arguments)
    sa.event.listen(engine, "connect", _set_up_sqlite)
    return engine


def _set_up_sqlite(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    """Write-ahead log, so that readers never wait; a commit survives kill -9 of any process of ours.

    ``synchronous = NORMAL`` may lose the last commits when the *machine* loses power, never the file's integrity.
    """
    connection.execute("PRAGMA synchronous = NORMAL")
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        # The switch happens once in a file's life, and SQLite does not apply its busy timeout to it.
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def schema_version(engine: Engine, wanted: int) -> str:
    """The schema version of the database, after writing ``wanted`` into one that is new.

    Safe when several processes meet a new file, and when one of them was killed in between.
    """
    version = sa.select(_meta.c.value).where(_meta.c.name == "schema_version")
    with engine.connect() as connection:
        if sa.inspect(connection).has_table("meta"):
            found = connection.execute(version).scalar()
            if found is not None:
                return str(found)
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            # There IF NOT EXISTS alone does not save two creators from each other.
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))
        for table in (_records, _blobs, _meta):
            connection.execute(CreateTable(table, if_not_exists=True))
        first = _SUPPORTED[engine.dialect.name](_meta).on_conflict_do_nothing(index_elements=["name"])
        connection.execute(first, {"name": "schema_version", "value": str(wanted)})
        return str(connection.execute(version).scalar())
