"""What a run reports of itself, step by step. Imports no torch."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from flightschool.records import Attempt, EpisodeGroup, GroupState, Record
from flightschool.training.algorithms.distill import TeacherSums
from flightschool.training.algorithms.terms import GroupCredits, term_shares
from flightschool.training.journal import Tally
from flightschool.training.lines import LineFile, UnreadableLine, read_lines
from flightschool.training.messages import StepStats

__all__ = ["Meter", "MetricsFile", "ProgressCallback", "StepProgress", "read_metrics", "trained_ages"]


class StepProgress(Record, frozen=True, kw_only=True):
    """One optimizer step, made or skipped; one line of ``metrics.jsonl``.

    Rewards, lengths and shares are means over all members (infra failures apart) of all groups consumed since the step
    before, groups without a gradient included.
    """

    incarnation: int
    step: int
    """Version that the step made; the unchanged version if it was skipped."""
    num_steps: int
    skipped: bool
    success: float
    reward_total: float
    reward_outcome: float
    reward_process: float
    reward_latency: float
    reward_gate: float
    reward_thinking: float = 0.0
    """How well correct attempts kept their budget of sampled tokens, 0..1; 0 where the reward has no budget."""
    reward_turns: float = 0.0
    """Mean quality of single turns, −1..0, over all turns that could be judged; 0 where ``turn_weight`` is 0."""
    completion_tokens: float
    """Sampled tokens of an attempt."""
    tool_calls: float
    virtual_ms: float
    num_groups: int
    """Groups whose gradient the step applied."""
    num_zero_advantage: int
    """Groups consumed without a gradient."""
    num_infra_failures: int
    temperature: float
    """Sampling temperature of groups admitted just before the step."""
    staleness_mean: float
    """Over trained tokens."""
    staleness_max: int
    staleness_histogram: dict[int, int]
    """Age in versions → trained tokens."""
    stats: StepStats
    tokens_per_s: float
    """Sampled tokens consumed a second of wall time since the step before."""
    trainer_idle: float
    """Share of wall time since the step before in which the trainer waited."""
    length_bias: float
    """|mean length consumed / mean length finished − 1| over the run so far, earlier incarnations included."""
    batch_inflation: float
    """Groups of the step / groups asked for; those without a gradient are among them if they count for the step."""
    waste: float = 0.0
    """Sampled tokens that can no longer train / all sampled whose fate is known, over the run so far, earlier
    incarnations included. This rule of staleness drops none, so what is counted was sampled for attempts that were cut
    short (stragglers begun anew, a lost engine) or that infrastructure failed, or lost with weights that no checkpoint
    descends from. What a killed process had under way is not known."""
    expired_token_share: float = 0.0
    """Tokens older than the bound / all that got a gradient, over the lineage so far; above 0 is an error."""
    generation_idle: float = 0.0
    """Share of wall time since the step before in which no group was being generated."""
    groups: tuple[str, ...] = ()
    """Groups that the figures are made of, in the order of consumption."""
    term_shares: dict[str, float] = msgspec.field(default_factory=dict)
    """Term of the reward → its share of the variance of advantages within groups; empty where nothing varied."""
    num_teacher_tokens: int = 0
    """Sampled tokens that trained on a teacher's word; 0 without a teacher."""
    teacher_kl: float = 0.0
    """Mean log μ − log π_teacher over them: the reverse divergence of the policy that sampled, in nats a token."""
    teacher_clip_share: float = 0.0
    """Share of them whose term met a bound."""
    wall_s: float
    """Since this incarnation began."""
    eta_s: float
    """Until the last step at the mean pace so far, or until the time limit if that comes first."""
    number: int = 0
    """Place among all rows of the run, from 1; 0 until it is written. A step can have several rows: one for each time
    that it was skipped, and one more where it was made again after a crash."""


ProgressCallback = Callable[[StepProgress], None]


class MetricsFile:
    """``metrics.jsonl``: appended, one JSON object a line. Figures that are not finite are ``null`` there.

    One writer. What a killed run left of a line is cut off, so that the next one stands for itself.
    """

    def __init__(self, path: Path) -> None:
        self._lines = LineFile(path)
        self._num_rows = path.read_bytes().count(b"\n") if path.is_file() else 0

    def write(self, row: StepProgress) -> StepProgress:
        """Append one row; returns it with its number."""
        self._num_rows += 1
        row = msgspec.structs.replace(row, number=self._num_rows)
        self._lines.append(msgspec.json.encode(row))
        return row


def read_metrics(path: Path, unreadable: UnreadableLine | None = None) -> list[StepProgress]:
    """The steps of a run, made or skipped, in the order of writing. See ``read_lines`` for lines that are damaged."""
    rows = read_lines(path, _decode_row, unreadable)
    return [row if row.number else msgspec.structs.replace(row, number=place) for place, row in enumerate(rows, 1)]


def _decode_row(line: bytes) -> StepProgress:
    return msgspec.convert(_with_nan(msgspec.json.decode(line)), StepProgress, str_keys=True)


def _with_nan(value: Any) -> Any:  # Any: parsed JSON
    if isinstance(value, dict):
        return {key: _with_nan(part) for key, part in value.items()}
    return math.nan if value is None else value


def trained_ages(rows: Sequence[StepProgress], lineage: Sequence[tuple[int, int]]) -> Counter[int]:
    """Age in versions → trained tokens, over the steps that a checkpoint descends from.

    Args:
        rows: of the run.
        lineage: (incarnation, last step of it that is durable).
    """
    last = dict(lineage)
    ages: Counter[int] = Counter()
    for row in rows:
        if not row.skipped and row.step <= last.get(row.incarnation, -1):
            ages.update(row.staleness_histogram)
    return ages


class Meter:
    """Collects what happened between two steps, and sums over the whole run.

    Args:
        incarnation: of the run.
        num_steps: that it is to make.
        first_step: version that this incarnation began with.
        groups_per_step: asked for.
        count_zero_advantage: whether groups without a gradient are among them.
        max_staleness: of the run.
        before: sums of earlier incarnations.
        ages: of tokens that these have trained (see ``trained_ages``).
        time_limit_s: of this incarnation.
    """

    def __init__(
        self,
        *,
        incarnation: int,
        num_steps: int,
        first_step: int,
        groups_per_step: int,
        count_zero_advantage: bool = False,
        max_staleness: int = 1 << 30,
        before: Tally | None = None,
        ages: Mapping[int, int] | None = None,
        time_limit_s: float | None = None,
    ) -> None:
        self._max_staleness = max_staleness
        before = before or Tally()
        self._lost_tokens, self._sampled_tokens = before.lost_tokens, before.sampled_tokens
        self._finished = _Lengths(before.num_finished, before.finished_tokens)
        self._consumed = _Lengths(before.num_consumed, before.consumed_tokens)
        self._ages = Counter(ages or {})
        self._idle_since: float | None = time.monotonic()
        self._idle_s = 0.0
        self._time_limit_s = math.inf if time_limit_s is None else time_limit_s
        self._incarnation = incarnation
        self._num_steps = num_steps
        self._first_step = first_step
        self._groups_per_step = groups_per_step
        self._counts_all = count_zero_advantage
        self._started = time.monotonic()
        self._reset()

    @property
    def max_staleness(self) -> int:
        """Largest age of any trained token, over the lineage so far."""
        return max(self._ages, default=0)

    def _reset(self) -> None:
        self._since = time.monotonic()
        self._groups: list[EpisodeGroup] = []
        self._states: list[GroupState] = []
        self._credits: list[GroupCredits] = []
        self._trained: list[frozenset[str]] = []
        self._turns: list[float] = []
        self._teacher = TeacherSums()

    def running(self, num_groups: int) -> None:
        """So many groups are being generated from now on."""
        now = time.monotonic()
        if num_groups and self._idle_since is not None:
            self._idle_s += now - self._idle_since
            self._idle_since = None
        elif not num_groups and self._idle_since is None:
            self._idle_since = now

    def finished(self, group: EpisodeGroup) -> None:
        """A group was generated."""
        self._finished.add(group)
        self._sampled_tokens += sum(member.num_completion_tokens for member in group.baseline)

    def discarded(self, num_tokens: int) -> None:
        """So many tokens were sampled for attempts that will be in no group."""
        self._lost_tokens += num_tokens
        self._sampled_tokens += num_tokens

    def consumed(
        self,
        group: EpisodeGroup,
        credits_: GroupCredits,
        trained: Collection[str],
        turn_qualities: Sequence[float] = (),
        teacher: TeacherSums | None = None,
    ) -> None:
        """A group was given to the trainer, or needed no gradient.

        Args:
            group: with its state.
            credits_: of its members.
            trained: attempts that got a gradient.
            turn_qualities: of all its turns that were judged, −1..0.
            teacher: what a teacher said of it, in sums.
        """
        self._turns += turn_qualities
        self._teacher = self._teacher.plus(teacher or TeacherSums())
        self._trained.append(frozenset(trained))
        self._groups.append(group)
        self._states.append(credits_.state)
        self._credits.append(credits_)
        self._consumed.add(group)

    def step(self, version_before: int, version: int, stats: StepStats, temperature: float) -> StepProgress:
        """Close the interval."""
        ages: Counter[int] = Counter()
        if version != version_before:  # a step that was skipped applied no gradient
            for group, trained in zip(self._groups, self._trained, strict=True):
                _count_ages(ages, group, trained, version_before)
        members = [member for group in self._groups for member in group.baseline]
        now = time.monotonic()
        interval = max(1e-9, now - self._since)
        wall_s = now - self._started
        left_s = wall_s / max(1, version - self._first_step) * (self._num_steps - version)
        num_gradient = self._states.count(GroupState.COMPLETE)
        self._ages.update(ages)
        row = StepProgress(
            incarnation=self._incarnation,
            number=0,
            step=version,
            num_steps=self._num_steps,
            skipped=version == version_before,
            **_means(members),
            reward_turns=_mean(self._turns),
            num_groups=num_gradient,
            num_zero_advantage=len(self._groups) - num_gradient,
            num_infra_failures=sum(len(group.members) - len(group.baseline) for group in self._groups),
            temperature=temperature,
            staleness_mean=sum(age * n for age, n in ages.items()) / max(1, ages.total()),
            staleness_max=max(ages, default=0),
            staleness_histogram=dict(sorted(ages.items())),
            stats=stats,
            tokens_per_s=sum(member.num_completion_tokens for member in members) / interval,
            trainer_idle=max(0.0, 1.0 - stats.seconds / interval),
            length_bias=self.length_bias(),
            batch_inflation=(len(self._groups) if self._counts_all else num_gradient) / self._groups_per_step,
            waste=self.waste(),
            expired_token_share=self._expired_share(),
            groups=tuple(group.id for group in self._groups),
            term_shares=dict(term_shares(self._credits)),
            generation_idle=min(1.0, self._take_idle(now) / interval),
            num_teacher_tokens=self._teacher.num_tokens,
            teacher_kl=self._teacher.reverse_kl / max(1, self._teacher.num_tokens),
            teacher_clip_share=self._teacher.num_clipped / max(1, self._teacher.num_tokens),
            wall_s=wall_s,
            eta_s=max(0.0, min(left_s, self._time_limit_s - wall_s)),
        )
        self._reset()
        return row

    def waste(self) -> float:
        """Sampled tokens that can no longer train / all sampled."""
        return self._lost_tokens / max(1, self._sampled_tokens)

    def _expired_share(self) -> float:
        expired = sum(count for age, count in self._ages.items() if age > self._max_staleness)
        return expired / max(1, self._ages.total())

    def _take_idle(self, now: float) -> float:
        idle_s = self._idle_s
        if self._idle_since is not None:
            idle_s += now - self._idle_since
            self._idle_since = now
        self._idle_s = 0.0
        return idle_s

    def length_bias(self) -> float:
        """|mean length consumed / mean length finished − 1|."""
        finished = self._finished.mean()
        return abs(self._consumed.mean() / finished - 1.0) if finished else 0.0


@dataclass
class _Lengths:
    """Attempts and their sampled tokens."""

    count: int
    tokens: int

    def add(self, group: EpisodeGroup) -> None:
        self.count += len(group.baseline)
        self.tokens += sum(member.num_completion_tokens for member in group.baseline)

    def mean(self) -> float:
        return self.tokens / self.count if self.count else 0.0


def _count_ages(ages: Counter[int], group: EpisodeGroup, trained: Collection[str], version: int) -> None:
    for member in group.members:
        if member.id not in trained:
            continue
        for span in member.spans:
            for run in span.versions:
                ages[version - run.step] += run.count


def _means(members: Sequence[Attempt]) -> dict[str, float]:
    rewards = [member.reward for member in members if member.reward is not None]
    return {
        "success": _mean([reward.success for reward in rewards]),
        "reward_total": _mean([reward.total for reward in rewards]),
        "reward_outcome": _mean([reward.outcome for reward in rewards]),
        "reward_process": _mean([reward.process for reward in rewards]),
        "reward_latency": _mean([reward.latency for reward in rewards]),
        "reward_gate": _mean([reward.gate for reward in rewards]),
        "reward_thinking": _mean([0.0 if reward.thinking is msgspec.UNSET else reward.thinking for reward in rewards]),
        "completion_tokens": _mean([member.num_completion_tokens for member in members]),
        "tool_calls": _mean([len(member.events) for member in members]),
        "virtual_ms": _mean([member.timings.virtual_ms for member in members]),
    }


def _mean(values: Sequence[float]) -> float:
    return float(sum(values)) / len(values) if values else 0.0
