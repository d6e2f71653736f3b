"""Recorded answers, keyed so that only state-correct ones are given.

A key is (initial state, digest of the successful writes before the call, tool, arguments). Equal arguments alone
would answer a read after a write with what was true before it. Arguments are compared as JSON values (1 equals 1.0).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from flightschool.digest import canonical_json
from flightschool.records import Json, Record
from flightschool.traces import RecordedCall, RecordedEpisode
from flightschool.verification.rules import FAULTS_THAT_TOOK_EFFECT

__all__ = [
    "Coverage",
    "Recording",
    "Recordings",
    "Share",
    "call_key",
    "coverage",
    "extend_history",
    "histories",
    "record_answers",
]

Key: TypeAlias = tuple[str, str, bytes]
"""Initial state, write history, tool with arguments."""

ScopeOf: TypeAlias = Callable[[RecordedEpisode], str]
"""Names the initial state that an episode started from; only episodes of one state answer for one another."""


class Recording(Record, frozen=True, kw_only=True):
    """One answer, as it is kept with an environment."""

    scope: str
    history: str
    """Digest of the successful writes before it; empty at the start."""
    name: str
    arguments: dict[str, Json]
    value: Json
    is_error: bool
    seen: int
    """Episodes that recorded this answer under this key."""


class Share(Record, frozen=True, kw_only=True):
    """A share with its counts."""

    hits: int
    total: int

    @property
    def value(self) -> float:
        """Hits / total, 0 of nothing."""
        return self.hits / self.total if self.total else 0.0


class Coverage(Record, frozen=True, kw_only=True):
    """Leave-one-episode-out hit rates: could the *other* episodes have answered this call?"""

    calls: Share
    reads: Share
    writes: Share
    episodes: Share
    """Episodes with every call covered."""
    by_tool: dict[str, Share]


class Recordings:
    """The answers of an environment, looked up by key."""

    def __init__(self, recordings: Iterable[Recording]) -> None:
        self._answers: dict[Key, Recording] = {
            (r.scope, r.history, call_key(r.name, r.arguments)): r for r in recordings
        }

    def __len__(self) -> int:
        return len(self._answers)

    def find(self, scope: str, history: str, name: str, arguments: Mapping[str, Json]) -> Recording | None:
        """The recorded answer of exactly this call in exactly this state, or None."""
        return self._answers.get((scope, history, call_key(name, arguments)))


def call_key(name: str, arguments: Mapping[str, Json]) -> bytes:
    """Tool and arguments in canonical form: keys sorted, whole floats as integers."""
    return canonical_json([name, _normal(dict(arguments))])


def extend_history(history: str, name: str, arguments: Mapping[str, Json]) -> str:
    """Digest of a write history with one more successful write."""
    return hashlib.sha256(history.encode() + call_key(name, arguments)).hexdigest()[:32]


def _normal(value: Json) -> Json:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _normal(item) for key, item in value.items()}
    return [_normal(item) for item in value] if isinstance(value, list) else value


def record_answers(
    episodes: Sequence[RecordedEpisode], writes: Collection[str], scope_of: ScopeOf
) -> tuple[tuple[Recording, ...], int]:
    """All answers of the episodes; of differing answers under one key the most frequent, then the first.

    Args:
        episodes: what was recorded.
        writes: names of the tools that change state.
        scope_of: initial state of each episode.

    Returns:
        The answers in the order of first sight, and the number of keys under which answers differed.
    """
    seen: dict[Key, dict[bytes, list[RecordedCall]]] = {}
    for episode in episodes:
        scope = scope_of(episode)
        for history, call in histories(episode, writes):
            if call.complete and not call.fault:
                key = (scope, history, call_key(call.name, call.arguments))
                seen.setdefault(key, {}).setdefault(canonical_json([call.value, call.is_error]), []).append(call)
    kept = []
    for (scope, history, _), answers in seen.items():
        calls = max(answers.values(), key=len)  # max keeps the first of equals
        kept.append(
            Recording(
                scope=scope,
                history=history,
                name=calls[0].name,
                arguments=calls[0].arguments,
                value=calls[0].value,
                is_error=calls[0].is_error,
                seen=len(calls),
            )
        )
    return tuple(kept), sum(len(answers) > 1 for answers in seen.values())


def histories(episode: RecordedEpisode, writes: Collection[str]) -> Iterator[tuple[str, RecordedCall]]:
    """Calls with the write history before them, up to the first write whose effect is not known."""
    history = ""
    for call in episode.calls:
        yield history, call
        if call.name in writes:
            if not call.complete:
                return
            if not call.is_error or call.fault in FAULTS_THAT_TOOK_EFFECT:
                history = extend_history(history, call.name, call.arguments)


# ------------------------------------------------------------------------------------------------ coverage


def coverage(
    episodes: Sequence[RecordedEpisode],
    writes: Collection[str],
    scope_of: ScopeOf,
    key: Literal["arguments", "writes", "calls"] = "writes",
) -> Coverage:
    """Leave-one-episode-out hit rates.

    Args:
        episodes: what was recorded; incomplete and faulted calls are not counted.
        writes: names of the tools that change state.
        scope_of: initial state of each episode.
        key: what must be equal beside scope, tool and arguments: nothing more (``arguments``), the successful writes
            before (``writes``, what environments use), or all calls before (``calls``).
    """
    keyed = [_keyed(episode, writes, scope_of(episode), key) for episode in episodes]
    owners: dict[Key, set[int]] = {}
    for index, calls in enumerate(keyed):
        for full, _ in calls:
            owners.setdefault(full, set()).add(index)
    counts: dict[str, list[int]] = {}
    whole = 0
    for calls in keyed:
        covered = [len(owners[full]) > 1 for full, _ in calls]
        whole += all(covered)
        for hit, (_, name) in zip(covered, calls, strict=True):
            entry = counts.setdefault(name, [0, 0])
            entry[0] += hit
            entry[1] += 1
    return Coverage(
        calls=_sum(counts, set(counts)),
        reads=_sum(counts, set(counts) - set(writes)),
        writes=_sum(counts, set(counts) & set(writes)),
        episodes=Share(hits=whole, total=len(episodes)),
        by_tool={name: Share(hits=hits, total=total) for name, (hits, total) in sorted(counts.items())},
    )


def _keyed(episode: RecordedEpisode, writes: Collection[str], scope: str, key: str) -> list[tuple[Key, str]]:
    found: list[tuple[Key, str]] = []
    everything = ""
    for history, call in histories(episode, writes):
        if call.complete and not call.fault:
            before = {"arguments": "", "writes": history, "calls": everything}[key]
            found.append(((scope, before, call_key(call.name, call.arguments)), call.name))
        everything = extend_history(everything, call.name, call.arguments)
    return found


def _sum(counts: Mapping[str, Sequence[int]], names: Collection[str]) -> Share:
    return Share(hits=sum(counts[name][0] for name in names), total=sum(counts[name][1] for name in names))
