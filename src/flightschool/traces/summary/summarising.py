"""One pass that counts, and one that assigns episodes to clusters; memory does not grow with the set's bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean, median

import msgspec

from flightschool.digest import derive_random
from flightschool.records import Effect
from flightschool.traces.effects import effect_by_name
from flightschool.traces.records import RecordedCall, RecordedEpisode, TraceSet, Usage, total_usage
from flightschool.traces.storing import StoredTraces
from flightschool.traces.summary.duplicates import Duplicates
from flightschool.traces.summary.intents import IntentModel, Requests
from flightschool.traces.summary.masks import error_class, masked
from flightschool.traces.summary.records import (
    FanOut,
    IntentCluster,
    LatencyNumbers,
    StratumUse,
    ToolUse,
    TraceSummary,
)
from flightschool.traces.summary.rounds import fan_out_runs, joinable, mergeable, repeated_reads, rounds_of
from flightschool.traces.summary.shapes import Shape

__all__ = ["summarise"]

_MOST_LATENCIES = 2000
_MOST_RESULTS = 500
_MOST_CLASSES = 8
_NUM_ISSUES = 20


def summarise(traces: TraceSet | StoredTraces) -> TraceSummary:
    """Numbers of a set; one in the workspace (``StoredTraces``) is read twice, piece by piece."""
    counted = _Counts()
    for episode in _episodes(traces):
        counted.add(episode)
    intents = _Intents(counted.requests.model())
    for episode in _episodes(traces):
        intents.add(episode)
    return counted.summary(traces.format, intents)


def _episodes(traces: TraceSet | StoredTraces) -> Iterable[RecordedEpisode]:
    return traces.episodes if isinstance(traces, TraceSet) else traces


class _Tool:
    """One tool while it is counted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.num_calls = self.num_errors = self.num_episodes = self.num_repeated = 0
        self.stated: Effect | None = None
        self.classes: Counter[str] = Counter()
        self.arguments = Shape()
        self.result = Shape()
        self.latencies: list[float] = []
        self.num_timed = 0
        self.sum_ms = 0.0
        self.max_ms = 0.0
        self.random = derive_random("latencies", name)

    @property
    def effect(self) -> str:
        return str(self.stated) if self.stated is not None else f"{effect_by_name(self.name)[0] or 'unknown'}?"

    def add(self, call: RecordedCall) -> None:
        self.num_calls += 1
        if call.is_error:
            self.num_errors += 1
            self.classes[error_class(call.value)] += 1
        elif call.complete and self.result.count < _MOST_RESULTS:
            self.result.add(call.value)
        if call.complete:
            self.arguments.add(call.arguments)
        if call.start_ms is not None and call.end_ms is not None:
            self._timed(call.end_ms - call.start_ms)

    def _timed(self, took: float) -> None:
        self.num_timed += 1
        self.sum_ms += took
        self.max_ms = max(self.max_ms, took)
        if len(self.latencies) < _MOST_LATENCIES:
            self.latencies.append(took)
        elif (slot := self.random.randrange(self.num_timed)) < _MOST_LATENCIES:
            self.latencies[slot] = took

    def use(self) -> ToolUse:
        return ToolUse(
            name=self.name,
            num_calls=self.num_calls,
            num_errors=self.num_errors,
            num_episodes=self.num_episodes,
            effect=self.effect,
            error_classes=dict(self.classes.most_common(_MOST_CLASSES)),
            arguments=self.arguments.schema(),
            result=self.result.schema(),
            latency=self._latency(),
            num_repeated=self.num_repeated,
        )

    def _latency(self) -> LatencyNumbers | None:
        if not self.num_timed:
            return None
        ordered = sorted(self.latencies)

        def quantile(share: float) -> float:
            return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]

        return LatencyNumbers(
            count=self.num_timed,
            mean_ms=self.sum_ms / self.num_timed,
            p50_ms=quantile(0.5),
            p90_ms=quantile(0.9),
            p99_ms=quantile(0.99),
            max_ms=self.max_ms,
        )


class _Counts:
    """Everything that one pass can count."""

    def __init__(self) -> None:
        self.num_episodes = self.num_calls = self.num_errors = self.num_rounds = 0
        self.num_incomplete = self.num_faulted = self.num_issues = self.num_children = 0
        self.mergeable = self.joinable = self.num_repeated = 0
        self.turns: list[int] = []
        self.outcomes: list[bool] = []
        self.tasks: set[str] = set()
        self.strata: dict[str, list[bool | None]] = {}
        self.roles: Counter[str] = Counter()
        self.models: Counter[str] = Counter()
        self.tools: dict[str, _Tool] = {}
        self.issues: list[str] = []
        self.issue_kinds: Counter[str] = Counter()
        self.usage = Usage()
        self.requests = Requests()
        self.duplicates = Duplicates()
        self.fan_outs: dict[tuple[str, str, str], list[int]] = {}

    def add(self, episode: RecordedEpisode) -> None:
        self.num_episodes += 1
        self.turns.append(sum(message.role == "assistant" for message in episode.messages))
        if episode.success is not None:
            self.outcomes.append(episode.success)
        if episode.hint.id:
            self.tasks.add(episode.hint.id)
        if episode.hint.stratum:
            self.strata.setdefault(episode.hint.stratum, []).append(episode.success)
        self.roles.update(message.role for message in episode.messages)
        self._note_issues(episode)
        self._note_usage(episode)
        self._note_calls(episode)
        self._note_rounds(episode)
        self.requests.add(episode.instruction)
        self.duplicates.add(episode)

    def _note_issues(self, episode: RecordedEpisode) -> None:
        self.num_issues += len(episode.issues)
        self.issue_kinds.update(masked(issue) for issue in episode.issues)
        for issue in episode.issues:
            if len(self.issues) < _NUM_ISSUES:
                self.issues.append(f"{episode.id}: {issue}")

    def _note_usage(self, episode: RecordedEpisode) -> None:
        self.models.update(turn.model for turn in episode.turns if turn.model)
        usage = total_usage(episode)
        if usage is not None:
            self.usage = Usage(
                input_tokens=_plus(self.usage.input_tokens, usage.input_tokens),
                output_tokens=_plus(self.usage.output_tokens, usage.output_tokens),
                cached_tokens=_plus(self.usage.cached_tokens, usage.cached_tokens),
                cost_usd=_plus_money(self.usage.cost_usd, usage.cost_usd),
            )
        for child in episode.children:
            self.num_children += 1
            self._note_usage(child)

    def _note_calls(self, episode: RecordedEpisode) -> None:
        for spec in episode.tools:
            if spec.name in episode.stated_effects:
                self.tools.setdefault(spec.name, _Tool(spec.name)).stated = spec.effect
        for call in episode.calls:
            self.num_calls += 1
            self.num_errors += call.is_error
            self.num_incomplete += not call.complete
            self.num_faulted += bool(call.fault)
            self.tools.setdefault(call.name, _Tool(call.name)).add(call)
        for name in {call.name for call in episode.calls}:
            self.tools[name].num_episodes += 1

    def _note_rounds(self, episode: RecordedEpisode) -> None:
        names = {call.name for call in episode.calls}
        reads = frozenset(name for name in names if self.tools[name].effect.startswith(Effect.READ))
        rounds = rounds_of(episode)
        said = "\n".join(m.content for m in episode.messages if m.role in ("user", "system"))
        self.num_rounds += len(rounds)
        self.mergeable += mergeable(rounds, reads)
        self.joinable += joinable(rounds, reads, said)
        for name in repeated_reads(episode, reads):
            self.num_repeated += 1
            self.tools[name].num_repeated += 1
        runs: dict[tuple[str, str, str], int] = {}
        for run in fan_out_runs(rounds, reads):
            key = (run.lists, run.reads, run.argument)
            runs[key] = runs.get(key, 0) + run.num_calls
        for key, count in runs.items():
            self.fan_outs.setdefault(key, []).append(count)

    def summary(self, format: str, intents: _Intents) -> TraceSummary:  # noqa: A002
        tools = sorted((tool for tool in self.tools.values() if tool.num_calls), key=lambda t: (-t.num_calls, t.name))
        groups = self.duplicates.groups()
        clusters = intents.clusters(self.num_episodes)
        return TraceSummary(
            format=format,
            num_episodes=self.num_episodes,
            num_calls=self.num_calls,
            tools=tuple(tool.use() for tool in tools),
            error_share=_share(self.num_errors, self.num_calls) or 0.0,
            mean_turns=fmean(self.turns) if self.turns else 0.0,
            median_turns=float(median(self.turns)) if self.turns else 0.0,
            max_turns=max(self.turns, default=0),
            num_outcomes=len(self.outcomes),
            success_share=_share(sum(self.outcomes), len(self.outcomes)),
            num_tasks=len(self.tasks),
            strata={name: len(found) for name, found in sorted(self.strata.items())},
            roles=dict(sorted(self.roles.items())),
            num_rounds=self.num_rounds,
            mergeable_rounds=self.mergeable,
            joinable_rounds=self.joinable,
            num_repeated_reads=self.num_repeated,
            fan_outs=self._fan_outs(),
            intents=clusters,
            traffic=self._traffic(clusters),
            duplicates=groups[:_NUM_ISSUES],
            num_duplicates=sum(len(group) - 1 for group in groups),
            models=dict(self.models.most_common()),
            usage=None if self.usage == Usage() else self.usage,
            num_children=self.num_children,
            num_incomplete_calls=self.num_incomplete,
            num_faulted_calls=self.num_faulted,
            num_issues=self.num_issues,
            issues=tuple(self.issues),
            issue_kinds=dict(self.issue_kinds.most_common(_NUM_ISSUES)),
        )

    def _fan_outs(self) -> tuple[FanOut, ...]:
        found = [
            FanOut(lists=lists, reads=reads, argument=argument, num_episodes=len(counts), num_calls=sum(counts))
            for (lists, reads, argument), counts in self.fan_outs.items()
        ]
        return tuple(sorted(found, key=lambda f: (-f.num_calls, f.lists, f.reads)))[:_NUM_ISSUES]

    def _traffic(self, clusters: Sequence[IntentCluster]) -> tuple[StratumUse, ...]:
        if not self.strata:
            return tuple(
                StratumUse(
                    name=c.label,
                    num_episodes=c.num_episodes,
                    share=c.share,
                    num_outcomes=c.num_outcomes,
                    success_share=c.success_share,
                )
                for c in clusters
            )
        named = sum(len(found) for found in self.strata.values())
        found = {**self.strata}
        if named < self.num_episodes:
            found["(none named)"] = [None] * (self.num_episodes - named)
        return tuple(
            _stratum(name, outcomes, self.num_episodes)
            for name, outcomes in sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
        )


class _Member(msgspec.Struct):
    count: int = 0
    outcomes: int = 0
    successes: int = 0
    example: str = ""
    nearest: float = -1.0


class _Intents:
    """Episodes by cluster."""

    def __init__(self, model: IntentModel) -> None:
        self.model = model
        self.members: dict[int, _Member] = {}

    def add(self, episode: RecordedEpisode) -> None:
        cluster, nearness = self.model.cluster(episode.instruction)
        member = self.members.setdefault(cluster, _Member())
        member.count += 1
        if episode.success is not None:
            member.outcomes += 1
            member.successes += episode.success
        if nearness > member.nearest:
            member.nearest, member.example = nearness, episode.id

    def clusters(self, total: int) -> tuple[IntentCluster, ...]:
        ordered = sorted(self.members.items(), key=lambda item: (-item[1].count, item[0]))
        return tuple(
            IntentCluster(
                label=self.model.label(number),
                num_episodes=member.count,
                share=member.count / total,
                num_outcomes=member.outcomes,
                success_share=_share(member.successes, member.outcomes),
                example=member.example,
            )
            for number, member in ordered
        )


def _stratum(name: str, outcomes: Sequence[bool | None], total: int) -> StratumUse:
    known = [outcome for outcome in outcomes if outcome is not None]
    return StratumUse(
        name=name,
        num_episodes=len(outcomes),
        share=len(outcomes) / total,
        num_outcomes=len(known),
        success_share=_share(sum(known), len(known)),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _plus(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other


def _plus_money(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other
