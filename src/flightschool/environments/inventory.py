"""The tool inventory: which tools the traces show, with what arguments, to what effect.

A recorded definition wins; what is missing is inferred from the calls and marked as a guess with its reason. Where
name and evidence disagree, evidence wins: a tool called "get" after which equal reads answer differently changes
something. A tool that nothing is known about counts as a write, which is the safe mistake.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median, pstdev

import msgspec

from flightschool.digest import canonical_json
from flightschool.environments.schemas import infer_schema
from flightschool.records import Effect, Json, Latency, Record, ToolSpec
from flightschool.tools.schema import json_equal
from flightschool.traces import RecordedCall, RecordedEpisode, effect_by_name

__all__ = ["InventoryEntry", "take_inventory"]

_LEAST_EVIDENCE = 2
"""Observed changes that overrule a name; one alone may be another actor's doing."""


class InventoryEntry(Record, frozen=True, kw_only=True):
    """One tool with what the traces tell about it."""

    spec: ToolSpec
    effect_reason: str
    """``stated`` or the reason of the guess."""
    schema_inferred: bool
    num_calls: int
    num_errors: int

    @property
    def effect_guessed(self) -> bool:
        """Whether the effect is a guess."""
        return self.effect_reason != "stated"


def take_inventory(episodes: Sequence[RecordedEpisode]) -> tuple[InventoryEntry, ...]:
    """All tools that are defined or called in the episodes, in the order of first sight."""
    stated: dict[str, Effect] = {}
    defined: dict[str, ToolSpec] = {}
    calls: dict[str, list[RecordedCall]] = {}
    arguments: dict[str, dict[bytes, dict[str, Json]]] = {}
    for episode in episodes:
        for spec in episode.tools:
            defined.setdefault(spec.name, spec)
            calls.setdefault(spec.name, [])
            if spec.name in episode.stated_effects:
                stated.setdefault(spec.name, spec.effect)
        task = episode.hint.id or episode.instruction
        for call in episode.calls:
            calls.setdefault(call.name, []).append(call)
            if call.complete and not call.fault:
                # repeated trials of one task are no independent sightings
                arguments.setdefault(call.name, {})[canonical_json([task, call.arguments])] = call.arguments
    evidence = _changes(episodes)
    entries = []
    for name, found in calls.items():
        effect, reason = (stated[name], "stated") if name in stated else _guess(name, evidence.get(name, 0))
        spec = defined.get(name) or _inferred(name, tuple(arguments.get(name, {}).values()))
        if name not in defined or name not in stated:
            idempotent = spec.idempotent or effect is Effect.READ
            spec = msgspec.structs.replace(spec, effect=effect, idempotent=idempotent, latency=_latency(found))
        entries.append(
            InventoryEntry(
                spec=spec,
                effect_reason=reason,
                schema_inferred=name not in defined,
                num_calls=len(found),
                num_errors=sum(call.is_error for call in found),
            )
        )
    return tuple(entries)


def _inferred(name: str, arguments: Sequence[dict[str, Json]]) -> ToolSpec:
    return ToolSpec(
        name=name,
        description=f"{name.replace('_', ' ')} (no description in the traces)",
        parameters={"type": "object", "properties": {}} | infer_schema(arguments),
    )


def _guess(name: str, changes: int) -> tuple[Effect, str]:
    effect, verb = effect_by_name(name)
    if changes >= _LEAST_EVIDENCE and effect in (None, Effect.READ):
        return Effect.WRITE, f"guess: {changes} times an equal read answered differently after it"
    if effect is None:
        return Effect.WRITE, "guess: no known verb in the name; taken as a write to be safe"
    return effect, f"guess: the verb {verb!r}"


def _latency(calls: Iterable[RecordedCall]) -> Latency:
    """Lognormal fit of the recorded durations; the default where fewer than three were recorded."""
    durations = [
        call.end_ms - call.start_ms
        for call in calls
        if call.start_ms is not None and call.end_ms is not None and call.end_ms > call.start_ms and not call.fault
    ]
    if len(durations) < 3:
        return Latency()
    logs = [math.log(duration) for duration in durations]
    return Latency(median_ms=round(median(durations), 3), sigma=round(pstdev(logs, fmean(logs)), 4))


def _changes(episodes: Iterable[RecordedEpisode]) -> Mapping[str, int]:
    """Tool → how often an equal read answered differently when only this tool was called between the two."""
    found: dict[str, int] = {}
    for episode in episodes:
        last: dict[bytes, RecordedCall] = {}
        between: dict[bytes, set[str]] = {}
        for call in episode.calls:
            if not call.complete or call.fault:
                last.clear()  # what this call did is not known
                continue
            key = canonical_json([call.name, call.arguments])
            before = last.get(key)
            if before is not None and not call.is_error and not json_equal(before.value, call.value):
                suspects = between[key] - {call.name}
                if len(suspects) == 1:
                    (suspect,) = suspects
                    found[suspect] = found.get(suspect, 0) + 1
            if not call.is_error:
                for others in between.values():
                    others.add(call.name)
                if effect_by_name(call.name)[0] is Effect.READ:
                    last[key], between[key] = call, set()
    return found
