"""Erasing: what is gone is gone from every byte of the files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from flightschool.errors import InputError, NotFoundError
from flightschool.records import ToolCall
from flightschool.store import SqlStore, erase, everything

SECRET = "the thirteen sealed words that nobody may read before the day of acceptance"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with SqlStore(f"sqlite:///{tmp_path / 'store.sqlite'}") as opened:
        yield opened


def call(text: str) -> ToolCall:
    return ToolCall(id="a", name="tool", arguments={"text": text})


def decoded(folder: Path) -> bytes:
    """All bytes of all files, and every zstandard frame that can be cut out of them."""
    raw = b"".join(path.read_bytes() for path in folder.iterdir())
    found, start = [raw], raw.find(b"\x28\xb5\x2f\xfd")
    while start >= 0:
        with contextlib.suppress(zstandard.ZstdError):
            found.append(zstandard.ZstdDecompressor().decompress(raw[start:], max_output_size=1 << 20))
        start = raw.find(b"\x28\xb5\x2f\xfd", start + 1)
    return b"\n".join(found)


def test_everything_shows_records_and_blobs_unpacked(store: SqlStore) -> None:
    store.put("k", "a", call("one"))
    digest = store.put_blob(b"two")
    found = {(kind, key): data for kind, key, data in everything(store)}
    assert set(found) == {("k", "a"), ("blob", digest)}
    assert found["blob", digest] == b"two"
    assert b"one" in found["k", "a"]


def test_rows_go_and_their_bytes_with_them(store: SqlStore, tmp_path: Path) -> None:
    for number in range(300):
        store.put("other", f"{number}", call(f"filler {number}"))
    store.put("k", "a", call(SECRET))
    digest = store.put_blob(SECRET.encode())
    assert SECRET.encode() in decoded(tmp_path)  # the search below would find it
    erase(store, [("k", "a")], [digest])
    assert SECRET.encode() not in decoded(tmp_path)
    assert not store.has("k", "a")
    with pytest.raises(NotFoundError):
        store.get_blob(digest)
    assert len(store.keys("other")) == 300
    erase(store, [("k", "a")], [digest])  # again: nothing to do


def test_the_log_cannot_be_erased(store: SqlStore) -> None:
    with pytest.raises(InputError, match="append-only"):
        erase(store, [("log_entry", "000000000000")])


def test_memory_stores_erase_too() -> None:
    with SqlStore("sqlite://") as store:
        digest = store.put_blob(b"x")
        erase(store, (), [digest])
        assert list(everything(store)) == []
