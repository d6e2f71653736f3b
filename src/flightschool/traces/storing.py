"""Trace sets in the workspace: a small record by name, and the episodes in compressed pieces.

A set is written piece by piece and read piece by piece, so that its size is bounded by the disk. Nothing is written
before the last episode has been read without error: until then episodes wait in a temporary file, already redacted.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from flightschool.errors import StoreError
from flightschool.protocols import Store
from flightschool.records import Record
from flightschool.traces.records import RecordedEpisode, SetDigest, TraceSet, episode_json

__all__ = ["StoredTraces", "TraceRecord", "load_traces", "save_episodes", "save_traces", "trace_names"]

_KIND = "traces"
_PIECE_BYTES = 1 << 22
_IN_MEMORY_BYTES = 1 << 24


class TraceRecord(Record, frozen=True, kw_only=True):
    """A trace set as the workspace lists it."""

    name: str
    format: str
    num_episodes: int
    num_calls: int
    blob: str
    """Digest of the set. Sets of the first version keep all their bytes in one blob of this digest."""
    pieces: tuple[str, ...] = ()
    """Digests of blobs of JSON lines, one episode a line, in order."""
    redacted: bool | None = None
    """Whether the episodes were redacted on their way in; None where no one said."""
    replaced: dict[str, int] = msgspec.field(default_factory=dict)
    """Kind of what was redacted → replacements."""


class StoredTraces:
    """A set in the workspace; iterating reads one piece after the other.

    Raises:
        NotFoundError: no such name.
        StoreError: from iterating: the episodes were written by another version.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self.record = store.get(_KIND, name, TraceRecord)

    @property
    def format(self) -> str:
        """Format or formats that the set was read from."""
        return self.record.format

    def __iter__(self) -> Iterator[RecordedEpisode]:
        if not self.record.pieces:
            yield from self._decoded(self._store.get_blob(self.record.blob), TraceSet).episodes
        for piece in self.record.pieces:
            for line in self._store.get_blob(piece).splitlines():
                yield self._decoded(line, RecordedEpisode)

    def _decoded(self, data: bytes, kind: type[Any]) -> Any:
        try:
            return msgspec.convert(json.loads(data), kind)
        except (msgspec.ValidationError, ValueError) as error:
            raise StoreError(
                f"traces cannot be read: {error}",
                where=f"traces {self.record.name!r}",
                expected="traces saved by this version",
                mend="import the trace files again",
            ) from error


def save_episodes(
    store: Store,
    name: str,
    episodes: Iterable[RecordedEpisode],
    format: Any,  # noqa: A002
    *,
    redacted: bool | None = None,
    replaced: Any = None,
) -> TraceRecord:
    """Keep episodes under a name, replacing an older set; all of them or, if anything fails, none.

    Args:
        store: the workspace's store.
        name: name of the set.
        episodes: read once; an error in reading leaves the store as it was.
        format: a text, or a function that gives it once all episodes are read.
        redacted: whether the episodes come redacted.
        replaced: a function that gives replacements by kind once all episodes are read.
    """
    digest = SetDigest()
    num_episodes = num_calls = 0
    with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as waiting:
        for episode in episodes:
            line = episode_json(episode)
            digest.add(line)
            waiting.write(line + b"\n")
            num_episodes += 1
            num_calls += len(episode.calls)
        waiting.seek(0)
        told = format() if callable(format) else format
        record = TraceRecord(
            name=name,
            format=told,
            num_episodes=num_episodes,
            num_calls=num_calls,
            blob=digest.value(told),
            pieces=tuple(store.put_blob(piece) for piece in _pieces(waiting)) or (store.put_blob(b""),),
            redacted=redacted,
            replaced=replaced() if replaced is not None else {},
        )
    store.put(_KIND, name, record)
    return record


def save_traces(store: Store, name: str, traces: TraceSet) -> TraceRecord:
    """Keep a set under a name, replacing an older one. The pieces are written first, so that no name dangles."""
    return save_episodes(store, name, traces.episodes, traces.format)


def load_traces(store: Store, name: str) -> TraceSet:
    """A set by name, whole; see ``StoredTraces`` for errors and for sets that do not fit into memory."""
    stored = StoredTraces(store, name)
    return TraceSet(format=stored.format, episodes=tuple(stored))


def trace_names(store: Store) -> tuple[str, ...]:
    """Names of all sets, oldest first."""
    return tuple(store.keys(_KIND))


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    size = 0
    for line in lines:
        waiting.append(line)
        size += len(line)
        if size >= _PIECE_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
