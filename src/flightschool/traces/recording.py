"""From our own attempts to traces: what the built-in harness did, in the form that every exporter writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flightschool.records import Attempt, Json, Task, ToolSpec
from flightschool.traces.effects import looks_like_error
from flightschool.traces.loading import result_value
from flightschool.traces.records import RecordedCall, RecordedEpisode, TaskHint

__all__ = ["episode_from_attempt"]


def episode_from_attempt(
    attempt: Attempt,
    task: Task,
    tools: Sequence[ToolSpec],
    *,
    episode_id: str = "",
    trial: int = 0,
    metadata: Mapping[str, Json] | None = None,
) -> RecordedEpisode:
    """An attempt as a recorded episode: conversation, calls with virtual times and faults, task, outcome.

    Args:
        attempt: what was run. Calls are read from its messages, times and faults from its events.
        task: the task that it attempted.
        tools: definitions to keep in the trace; their effects count as stated.
        episode_id: id of the episode; by default the attempt's.
        trial: number of the attempt at this task.
        metadata: kept as it is.
    """
    events = {event.call.id: event for event in attempt.events}
    calls: list[RecordedCall] = []
    answers = {m.tool_call_id: m.content for m in attempt.messages if m.role == "tool"}
    turn = -1
    for message in attempt.messages:
        turn += message.role == "assistant"
        for call in message.tool_calls:
            event, text = events.get(call.id), answers.get(call.id)
            value = result_value(text or "")
            calls.append(
                RecordedCall(
                    turn=turn,
                    id=call.id,
                    name=call.name,
                    arguments=call.arguments,
                    text=text or "",
                    value=value,
                    is_error=event.result.is_error if event is not None else looks_like_error(value),
                    start_ms=None if event is None else round(event.start_ms, 3),
                    end_ms=None if event is None else round(event.end_ms, 3),
                    complete=text is not None,
                    fault=event.result.fault.kind if event is not None and event.result.fault is not None else "",
                )
            )
    return RecordedEpisode(
        id=episode_id or attempt.id,
        source=f"attempt {attempt.id}",
        messages=attempt.messages,
        calls=tuple(calls),
        tools=tuple(tools),
        stated_effects=tuple(spec.name for spec in tools),
        hint=TaskHint(id=task.id, family=task.family, stratum=task.stratum, trial=trial),
        success=None if attempt.reward is None else attempt.reward.success,
        reward=None if attempt.reward is None else attempt.reward.total,
        metadata=dict(metadata or {}),
    )
