"""Trace sets in the workspace: a small record by name, and the episodes as one compressed blob."""

from __future__ import annotations

import json

import msgspec

from flightschool.digest import canonical_json
from flightschool.errors import StoreError
from flightschool.protocols import Store
from flightschool.records import Record
from flightschool.traces.records import TraceSet

__all__ = ["TraceRecord", "load_traces", "save_traces", "trace_names"]

_KIND = "traces"


class TraceRecord(Record, frozen=True, kw_only=True):
    """A trace set as the workspace lists it."""

    name: str
    format: str
    num_episodes: int
    num_calls: int
    blob: str
    """Digest of the episodes' bytes, which is the digest of the set."""


def save_traces(store: Store, name: str, traces: TraceSet) -> TraceRecord:
    """Keep a set under a name, replacing an older one. The blob is written first, so that no name dangles."""
    record = TraceRecord(
        name=name,
        format=traces.format,
        num_episodes=len(traces.episodes),
        num_calls=sum(len(episode.calls) for episode in traces.episodes),
        blob=store.put_blob(canonical_json(traces)),
    )
    store.put(_KIND, name, record)
    return record


def load_traces(store: Store, name: str) -> TraceSet:
    """A set by name.

    Raises:
        NotFoundError: no such name.
        StoreError: the episodes were written by another version.
    """
    record = store.get(_KIND, name, TraceRecord)
    try:
        return msgspec.convert(json.loads(store.get_blob(record.blob)), TraceSet)
    except (msgspec.ValidationError, ValueError) as error:
        raise StoreError(
            f"traces cannot be read: {error}",
            where=f"traces {name!r}",
            expected="traces saved by this version",
            mend="import the trace files again",
        ) from error


def trace_names(store: Store) -> tuple[str, ...]:
    """Names of all sets, oldest first."""
    return tuple(store.keys(_KIND))
