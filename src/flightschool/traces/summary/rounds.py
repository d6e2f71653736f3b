"""How the calls of an episode hang together: what could have run side by side, was asked twice, or once too often.

A call depends on an answer if one of its argument values stands in that answer and stood nowhere before it. Writes
are barriers: nothing is moved across them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from flightschool.digest import canonical_json
from flightschool.records import Json
from flightschool.traces.records import RecordedCall, RecordedEpisode

__all__ = ["Round", "Run", "fan_out_runs", "joinable", "mergeable", "repeated_reads", "rounds_of"]

_LEAST_RUN = 3
"""Calls of one tool that make an N+1 pattern."""


class Round(msgspec.Struct):
    """The calls of one assistant message."""

    turn: int
    segment: int
    """Number of the user's words before it: rounds of two segments never join."""
    calls: list[RecordedCall]


class Run(msgspec.Struct, frozen=True):
    """One N+1 run."""

    lists: str
    reads: str
    argument: str
    num_calls: int


def rounds_of(episode: RecordedEpisode) -> list[Round]:
    """Rounds in the order of their turns."""
    segments: dict[int, int] = {}
    turn, segment = -1, 0
    for message in episode.messages:
        if message.role == "assistant":
            turn += 1
            segments[turn] = segment
        elif message.role == "user":
            segment += 1
    found: dict[int, Round] = {}
    for call in episode.calls:
        found.setdefault(call.turn, Round(call.turn, segments.get(call.turn, 0), [])).calls.append(call)
    return [found[turn] for turn in sorted(found)]


def mergeable(rounds: Sequence[Round], reads: frozenset[str]) -> int:
    """Rounds saved by merging runs of consecutive one-tool read rounds."""
    saved = 0
    for before, after in pairwise(rounds):
        names, next_names = ({call.name for call in one.calls} for one in (before, after))
        same = names == next_names and len(names) == 1 and names <= reads
        saved += same and before.segment == after.segment
    return saved


def joinable(rounds: Sequence[Round], reads: frozenset[str], said: str) -> int:
    """Rounds saved by joining consecutive rounds of reads whose arguments come from nowhere in the rounds joined.

    Args:
        rounds: of one episode.
        reads: names of the tools that read.
        said: words of user and system, from which arguments may come as well.
    """
    saved = 0
    known: set[str] = set()
    group: set[str] = set()
    group_text: list[str] = []
    last = -1
    for one in rounds:
        only_reads = all(call.name in reads for call in one.calls)
        joins = last == one.segment and only_reads and not _depends(one, known, group, group_text, said)
        if joins:
            saved += 1
        else:
            known |= group
            group, group_text = set(), []
        for call in one.calls:
            group |= set(leaves(call.value))
            group_text.append(call.text)
        last = one.segment if only_reads else -1
    return saved


def _depends(one: Round, known: set[str], group: set[str], group_text: list[str], said: str) -> bool:
    for call in one.calls:
        for value in set(_given(call.arguments)):
            if value in known or (len(value) > 2 and value in said):
                continue
            if value in group or (len(value) > 3 and any(value in text for text in group_text)):
                return True
    return False


def _given(arguments: Json) -> Iterator[str]:
    """Values of arguments; their names say nothing about where a value comes from."""
    if isinstance(arguments, dict):
        for inner in arguments.values():
            yield from _given(inner)
    elif isinstance(arguments, list):
        for inner in arguments:
            yield from _given(inner)
    else:
        yield from leaves(arguments)


def leaves(value: Json) -> Iterator[str]:
    """Texts and numbers in a value, as texts; keys of objects count, since maps are keyed by id."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    elif isinstance(value, str):
        if value:
            yield value
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def repeated_reads(episode: RecordedEpisode, reads: frozenset[str]) -> list[str]:
    """Tool names of reads that were asked again with nothing written between."""
    seen: set[bytes] = set()
    found = []
    for call in episode.calls:
        if call.name not in reads:
            seen.clear()
            continue
        key = canonical_json([call.name, call.arguments])
        if key in seen and not call.is_error:
            found.append(call.name)
        seen.add(key)
    return found


def fan_out_runs(rounds: Sequence[Round], reads: frozenset[str]) -> list[Run]:
    """N+1 patterns: at least three reads with one tool, each with a value of one argument out of one earlier answer."""
    found: list[Run] = []
    earlier: list[RecordedCall] = []
    run: list[RecordedCall] = []
    segment = -1
    for call, of_segment in [(call, one.segment) for one in rounds for call in one.calls]:
        goes_on = run and run[-1].name == call.name and call.name in reads and of_segment == segment
        if not goes_on:
            found += _as_run(run, earlier)
            earlier += run
            run = []
        run.append(call)
        segment = of_segment
    return found + _as_run(run, earlier)


def _as_run(run: Sequence[RecordedCall], earlier: Sequence[RecordedCall]) -> list[Run]:
    if len(run) < _LEAST_RUN:
        return []
    for argument in run[0].arguments:
        values = [call.arguments.get(argument) for call in run]
        taken = {str(value) for value in values if isinstance(value, str | int) and not isinstance(value, bool)}
        if len(taken) < _LEAST_RUN:
            continue
        for source in reversed(earlier):
            if len(taken & set(leaves(source.value))) >= max(_LEAST_RUN, len(taken) - 1):
                return [Run(lists=source.name, reads=run[0].name, argument=argument, num_calls=len(run))]
    return []
