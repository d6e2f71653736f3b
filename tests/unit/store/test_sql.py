"""The SQL store: the contract on file and memory, then what only a file can show: processes, kills, damage."""

import os
import pickle
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flightschool.errors import StoreError
from flightschool.protocols import Store
from flightschool.records import ToolCall
from flightschool.store import SqlStore
from flightschool.testing.store_contract import StoreContract


def call(id_: str) -> ToolCall:
    return ToolCall(id=id_, name="tool", arguments={})


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.sqlite'}"


class TestSqliteFile(StoreContract):
    @pytest.fixture
    def store(self, url: str) -> Iterator[Store]:
        with SqlStore(url) as store:
            yield store


class TestSqliteMemory(StoreContract):
    @pytest.fixture
    def store(self) -> Iterator[Store]:
        with SqlStore("sqlite://") as store:
            yield store


RACER = """
import sys
from flightschool.records import ToolCall
from flightschool.store import SqlStore
url, name = sys.argv[1:]
call = ToolCall(id=name, name="tool", arguments={})
with SqlStore(url) as store:
    for i in range(20):
        store.put("call", f"{name}{i}", call)
    print(sum(store.put_new("race", str(i), call) for i in range(20)))
"""


def test_processes_meet_a_new_file_and_lose_nothing(url: str) -> None:
    racers = [
        subprocess.Popen([sys.executable, "-c", RACER, url, name], stdout=subprocess.PIPE, text=True) for name in "ab"
    ]
    wins = [int(racer.communicate()[0]) for racer in racers]
    with SqlStore(url) as store:
        assert len(store.keys("call")) == 40
        assert sum(wins) == len(store.keys("race")) == 20


def test_a_forked_child_opens_connections_of_its_own(url: str) -> None:
    with SqlStore(url) as store:
        store.put("call", "parent", call("1"))
        child = os.fork()
        if child == 0:
            try:
                store.put("call", "child", call("2"))
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        store.put("call", "after", call("3"))
        assert store.keys("call") == ["parent", "child", "after"]


WRITER = """
import sys
from flightschool.records import ToolCall
from flightschool.store import SqlStore
store = SqlStore(sys.argv[1])
batch = 0
while True:
    store.put_many([("call", f"{batch}/{i}", ToolCall(id="x" * 2000, name="t", arguments={})) for i in range(50)])
    print(batch, flush=True)
    batch += 1
"""


def test_kill_dash_nine_leaves_whole_batches_and_all_that_were_confirmed(url: str) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(5):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        confirmed = 5 + len(process.stdout.read().splitlines())
    with SqlStore(url) as store:
        keys = store.keys("call")
        assert len(keys) % 50 == 0
        assert len(keys) >= 50 * confirmed
        assert all(record.id == "x" * 2000 for _, record in store.items("call", ToolCall))


def test_a_store_travels_by_its_url(url: str) -> None:
    with SqlStore(url) as store:
        store.put("call", "k", call("1"))
        with pickle.loads(pickle.dumps(store)) as again:
            assert again.get("call", "k", ToolCall).id == "1"
    with SqlStore("sqlite://") as memory, pytest.raises(TypeError, match="one process"):
        pickle.dumps(memory)


def test_another_schema_version_is_refused_with_the_mend(url: str, tmp_path: Path) -> None:
    SqlStore(url).close()
    with sqlite3.connect(tmp_path / "store.sqlite") as raw:
        raw.execute("UPDATE meta SET value = '7'")
    raw.close()
    with pytest.raises(StoreError, match="schema 7") as caught:
        SqlStore(url)
    assert "schema 1" in caught.value.expected
    assert "flightschool init" in caught.value.mend


@pytest.mark.parametrize("size", [10, 5000])
def test_a_file_that_is_no_database_is_a_store_error(url: str, tmp_path: Path, size: int) -> None:
    (tmp_path / "store.sqlite").write_bytes(b"no database" * size)
    with pytest.raises(StoreError, match="not a database") as caught:
        SqlStore(url)
    assert "restore" in caught.value.mend


def test_damaged_pages_are_a_store_error(url: str, tmp_path: Path) -> None:
    with SqlStore(url) as store:
        store.put_many([("call", str(i), call("x" * 500)) for i in range(200)])
    path = tmp_path / "store.sqlite"
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(StoreError) as caught, SqlStore(url) as store:
        list(store.items("call", ToolCall))
    assert "restore" in caught.value.mend


def test_damaged_payloads_are_noticed(url: str, tmp_path: Path) -> None:
    with SqlStore(url) as store:
        store.put("call", "k", call("1"))
        digests = [store.put_blob(b"first"), store.put_blob(b"second")]
    with sqlite3.connect(tmp_path / "store.sqlite") as raw:
        raw.execute("UPDATE records SET payload = x'00'")
        raw.execute("UPDATE blobs SET payload = (SELECT payload FROM blobs WHERE digest = ?) WHERE digest = ?", digests)
    raw.close()
    with SqlStore(url) as store:
        with pytest.raises(StoreError, match="damaged"):
            store.get("call", "k", ToolCall)
        with pytest.raises(StoreError, match="damaged"):
            store.get_blob(digests[1])
        assert store.get_blob(digests[0]) == b"first"


@pytest.mark.parametrize("bad", ["nonsense", "mysql://host/x", "sqlite:////no/such/folder/x.sqlite"])
def test_wrong_urls_are_told(bad: str) -> None:
    with pytest.raises(StoreError) as caught:
        SqlStore(bad)
    assert caught.value.mend


def test_a_password_never_shows() -> None:
    with pytest.raises(StoreError) as caught:
        SqlStore("postgresql+psycopg://user:hunter2@127.0.0.1:1/x")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(StoreError) as caught:
        SqlStore("oracle://user:hunter2@host/x")
    assert "hunter2" not in str(caught.value)


def test_equal_blobs_are_kept_once_and_compressed(url: str, tmp_path: Path) -> None:
    with SqlStore(url) as store:
        for _ in range(3):
            store.put_blob(b"state " * 100_000)
    with sqlite3.connect(tmp_path / "store.sqlite") as raw:
        (count, size) = raw.execute("SELECT count(*), sum(length(payload)) FROM blobs").fetchone()
    raw.close()
    assert count == 1
    assert size < 1000


def test_importing_the_package_leaves_the_database_library_alone() -> None:
    code = "import sys, flightschool.store; print('sqlalchemy' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
