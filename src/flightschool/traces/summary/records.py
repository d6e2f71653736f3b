"""The summary as records."""

from __future__ import annotations

import msgspec

from flightschool.records import Json, Record
from flightschool.traces.records import Usage

__all__ = ["FanOut", "IntentCluster", "LatencyNumbers", "StratumUse", "ToolUse", "TraceSummary"]


class LatencyNumbers(Record, frozen=True, kw_only=True):
    """Durations in milliseconds. Quantiles are exact up to 2,000 values, beyond from an even sample."""

    count: int
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


class ToolUse(Record, frozen=True, kw_only=True):
    """One tool over all episodes."""

    name: str
    num_calls: int
    num_errors: int
    num_episodes: int
    """Episodes that call it at least once."""
    effect: str
    """Stated effect, or a guess by name marked with ``?``."""
    error_classes: dict[str, int] = msgspec.field(default_factory=dict)
    """Errors by their wording, values masked; the eight most frequent."""
    arguments: dict[str, Json] = msgspec.field(default_factory=dict)
    """JSON Schema that all complete calls satisfy."""
    result: dict[str, Json] = msgspec.field(default_factory=dict)
    """JSON Schema of the answers that are no errors, from up to 500 of them."""
    latency: LatencyNumbers | None = None
    num_repeated: int = 0
    """Reads asked again, with the same arguments and no write between."""


class IntentCluster(Record, frozen=True, kw_only=True):
    """Episodes whose first request is worded alike."""

    label: str
    """The words that tell it apart, most telling first."""
    num_episodes: int
    share: float
    """Of all episodes."""
    num_outcomes: int
    success_share: float | None
    """Over episodes with a recorded outcome."""
    example: str
    """Id of the episode nearest to the centre."""


class StratumUse(Record, frozen=True, kw_only=True):
    """A stratum with its share of the real traffic: the weight to sample it with."""

    name: str
    num_episodes: int
    share: float
    num_outcomes: int
    success_share: float | None


class FanOut(Record, frozen=True, kw_only=True):
    """An N+1 pattern: one call lists, then one call for each item of the list."""

    lists: str
    """Tool whose answer held the items."""
    reads: str
    """Tool called once for each."""
    argument: str
    """Argument that took the items."""
    num_episodes: int
    num_calls: int
    """Calls of ``reads`` in such runs; all but one of a run would go if the tool took many at once."""


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
    joinable_rounds: int
    """Rounds saved if consecutive rounds of reads ran in parallel wherever no argument comes from an answer of the
    rounds joined. An upper bound: an agent may have chosen a call in the light of an answer without quoting it."""
    num_repeated_reads: int
    """Reads asked again, with the same arguments and no write between."""
    fan_outs: tuple[FanOut, ...]
    """N+1 patterns, by falling number of calls."""
    intents: tuple[IntentCluster, ...]
    """By falling number of episodes."""
    traffic: tuple[StratumUse, ...]
    """Strata with their share of the traffic: those that the traces name, else the clusters of intents."""
    duplicates: tuple[tuple[str, ...], ...]
    """Groups of episodes that are nearly the same (estimated Jaccard similarity of requests and calls ≥ 0.9)."""
    num_duplicates: int
    """Episodes that could go without loss: those in such groups, but one of each."""
    models: dict[str, int]
    """Model → assistant messages."""
    usage: Usage | None
    """Tokens and cost over all episodes, children included."""
    num_children: int
    """Conversations of sub-agents and branches."""
    num_incomplete_calls: int
    num_faulted_calls: int
    """Calls that the recording itself marks as hit by an injected fault."""
    num_issues: int
    issues: tuple[str, ...]
    """The first twenty, each with its episode."""
    issue_kinds: dict[str, int]
    """Issues by their wording, values masked; the twenty most frequent."""
