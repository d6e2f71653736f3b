"""The audit log: a chain that shows where it was touched."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.digest import digest
from flightschool.errors import InputError, StoreError
from flightschool.governance import AuditLog, LogHead, override, overrides
from flightschool.records import LogEntry
from flightschool.store import SqlStore

KIND = "log_entry"


@pytest.fixture
def store() -> Iterator[SqlStore]:
    with SqlStore("sqlite://") as store:
        yield store


def filled(store: SqlStore, count: int = 5) -> AuditLog:
    log = AuditLog(store, now=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    for i in range(count):
        log.append("ann", "freeze", f"suite-{i}", {"number": i})
    return log


def test_entries_are_chained_and_dated(store: SqlStore) -> None:
    first, second = list(filled(store, 2).entries())
    assert (first.index, second.index) == (0, 1)
    assert first.previous == "sha256:" + "0" * 64
    assert second.previous == first.digest
    assert first.at == "2026-01-02T03:04:05.000+00:00"
    assert first.digest == digest(msgspec.structs.replace(first, digest=""))
    assert AuditLog(store).verify() == 2


def test_an_empty_log_is_sound(store: SqlStore) -> None:
    log = AuditLog(store)
    assert log.verify() == 0
    assert log.verify(log.head()) == 0
    assert list(log.entries()) == []


def test_several_logs_on_one_store_are_one_log(store: SqlStore) -> None:
    one, two = AuditLog(store), AuditLog(store)
    for i in range(4):
        (one if i % 2 else two).append("ann", "act", str(i))
    assert [entry.subject for entry in one.entries()] == ["0", "1", "2", "3"]
    assert two.verify() == 4


@pytest.mark.parametrize(
    "change",
    [
        {"actor": "bob"},
        {"action": "thaw"},
        {"subject": "suite-9"},
        {"at": "2020-01-01T00:00:00.000+00:00"},
        {"detail": {"number": 99}},
        {"detail": {"number": 2, "more": None}},
        {"previous": "sha256:" + "1" * 64},
        {"digest": "sha256:" + "1" * 64},
        {"index": 7},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_change_of_an_entry_is_named(store: SqlStore, change: dict[str, object]) -> None:
    log = filled(store)
    entry = store.get(KIND, f"{2:012d}", LogEntry)
    store.put(KIND, f"{2:012d}", msgspec.structs.replace(entry, **change))
    with pytest.raises(StoreError, match="broken at entry 2") as caught:
        log.verify()
    assert caught.value.where == "log entry 2"


def test_a_changed_entry_with_a_mended_digest_breaks_its_successor(store: SqlStore) -> None:
    log = filled(store)
    entry = msgspec.structs.replace(store.get(KIND, f"{2:012d}", LogEntry), actor="bob", digest="")
    store.put(KIND, f"{2:012d}", msgspec.structs.replace(entry, digest=digest(entry)))
    with pytest.raises(StoreError, match="broken at entry 3: it does not follow"):
        log.verify()


@given(st.integers(0, 3), st.data())
@settings(max_examples=20, deadline=None)
def test_removing_or_swapping_is_named(index: int, data: st.DataObject) -> None:
    with SqlStore("sqlite://") as store:
        log = filled(store)
        if data.draw(st.booleans(), label="swap"):
            a, b = (store.get(KIND, f"{i:012d}", LogEntry) for i in (index, index + 1))
            store.put_many([(KIND, f"{index:012d}", b), (KIND, f"{index + 1:012d}", a)])
        else:
            store.delete(KIND, f"{index:012d}")
        with pytest.raises(StoreError, match=f"broken at entry {index}"):
            log.verify()


def test_a_cut_or_replaced_log_needs_the_anchor(store: SqlStore) -> None:
    log = filled(store)
    anchor = log.head()
    assert (anchor.count, log.verify(anchor)) == (5, 5)
    store.delete(KIND, f"{4:012d}")
    assert AuditLog(store).verify() == 4  # a bare chain cannot tell
    with pytest.raises(StoreError, match="cut short"):
        AuditLog(store).verify(anchor)
    AuditLog(store).append("eve", "freeze", "suite-4", {"number": 4})
    assert AuditLog(store).verify() == 5
    with pytest.raises(StoreError, match="replaced"):
        AuditLog(store).verify(anchor)
    with pytest.raises(StoreError, match="cut short"):
        AuditLog(store).verify(LogHead(count=6, digest="x"))


def test_an_old_anchor_holds_while_the_log_grows(store: SqlStore) -> None:
    log = filled(store, 2)
    anchor = log.head()
    log.append("ann", "act", "later")
    assert log.verify(anchor) == 3


def test_threads_lose_and_double_nothing(store: SqlStore) -> None:
    logs = [AuditLog(store) for _ in range(4)]

    def work(name: int) -> None:
        for i in range(10):
            logs[name].append(f"actor-{name}", "act", str(i))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert logs[0].verify() == 40
    for name in range(4):
        mine = [entry.subject for entry in logs[0].entries() if entry.actor == f"actor-{name}"]
        assert mine == [str(i) for i in range(10)]


APPENDER = """
import sys
from flightschool.governance import AuditLog
from flightschool.store import SqlStore
with SqlStore(sys.argv[1]) as store:
    log = AuditLog(store)
    for i in range(15):
        log.append(sys.argv[2], "act", str(i))
"""


def test_processes_lose_and_double_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'log.sqlite'}"
    workers = [subprocess.Popen([sys.executable, "-c", APPENDER, url, name]) for name in ("ann", "bob")]
    assert [worker.wait() for worker in workers] == [0, 0]
    with SqlStore(url) as store:
        assert AuditLog(store).verify() == 30


def test_a_row_changed_behind_the_stores_back_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    with SqlStore(f"sqlite:///{path}") as store:
        filled(store)
    raw = sqlite3.connect(path)
    raw.execute("UPDATE records SET payload = x'00' WHERE key = '000000000003'")
    raw.commit()
    raw.close()
    with SqlStore(f"sqlite:///{path}") as store, pytest.raises(StoreError, match="000000000003"):
        AuditLog(store).verify()


def test_details_survive_the_store_whatever_they_hold(store: SqlStore) -> None:
    log = AuditLog(store)
    entry = log.append(
        "ann", "act", "s", {"tuple": (1, 2), "set": {3}, "int keys": {1: "x"}, "ö": 0.1 + 0.2, "b": b"x"}
    )
    assert entry.detail["tuple"] == [1, 2]
    assert list(log.entries()) == [entry]
    assert log.verify() == 1


def test_bad_entries_are_refused_and_write_nothing(store: SqlStore) -> None:
    log = AuditLog(store)
    with pytest.raises(InputError, match="actor"):
        log.append(" ", "act", "s")
    with pytest.raises(InputError, match="not JSON"):
        log.append("ann", "act", "s", {"x": float("nan")})
    with pytest.raises(InputError, match="not JSON"):
        log.append("ann", "act", "s", {"x": object()})
    assert log.verify() == 0


def test_an_override_is_in_the_log_before_it_counts(store: SqlStore) -> None:
    log = filled(store, 1)
    made = override(log, "audit", "desk", "ann", "  known flake, ticket 7 ")
    assert (made.name, made.gate, made.subject, made.reason) == ("ann", "audit", "desk", "known flake, ticket 7")
    last = list(log.entries())[-1]
    assert (last.action, last.digest, last.at) == ("override", made.entry, made.at)
    assert overrides(log) == (made,)
    assert log.verify() == 2


@pytest.mark.parametrize(
    ("gate", "actor", "reason", "missing"),
    [("audit", "", "r", "actor"), ("audit", "ann", " ", "reason"), ("", "a", "r", "gate")],
)
def test_no_override_without_name_and_reason(store: SqlStore, gate: str, actor: str, reason: str, missing: str) -> None:
    log = AuditLog(store)
    with pytest.raises(InputError, match=missing):
        override(log, gate, "desk", actor, reason)
    assert log.verify() == 0
