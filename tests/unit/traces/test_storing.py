"""Sets in the workspace: piece by piece, whole or not at all, and sets of the first version still load."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from flightschool.digest import canonical_json, digest
from flightschool.errors import TraceError
from flightschool.records import Message
from flightschool.store import SqlStore
from flightschool.traces import (
    RecordedCall,
    RecordedEpisode,
    RecordedTurn,
    StoredTraces,
    TraceRecord,
    TraceSet,
    Usage,
    load_traces,
    save_episodes,
    save_traces,
    storing,
    trace_names,
)

LATER = ("turns", "labels", "started_at", "usage", "children", "relation", "parent_call")


def made(name: str, size: int = 10) -> RecordedEpisode:
    call = RecordedCall(turn=0, id="c", name="get", arguments={"n": 1}, text="x" * size, value="x" * size)
    return RecordedEpisode(
        id=name, source="f:1", messages=(Message(role="user", content="\u2028hi\r\n"),), calls=(call,)
    )


def test_a_set_of_the_first_version_loads_and_keeps_its_digest() -> None:
    traces = TraceSet(format="otlp", episodes=(made("a"), made("b")))
    plain = msgspec.to_builtins(traces)
    for episode in plain["episodes"]:
        for key in LATER:
            del episode[key]
    with SqlStore("sqlite://") as store:
        blob = store.put_blob(canonical_json(plain))
        old = {"name": "old", "format": "otlp", "num_episodes": 2, "num_calls": 2, "blob": blob}
        store.put("traces", "old", msgspec.convert(old, TraceRecord))
        assert load_traces(store, "old") == traces
    assert traces.digest == digest(plain) == blob


def test_later_fields_change_the_digest_and_come_back() -> None:
    child = msgspec.structs.replace(made("a/1"), relation="sub-agent", parent_call="c")
    turn = RecordedTurn(turn=0, model="m", usage=Usage(cost_usd=0.5))
    rich = msgspec.structs.replace(made("a"), turns=(turn,), labels={"x": 1}, children=(child,), started_at="2025")
    traces = TraceSet(format="x", episodes=(rich,))
    assert traces.digest != TraceSet(format="x", episodes=(made("a"),)).digest
    with SqlStore("sqlite://") as store:
        assert save_traces(store, "t", traces).blob == traces.digest
        assert load_traces(store, "t") == traces


def test_large_sets_are_kept_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "_PIECE_BYTES", 1000)
    traces = TraceSet(format="x", episodes=tuple(made(f"e{n}", 300) for n in range(9)))
    with SqlStore("sqlite://") as store:
        record = save_traces(store, "t", traces)
        assert len(record.pieces) > 2
        assert load_traces(store, "t") == traces
        assert [episode.id for episode in StoredTraces(store, "t")] == [f"e{n}" for n in range(9)]


def test_an_error_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "_PIECE_BYTES", 10)
    kept: list[bytes] = []

    def keep(data: bytes) -> str:
        kept.append(data)
        return "digest"

    def breaking() -> Iterator[RecordedEpisode]:
        yield made("a")
        yield made("b")
        raise TraceError("broken line")

    with SqlStore("sqlite://") as store:
        monkeypatch.setattr(store, "put_blob", keep)
        with pytest.raises(TraceError, match="broken line"):
            save_episodes(store, "t", breaking(), "x")
        assert trace_names(store) == ()
    assert kept == []


def test_an_empty_set_is_a_set() -> None:
    with SqlStore("sqlite://") as store:
        save_traces(store, "t", TraceSet(format="x", episodes=()))
        assert load_traces(store, "t").episodes == ()
