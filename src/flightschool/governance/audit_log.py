"""The audit log: append-only entries, each holding the digest of the one before it.

An entry's digest covers the whole entry, so changing, dropping, swapping or inserting one breaks the chain at a place
that ``verify`` names. What a bare chain cannot show is a log cut short at its end, or replaced as a whole: for that,
``head`` gives a short anchor to keep where the log's owner cannot write, and ``verify`` takes it back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import msgspec

from flightschool.digest import canonical_json
from flightschool.digest import digest as content_digest
from flightschool.errors import InputError, StoreError
from flightschool.protocols import Store
from flightschool.records import Json, LogEntry, Record

__all__ = ["AuditLog", "LogHead"]

KIND = "log_entry"
GENESIS = "sha256:" + "0" * 64
"""What the first entry names as its predecessor."""


class LogHead(Record, frozen=True, kw_only=True):
    """An anchor: the log's length and the digest of its last entry. Keep it elsewhere."""

    count: int
    digest: str


def _now() -> datetime:
    return datetime.now(UTC)


class AuditLog:
    """The hash-chained log in a store. Any number of threads and processes may append.

    Args:
        store: the workspace's store; several logs on one store are the same log.
        now: the clock.
    """

    def __init__(self, store: Store, *, now: Callable[[], datetime] = _now) -> None:
        self._store = store
        self._now = now
        self._head = LogHead(count=0, digest=GENESIS)

    def append(self, actor: str, action: str, subject: str, detail: dict[str, Json] | None = None) -> LogEntry:
        """Write one entry after the last one; it is durable when this returns.

        Appenders race for the next index by ``Store.put_new``, which one of them wins; the others move on and try
        again, so no entry is lost and none has two successors.

        Raises:
            InputError: actor or action is empty, or ``detail`` is not JSON.
            StoreError: the store cannot be written.
        """
        if not actor.strip() or not action.strip():
            raise InputError(
                "a log entry needs an actor and an action",
                where=f"actor {actor!r}, action {action!r}",
                expected="the name of who acts and what was done",
                mend="pass both",
            )
        plain = _plain(detail or {})
        while True:
            self._catch_up()
            entry = LogEntry(
                index=self._head.count,
                at=self._now().astimezone(UTC).isoformat(timespec="milliseconds"),
                actor=actor,
                action=action,
                subject=subject,
                detail=plain,
                previous=self._head.digest,
                digest="",
            )
            entry = msgspec.structs.replace(entry, digest=_digest(entry))
            if self._store.put_new(KIND, _key(entry.index), entry):
                self._head = LogHead(count=entry.index + 1, digest=entry.digest)
                return entry
            if not self._store.has(KIND, _key(entry.index)):
                raise _broken(entry.index, "the store neither wrote it nor holds another in its place")

    def entries(self) -> Iterator[LogEntry]:
        """All entries, oldest first, unverified."""
        for _, entry in sorted(self._store.items(KIND, LogEntry), key=lambda item: item[0]):
            yield entry

    def verified(self) -> Iterator[LogEntry]:
        """All entries, oldest first, each checked before it is given: for whoever believes what they say.

        Raises:
            StoreError: as ``verify``, at the first entry that is not what was written.
        """
        return self._verified()

    def head(self) -> LogHead:
        """The anchor of the log as it stands, after verifying it. Raises ``StoreError`` as ``verify`` does."""
        last = LogHead(count=0, digest=GENESIS)
        for entry in self._verified():
            last = LogHead(count=entry.index + 1, digest=entry.digest)
        return last

    def verify(self, anchor: LogHead | None = None) -> int:
        """The number of entries, every one of which was checked.

        Args:
            anchor: a head that was kept elsewhere; the log must still contain it.

        Raises:
            StoreError: names the first broken entry and what is wrong with it.
        """
        count = 0
        anchored = anchor is None or anchor == LogHead(count=0, digest=GENESIS)
        for entry in self._verified():
            count += 1
            if anchor is not None and count == anchor.count:
                anchored = entry.digest == anchor.digest
                if not anchored:
                    raise _broken(entry.index, "it is not the entry that the anchor names: the log was replaced")
        if not anchored and anchor is not None:
            raise _broken(count, f"the log ends here, the anchor knows {anchor.count} entries: it was cut short")
        return count

    def _verified(self) -> Iterator[LogEntry]:
        previous = GENESIS
        for index, entry in enumerate(self.entries()):
            if entry.index != index:
                raise _broken(index, f"entry {entry.index} stands in its place: one was removed, moved or put in")
            if entry.previous != previous:
                raise _broken(index, "it does not follow from the entry before it")
            if entry.digest != _digest(entry):
                raise _broken(index, "its content was changed")
            previous = entry.digest
            yield entry

    def _catch_up(self) -> None:
        """Move to the last entry that anyone has written."""
        if self._head.count == 0:
            keys = self._store.keys(KIND)
            if keys:
                last = self._store.get(KIND, max(keys), LogEntry)
                self._head = LogHead(count=last.index + 1, digest=last.digest)
        while self._store.has(KIND, _key(self._head.count)):
            entry = self._store.get(KIND, _key(self._head.count), LogEntry)
            self._head = LogHead(count=entry.index + 1, digest=entry.digest)


def _key(index: int) -> str:
    return f"{index:012d}"  # sorts as numbers do


def _digest(entry: LogEntry) -> str:
    return content_digest(msgspec.structs.replace(entry, digest=""))


def _plain(detail: dict[str, Json]) -> dict[str, Json]:
    """The detail as JSON gives it back, so that its digest survives any store."""
    try:
        plain: dict[str, Json] = json.loads(canonical_json(detail))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the detail of a log entry is not JSON: {error}", expected="plain values", mend="pass text and numbers"
        ) from error
    return plain


def _broken(index: int, why: str) -> StoreError:
    return StoreError(
        f"the audit log is broken at entry {index}: {why}",
        where=f"log entry {index}",
        expected="an unbroken chain of digests",
        mend="restore the workspace from a copy, and find out who wrote to its database",
    )
