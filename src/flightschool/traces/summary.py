"""What a trace set holds, in numbers: tools, errors, turns, outcomes, strata, and room for parallel calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean, median

from flightschool.records import Effect, Record
from flightschool.traces.effects import effect_by_name
from flightschool.traces.records import RecordedCall, RecordedEpisode, TraceSet

__all__ = ["ToolUse", "TraceSummary", "summarise"]


class ToolUse(Record, frozen=True, kw_only=True):
    """One tool over all episodes."""

    name: str
    num_calls: int
    num_errors: int
    num_episodes: int
    """Episodes that call it at least once."""
    effect: str
    """Stated effect, or a guess by name marked with ``?``."""


class TraceSummary(Record, frozen=True, kw_only=True):
    """Numbers of one trace set. Shares are over what they name; None where nothing was recorded."""

    format: str
    num_episodes: int
    num_calls: int
    tools: tuple[ToolUse, ...]
    """By falling number of calls, then by name."""
    error_share: float
    """Errors over calls."""
    mean_turns: float
    """Assistant messages an episode."""
    median_turns: float
    max_turns: int
    num_outcomes: int
    """Episodes with a recorded outcome."""
    success_share: float | None
    """Successes over episodes with a recorded outcome."""
    num_tasks: int
    """Distinct task ids; 0 if the traces name none."""
    strata: dict[str, int]
    """Stratum → episodes, as far as the traces name strata."""
    roles: dict[str, int]
    """Role → messages."""
    num_rounds: int
    """Rounds of tool calls: calls of one assistant message are one round."""
    mergeable_rounds: int
    """Rounds saved if consecutive reads with one tool, with no word of the user between, ran in parallel."""
    num_incomplete_calls: int
    num_faulted_calls: int
    """Calls that the recording itself marks as hit by an injected fault."""
    num_issues: int
    issues: tuple[str, ...]
    """The first twenty, each with its episode."""


def summarise(traces: TraceSet) -> TraceSummary:
    """Numbers of a set."""
    episodes = traces.episodes
    calls = [call for episode in episodes for call in episode.calls]
    turns = [sum(m.role == "assistant" for m in episode.messages) for episode in episodes]
    outcomes = [episode.success for episode in episodes if episode.success is not None]
    issues = [f"{episode.id}: {issue}" for episode in episodes for issue in episode.issues]
    reads = {tool.name for tool in _tools(episodes) if tool.effect.startswith(Effect.READ)}
    return TraceSummary(
        format=traces.format,
        num_episodes=len(episodes),
        num_calls=len(calls),
        tools=_tools(episodes),
        error_share=_share(sum(call.is_error for call in calls), len(calls)) or 0.0,
        mean_turns=fmean(turns) if turns else 0.0,
        median_turns=float(median(turns)) if turns else 0.0,
        max_turns=max(turns, default=0),
        num_outcomes=len(outcomes),
        success_share=_share(sum(outcomes), len(outcomes)),
        num_tasks=len({episode.hint.id for episode in episodes if episode.hint.id}),
        strata=dict(sorted(Counter(e.hint.stratum for e in episodes if e.hint.stratum).items())),
        roles=dict(sorted(Counter(m.role for e in episodes for m in e.messages).items())),
        num_rounds=sum(len({call.turn for call in episode.calls}) for episode in episodes),
        mergeable_rounds=sum(_mergeable(episode, reads) for episode in episodes),
        num_incomplete_calls=sum(not call.complete for call in calls),
        num_faulted_calls=sum(bool(call.fault) for call in calls),
        num_issues=len(issues),
        issues=tuple(issues[:20]),
    )


def _tools(episodes: Iterable[RecordedEpisode]) -> tuple[ToolUse, ...]:
    calls: dict[str, list[RecordedCall]] = {}
    users: dict[str, set[str]] = {}
    stated: dict[str, Effect] = {}
    for episode in episodes:
        stated |= {spec.name: spec.effect for spec in episode.tools if spec.name in episode.stated_effects}
        for call in episode.calls:
            calls.setdefault(call.name, []).append(call)
            users.setdefault(call.name, set()).add(episode.id)
    uses = [
        ToolUse(
            name=name,
            num_calls=len(found),
            num_errors=sum(call.is_error for call in found),
            num_episodes=len(users[name]),
            effect=str(stated[name]) if name in stated else f"{effect_by_name(name)[0] or 'unknown'}?",
        )
        for name, found in calls.items()
    ]
    return tuple(sorted(uses, key=lambda use: (-use.num_calls, use.name)))


def _mergeable(episode: RecordedEpisode, reads: set[str]) -> int:
    """Rounds saved by merging runs of consecutive one-tool read rounds."""
    rounds = _rounds(episode)
    return sum(
        1
        for (turn, names), (next_turn, next_names) in pairwise(rounds)
        if names == next_names and len(names) == 1 and names <= reads and not _user_between(episode, turn, next_turn)
    )


def _rounds(episode: RecordedEpisode) -> Sequence[tuple[int, set[str]]]:
    rounds: dict[int, set[str]] = {}
    for call in episode.calls:
        rounds.setdefault(call.turn, set()).add(call.name)
    return sorted(rounds.items())


def _user_between(episode: RecordedEpisode, turn: int, next_turn: int) -> bool:
    seen = -1
    for message in episode.messages:
        if message.role == "assistant":
            seen += 1
        elif message.role == "user" and turn <= seen < next_turn:
            return True
    return False


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
