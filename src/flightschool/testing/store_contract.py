"""What every ``protocols.Store`` must do, as a class of tests to inherit from.

A store of your own passes when this passes::

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self) -> Iterator[Store]:
            yield MyStore(...)

Needs no test framework itself; pytest collects the inherited methods and hands in the fixture ``store``, which must
be empty and new for each test.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from flightschool.errors import InputError, NotFoundError, StoreError
from flightschool.protocols import Store
from flightschool.records import Message, ToolCall

__all__ = ["StoreContract"]


@contextmanager
def _raises(kind: type[Exception]) -> Iterator[list[Exception]]:
    caught: list[Exception] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
        return
    raise AssertionError(f"{kind.__name__} was not raised")


class _Other(msgspec.Struct):
    number: int


class _Unwritable(msgspec.Struct):
    thing: object


def _call(id_: str, **arguments: object) -> ToolCall:
    return ToolCall(id=id_, name="tool", arguments=arguments)


class StoreContract:
    """Inherit, and give a fixture ``store``."""

    def test_a_record_comes_back_equal(self, store: Store) -> None:
        """Nested records, unicode and every JSON type survive."""
        call = _call("1", text="Ölstand ✓", number=-1.5, none=None, nested={"list": [1, "a", True], "empty": {}})
        message = Message(role="assistant", content="größer", tool_calls=(call,))
        store.put("message", "a/b c", message)
        assert store.get("message", "a/b c", Message) == message

    def test_put_replaces_and_keeps_the_place(self, store: Store) -> None:
        """Order is the order of first writing; replacing does not move a record."""
        for key in ("b", "a", "c"):
            store.put("call", key, _call("old"))
        store.put("call", "b", _call("new"))
        assert list(store.keys("call")) == ["b", "a", "c"]
        assert store.get("call", "b", ToolCall).id == "new"

    def test_kinds_are_apart(self, store: Store) -> None:
        """The same key may exist under several kinds."""
        store.put("one", "k", _call("1"))
        store.put("two", "k", _call("2"))
        store.delete("one", "k")
        assert not store.has("one", "k")
        assert store.get("two", "k", ToolCall).id == "2"

    def test_delete_gives_up_the_place(self, store: Store) -> None:
        """A deleted record that is written again comes last; deleting what is not there is fine."""
        for key in ("a", "b"):
            store.put("call", key, _call(key))
        store.delete("call", "a")
        store.delete("call", "never written")
        store.put("call", "a", _call("again"))
        assert list(store.keys("call")) == ["b", "a"]

    def test_prefixes_are_literal(self, store: Store) -> None:
        """Wildcards mean nothing and case matters."""
        for key in ("run/1", "run/2", "Run/3", "r%n/4", "run_x"):
            store.put("call", key, _call(key))
        assert list(store.keys("call", "run/")) == ["run/1", "run/2"]
        assert list(store.keys("call", "r%")) == ["r%n/4"]
        assert list(store.keys("call", "run_")) == ["run_x"]
        assert [(key, call.id) for key, call in store.items("call", ToolCall, "run/")] == [
            ("run/1", "run/1"),
            ("run/2", "run/2"),
        ]

    def test_items_pages_through_many(self, store: Store) -> None:
        """All records come, in order, however many there are."""
        store.put_many([("call", f"k{i}", _call(str(i))) for i in range(700)])
        assert [call.id for _, call in store.items("call", ToolCall)] == [str(i) for i in range(700)]

    def test_put_new_writes_once(self, store: Store) -> None:
        """The first writer wins and the second is told so."""
        assert store.put_new("call", "k", _call("first")) is True
        assert store.put_new("call", "k", _call("second")) is False
        assert store.get("call", "k", ToolCall).id == "first"

    def test_put_new_has_one_winner_among_threads(self, store: Store) -> None:
        """Compare-and-set: the audit log rests on it."""
        won: list[str] = []
        barrier = threading.Barrier(4)

        def race(name: str) -> None:
            barrier.wait()
            won.extend(f"{slot}:{name}" for slot in range(10) if store.put_new("race", str(slot), _call(name)))

        threads = [threading.Thread(target=race, args=(str(i),)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 10
        assert sorted(won) == sorted(f"{key}:{call.id}" for key, call in store.items("race", ToolCall))

    def test_put_many_is_all_or_nothing(self, store: Store) -> None:
        """One record that cannot be written keeps out the others."""
        store.put("call", "kept", _call("before"))
        with _raises(TypeError):
            store.put_many([("call", "kept", _call("after")), ("call", "x", _Unwritable(thing=object()))])
        with _raises(InputError):
            store.put_many([("call", "kept", _call("after")), ("call", "", _call("nameless"))])
        assert list(store.keys("call")) == ["kept"]
        assert store.get("call", "kept", ToolCall).id == "before"
        store.put_many([])

    def test_missing_records_name_their_neighbours(self, store: Store) -> None:
        """A typing error gets the key that was meant."""
        store.put("suite", "desk-clean", _call("1"))
        with _raises(NotFoundError) as caught:
            store.get("suite", "desk-claen", ToolCall)
        assert "desk-clean" in str(caught[0])
        with _raises(NotFoundError):
            store.get("nothing", "k", ToolCall)

    def test_a_record_of_another_shape_is_refused(self, store: Store) -> None:
        """Reading under the wrong type is an error, never a half-filled record."""
        store.put("call", "k", _Other(number=3))
        with _raises(StoreError):
            store.get("call", "k", ToolCall)

    def test_names_must_be_printable(self, store: Store) -> None:
        """Keys appear in listings and errors."""
        for bad in ("", "a\0b", "a\nb", "\ud800"):
            with _raises(InputError):
                store.put("call", bad, _call("1"))
            with _raises(InputError):
                store.put(bad, "k", _call("1"))

    def test_blobs_are_named_by_their_content(self, store: Store) -> None:
        """Equal bytes have one digest; empty and large ones come back as they were."""
        for data in (b"", b"x", bytes(range(256)) * 4000):
            digest = store.put_blob(data)
            assert digest.startswith("sha256:")
            assert store.put_blob(bytes(data)) == digest
            assert store.get_blob(digest) == data

    def test_missing_blobs_are_not_found(self, store: Store) -> None:
        """Unknown digests raise."""
        with _raises(NotFoundError):
            store.get_blob("sha256:" + "0" * 64)
