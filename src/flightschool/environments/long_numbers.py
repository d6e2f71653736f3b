"""Numbers that traces may hold and the workspace's records cannot: integers of more than 64 bits.

A call with such an argument could be neither shown nor stored when a policy makes it again. It counts as incomplete,
and `env build` says how many calls are; answers and states are kept as JSON text and may hold any number.
"""

from __future__ import annotations

import msgspec

from flightschool.records import Json, ToolSpec
from flightschool.traces import RecordedCall, RecordedEpisode, TraceSet

__all__ = ["has_long_number", "without_long_numbers"]

_LEAST, _MOST = -(2**63), 2**64 - 1


def has_long_number(value: Json) -> bool:
    """Whether an integer of more than 64 bits stands anywhere in a value."""
    if isinstance(value, dict):
        return any(map(has_long_number, value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_long_number, value))
    return isinstance(value, int) and not _LEAST <= value <= _MOST


def without_long_numbers(traces: TraceSet) -> TraceSet:
    """The same traces, calls with such arguments marked incomplete; bounds of schemas become the nearest float."""
    episodes = tuple(_episode(one) for one in traces.episodes)
    return traces if episodes == traces.episodes else msgspec.structs.replace(traces, episodes=episodes)


def _episode(episode: RecordedEpisode) -> RecordedEpisode:
    calls = tuple(map(_call, episode.calls))
    tools = tuple(map(_tool, episode.tools))
    if calls == episode.calls and tools == episode.tools:
        return episode
    return msgspec.structs.replace(episode, calls=calls, tools=tools)


def _call(call: RecordedCall) -> RecordedCall:
    return msgspec.structs.replace(call, complete=False) if has_long_number(call.arguments) else call


def _tool(spec: ToolSpec) -> ToolSpec:
    if not has_long_number(spec.parameters):
        return spec
    rounded: dict[str, Json] = _rounded(spec.parameters)
    return msgspec.structs.replace(spec, parameters=rounded)


def _rounded(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if not has_long_number(value):
        return value
    try:
        return float(value)
    except OverflowError:  # beyond the floats as well
        return str(value)
