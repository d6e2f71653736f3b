"""The write-ahead journal, and what a new incarnation makes of it. Imports no torch.

Order of events, each durable before the next begins:

1. an admission is written, then the group is generated;
2. every attempt that ends is written, so that a group cut short goes on with the members it has; and how much was
   sampled for attempts that did not;
3. a finished group is written, then, where a teacher is asked, what it says of the group; then it is offered to the
   trainer;
4. *consumed* is written nowhere by itself: the manifest inside a checkpoint lists the consumed groups, and the
   checkpoint's folder appears by one rename. So weights and accounts can never disagree.

After a crash the newest whole checkpoint is the truth, be it older than one that was damaged since. Every admitted
ordinal is then exactly one of: consumed by it; *offered* again, if a finished group of it was sampled under weights of
the durable lineage and is not too old; or *admitted* again, as a new group of the same task that keeps those ended
attempts which may still train. Weights of steps after the checkpoint are dead: their step numbers will be used again
for other weights, so tokens that bear them are never compared by number and never train.

The file is a row of frames ``length (4) · CRC-32 (4) · zstd(msgpack)``. A torn last frame is cut off when the file is
opened for writing; a broken frame before the end is an error.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec
import zstandard

from flightschool.errors import StoreError
from flightschool.records import Attempt, EpisodeGroup, Record, SpanKind, Task
from flightschool.training.algorithms.distill import TeacherScores
from flightschool.training.messages import Account, Manifest

__all__ = [
    "Admitted",
    "Discarded",
    "Ended",
    "Entry",
    "Finished",
    "Journal",
    "Opened",
    "Recovery",
    "Scored",
    "Tally",
    "oldest_step",
    "oldest_version",
    "read_journal",
    "recover",
]


class Opened(Record, frozen=True, kw_only=True, tag="opened"):
    """An incarnation begins."""

    incarnation: int
    step: int
    lineage: tuple[tuple[int, int], ...] = ()
    """That of the checkpoint which it begins with (see ``Manifest``); empty at step 0, and in older journals."""


class Admitted(Record, frozen=True, kw_only=True, tag="admitted"):
    """A group is about to be generated."""

    incarnation: int
    ordinal: int
    """Place of the task in the source's order; its seed and its accounts hang on it, whichever incarnation runs it."""
    group: str
    task: Task
    admitted_step: int
    temperature: float
    """Sampling temperature of the group."""


class Ended(Record, frozen=True, kw_only=True, tag="ended"):
    """An attempt of a running group ended, and not by failing infrastructure."""

    incarnation: int
    ordinal: int
    attempt: Attempt


class Discarded(Record, frozen=True, kw_only=True, tag="discarded"):
    """A try at a group ended, and some of what was sampled for it is in no attempt that ended."""

    incarnation: int
    ordinal: int
    num_tokens: int


class Finished(Record, frozen=True, kw_only=True, tag="finished"):
    """A group was generated and judged."""

    incarnation: int
    ordinal: int
    group: EpisodeGroup


class Scored(Record, frozen=True, kw_only=True, tag="scored"):
    """A teacher said of a finished group what it would have sampled; it is not asked again after a crash."""

    incarnation: int
    ordinal: int
    group: str
    scores: TeacherScores


Entry: TypeAlias = Opened | Admitted | Ended | Discarded | Finished | Scored

_HEADER = 8
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Entry] = msgspec.msgpack.Decoder(Entry)


class Journal:
    """The file, open for appending. One writer."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = sum(_HEADER + len(payload) for payload in _frames(path)) if path.exists() else 0
        self._file = path.open("ab")
        self._file.truncate(whole)
        self._compressor = zstandard.ZstdCompressor(level=3)

    def append(self, entry: Entry) -> None:
        """Write one entry; it is on disk when this returns."""
        payload = self._compressor.compress(_encode(entry))
        header = len(payload).to_bytes(4, "little") + zlib.crc32(payload).to_bytes(4, "little")
        self._file.write(header + payload)
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_journal(path: Path) -> Iterator[Entry]:
    """Entries in the order of writing.

    Raises:
        StoreError: a frame before the end is broken.
    """
    decompressor = zstandard.ZstdDecompressor()
    for payload in _frames(path):
        yield _decoder.decode(decompressor.decompress(payload))


def _frames(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    place = 0
    while place + _HEADER <= len(data):
        length = int.from_bytes(data[place : place + 4], "little")
        check = int.from_bytes(data[place + 4 : place + 8], "little")
        end = place + _HEADER + length
        payload = data[place + _HEADER : end]
        if end > len(data):
            return  # torn while writing: never acknowledged, so nothing hangs on it
        if zlib.crc32(payload) != check:
            if end == len(data):
                return
            raise StoreError(
                "the training journal is broken",
                where=f"{path} at byte {place}",
                expected="a frame with a matching check sum",
                mend="restore the file, or start a new run",
            )
        yield payload
        place = end


# ------------------------------------------------------------------------------------------------ recovery


class Tally(Record, frozen=True, kw_only=True):
    """Sums over earlier incarnations; what a new one still offers or keeps is left to it."""

    lost_tokens: int = 0
    """Sampled, and can no longer train."""
    sampled_tokens: int = 0
    """Those, and what the lineage has consumed."""
    num_finished: int = 0
    """Attempts of finished groups, infra failures apart."""
    finished_tokens: int = 0
    num_consumed: int = 0
    """Of these, attempts of groups that the lineage has consumed."""
    consumed_tokens: int = 0


class Recovery(Record, frozen=True, kw_only=True):
    """What a new incarnation starts with."""

    incarnation: int = 0
    step: int = 0
    lineage: tuple[tuple[int, int], ...] = ()
    consumed: tuple[str, ...] = ()
    accounts: tuple[Account, ...] = ()
    offer: tuple[Finished, ...] = ()
    """Finished groups that train after all, in the order of their ordinals."""
    scores: Mapping[str, TeacherScores] = msgspec.field(default_factory=dict)
    """Those of them that a teacher had scored → what it said."""
    readmit: tuple[Admitted, ...] = ()
    """Admissions to repeat, in the order of their ordinals."""
    kept: Mapping[int, tuple[Attempt, ...]] = msgspec.field(default_factory=dict)
    """Ordinal of each of them → ended attempts that may still train, one a place in the group."""
    next_ordinal: int = 0
    temperature: float | None = None
    """Sampling temperature at which the last group was admitted; None at the start of a run."""
    num_dropped: int = 0
    """Finished groups that can no longer train: too old, or sampled under dead weights."""
    tally: Tally = Tally()
    """What figures over the whole run go on from."""


def recover(journal: Path, manifest: Manifest | None, max_staleness: int) -> Recovery:
    """Compare the journal with the newest checkpoint (None: none yet, the run goes on from step 0)."""
    entries = list(read_journal(journal)) if journal.exists() else []
    incarnation = max((entry.incarnation for entry in entries), default=-1) + 1
    step = manifest.step if manifest else 0
    lineage = manifest.lineage if manifest else ()
    durable = _durable_steps([entry for entry in entries if isinstance(entry, Opened)], step, lineage)
    consumed = frozenset(manifest.consumed if manifest else ())
    admitted: dict[int, Admitted] = {}
    finished: dict[int, Finished] = {}
    ended: dict[int, dict[int, Attempt]] = {}
    scores: dict[str, TeacherScores] = {}
    settled: set[int] = set()
    num_dropped = 0
    for entry in entries:
        if isinstance(entry, Admitted):
            admitted[entry.ordinal] = entry
        elif isinstance(entry, Ended):
            if _may_train((entry.attempt,), entry.incarnation, durable, step, max_staleness):
                ended.setdefault(entry.ordinal, {})[entry.attempt.index] = entry.attempt
        elif isinstance(entry, Scored):
            scores[entry.group] = entry.scores
        elif isinstance(entry, Finished):
            if entry.group.id in consumed:
                settled.add(entry.ordinal)
            elif _may_train(entry.group.members, entry.incarnation, durable, step, max_staleness):
                finished[entry.ordinal] = entry
            else:
                num_dropped += 1
    open_ = [ordinal for ordinal in sorted(admitted) if ordinal not in settled]
    readmit = tuple(admitted[ordinal] for ordinal in open_ if ordinal not in finished)
    kept = {entry.ordinal: tuple(ended[entry.ordinal].values()) for entry in readmit if entry.ordinal in ended}
    offer = tuple(finished[ordinal] for ordinal in open_ if ordinal in finished)
    undecided = [attempt for attempts in kept.values() for attempt in attempts]
    undecided += [member for item in offer for member in item.group.baseline]
    return Recovery(
        incarnation=incarnation,
        step=step,
        lineage=lineage,
        consumed=manifest.consumed if manifest else (),
        accounts=manifest.accounts if manifest else (),
        offer=offer,
        scores={item.group.id: scores[item.group.id] for item in offer if item.group.id in scores},
        readmit=readmit,
        kept=kept,
        next_ordinal=max(admitted, default=-1) + 1,
        temperature=next((e.temperature for e in reversed(entries) if isinstance(e, Admitted)), None),
        num_dropped=num_dropped,
        tally=_tally(entries, consumed, {attempt.id for attempt in undecided}),
    )


def _tally(entries: Sequence[Entry], consumed: Collection[str], undecided: Collection[str]) -> Tally:
    """Every attempt once, by its id: one that is kept stands in the journal as it ended, and again in its group.

    Args:
        entries: of the whole journal.
        consumed: groups of the lineage.
        undecided: attempts that a new incarnation may still train.
    """
    sampled: dict[str, int] = {}
    finished: dict[str, int] = {}
    trained: dict[str, int] = {}
    for entry in entries:
        if isinstance(entry, Ended):
            sampled[entry.attempt.id] = entry.attempt.num_completion_tokens
        elif isinstance(entry, Finished):
            tokens = {member.id: member.num_completion_tokens for member in entry.group.baseline}
            finished |= tokens
            trained |= tokens if entry.group.id in consumed else {}
    sampled |= finished
    discarded = sum(entry.num_tokens for entry in entries if isinstance(entry, Discarded))
    lost = sum(n for name, n in sampled.items() if name not in trained and name not in undecided) + discarded
    settled = [n for name, n in finished.items() if name in trained or name not in undecided]
    return Tally(
        lost_tokens=lost,
        sampled_tokens=lost + sum(trained.values()),
        num_finished=len(settled),
        finished_tokens=sum(settled),
        num_consumed=len(trained),
        consumed_tokens=sum(trained.values()),
    )


def _durable_steps(opened: Sequence[Opened], step: int, lineage: tuple[tuple[int, int], ...]) -> dict[int, int]:
    """Incarnation → the last step whose weights both it and the checkpoint descend from, or are.

    An incarnation usually begins with an ancestor of every later checkpoint. Not so where a checkpoint was damaged and
    an older one was gone on with: then only what their lineages have in common is alive.

    Args:
        opened: all beginnings, in order.
        step: of the checkpoint.
        lineage: of it.
    """
    durable: dict[int, int] = {}
    lowest = step
    for entry in reversed(opened):
        lowest = min(lowest, entry.step)
        durable[entry.incarnation] = _common_step(entry.lineage, lineage) if entry.lineage else lowest
    return durable | dict(lineage)


def _common_step(one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> int:
    step = 0
    for (incarnation, last), (another, its_last) in zip(one, other, strict=False):
        if incarnation != another:
            break
        step = min(last, its_last)
        if last != its_last:
            break
    return step


def _may_train(
    members: Sequence[Attempt], incarnation: int, durable: Mapping[int, int], step: int, max_staleness: int
) -> bool:
    """Whether all tokens come from weights that the checkpoint descends from, none too old for the next step.

    Args:
        members: attempts of one group.
        incarnation: that sampled them.
        durable: incarnation → the last step of its weights that is durable.
        step: of the checkpoint.
        max_staleness: of the run.
    """
    newest = max((run.step for member in members for span in member.spans for run in span.versions), default=-1)
    return newest <= durable.get(incarnation, -1) and step - oldest_version(members, step) <= max_staleness


def oldest_version(members: Sequence[Attempt], default: int) -> int:
    """Version of the oldest token that may train; ``default`` if nothing was sampled."""
    steps = (
        run.step
        for member in members
        if member.reward is not None
        for span in member.spans
        if span.kind is SpanKind.COMPLETION
        for run in span.versions
    )
    return min(steps, default=default)


def oldest_step(group: EpisodeGroup) -> int:
    """Version of a group's oldest token that may train; the admission's version if nothing was sampled."""
    return oldest_version(group.members, group.admitted_step)
