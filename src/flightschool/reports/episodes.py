"""Transcripts: an attempt as the lines that a reader follows, with what the policy was not told beside them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from flightschool.records import Attempt, Check, Message, ToolEvent
from flightschool.reports.numbers import number

__all__ = ["CallLine", "Side", "TranscriptLine", "side"]

LONGEST_TEXT = 1500
"""Characters of one message shown; the rest is counted, and is in the store."""


@dataclass(frozen=True)
class CallLine:
    """One tool call as written by the policy."""

    name: str
    arguments: str


@dataclass(frozen=True)
class TranscriptLine:
    """One message."""

    role: str
    text: str
    calls: tuple[CallLine, ...] = ()
    flags: tuple[str, ...] = ()
    """What the policy did not know: the fault, a denial, who answered."""


@dataclass(frozen=True)
class Side:
    """One attempt, ready to show."""

    heading: str
    passed: bool
    result: str
    facts: tuple[str, ...]
    lines: tuple[TranscriptLine, ...]
    checks: tuple[Check, ...]
    end: str


def side(heading: str, attempt: Attempt) -> Side:
    """The attempt for one column. The system and first user message are left out: the pair shares them."""
    reward = attempt.reward
    passed = reward is not None and reward.success
    facts = [f"{len(attempt.events)} calls", f"{number(attempt.timings.virtual_ms)} ms simulated"]
    if attempt.num_completion_tokens:
        facts.insert(1, f"{attempt.num_completion_tokens} tokens")
    if reward is not None:
        facts.append(
            f"reward {number(reward.total)} (outcome {number(reward.outcome)}, process {number(reward.process)}, "
            f"latency {number(reward.latency)}, gate {reward.gate:g})"
        )
    return Side(
        heading=heading,
        passed=passed,
        result="succeeded" if passed else ("not scored: infrastructure" if reward is None else "fell short"),
        facts=tuple(facts),
        lines=tuple(_lines(attempt)),
        checks=attempt.verdict.checks if attempt.verdict is not None else (),
        end=f"{attempt.outcome.value}: {attempt.reason.value}" + (f" ({attempt.detail})" if attempt.detail else ""),
    )


def _lines(attempt: Attempt) -> list[TranscriptLine]:
    events = {event.call.id: event for event in attempt.events}
    start = next((i + 1 for i, m in _last_first_user(attempt.messages)), 0)
    return [_line(message, events.get(message.tool_call_id)) for message in attempt.messages[start:]]


def _last_first_user(messages: tuple[Message, ...]) -> list[tuple[int, Message]]:
    """The user message before the first answer that this attempt gave; a worked example holds earlier ones."""
    users = [(i, m) for i, m in enumerate(messages) if m.role == "user"]
    return users[-1:]


def _line(message: Message, event: ToolEvent | None) -> TranscriptLine:
    calls = tuple(CallLine(name=call.name, arguments=_arguments(call.arguments)) for call in message.tool_calls)
    return TranscriptLine(role=message.role, text=_shorten(message.content), calls=calls, flags=_flags(event))


def _flags(event: ToolEvent | None) -> tuple[str, ...]:
    if event is None:
        return ()
    flags = []
    if event.result.fault is not None:
        flags.append(f"injected fault: {event.result.fault.kind.replace('_', ' ')}")
    if event.result.permission is not None and not event.result.permission.allowed:
        flags.append(f"denied by rule {event.result.permission.rule}")
    if event.result.is_error and not flags:
        flags.append("error")
    return tuple(flags)


def _arguments(arguments: dict[str, object]) -> str:
    return _shorten(", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items()))


def _shorten(text: str) -> str:
    left = len(text) - LONGEST_TEXT
    return text if left <= 0 else f"{text[:LONGEST_TEXT]} … ({left:,} more characters)"
