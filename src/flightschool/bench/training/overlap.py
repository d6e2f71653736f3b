"""Asynchronous against synchronous training where tools take long, and how long is drawn from a heavy tail.

Three whole runs on the desk with the small model that ships: asynchronous with one thread a station, synchronous with
one thread a station, synchronous in one process with two threads. The latency of tools is *awaited*, lognormal with
σ = 1, from the same seed in all of them, and as many groups are in flight at once. Each is a process of its own
(``processes``).

Stations in turn need T_roll + T_train for a group, overlapping ones at best the larger of both; the bound is the
quotient. Generation that need not wait for the slowest episode of a round can do better than that.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from flightschool.digest import derive_random
from flightschool.protocols import ModelEndpoint, ToolEndpoint
from flightschool.records import EndReason, Record, Task, ToolCall, ToolResult, ToolSpec
from flightschool.training import StepProgress, TrainingSettings

__all__ = ["AwaitingHarness", "Flown", "Mode", "Overlap", "draw_together", "fly"]

Mode: TypeAlias = Literal["async", "sync", "sync_two_threads"]

MEDIAN_S, SIGMA = 0.1, 1.0
GROUPS_PER_STEP, GROUP_SIZE = 4, 8
MAX_STALENESS = 2
MARGIN = 0.1
"""Final reward that asynchrony may cost at most, at 95 %, for the two to count as equal."""
LEAST_GROUPS = 100
"""Of the end of each run, from which equality is judged."""


class Flown(Record, frozen=True, kw_only=True):
    """One run, without its first step."""

    num_groups: int
    wall_s: float
    train_s: float
    """Seconds in which the trainer computed."""
    final_rewards: tuple[float, ...]
    """Mean reward of each group of the second half of the steps."""
    trainer_idle: float
    waste: float
    length_bias: float
    expired_token_share: float
    batch_inflation: float
    staleness_bound: int
    max_trained_staleness: int
    ess: float

    @property
    def groups_per_s(self) -> float:
        """Groups consumed a second."""
        return self.num_groups / self.wall_s


class Overlap(Record, frozen=True, kw_only=True):
    """The three runs beside the bound."""

    t_roll_s: float
    """Seconds of a group in which the synchronous trainer waits."""
    t_train_s: float
    bound: float
    """(T_roll + T_train) / max(T_roll, T_train)."""
    speedup: float
    """Asynchronous / synchronous, groups a second, one thread a station in both."""
    share_of_bound: float
    speedup_over_two_threads: float
    reward_difference: float
    """Final reward, asynchronous − synchronous."""
    reward_low: float
    reward_high: float
    """95 % interval of the difference, over groups."""
    equal_reward: bool | None
    """Whether the interval rules out a loss of ``MARGIN``; None: too few groups to say."""


class AwaitingHarness:
    """A harness whose tools take real time; worlds answer at once, so all of it is waiting.

    Args:
        median_s: of a turn's calls.
        sigma: of the logarithm.
    """

    def __init__(self, median_s: float = MEDIAN_S, sigma: float = SIGMA) -> None:
        from flightschool.rollouts import ToolCallingHarness

        self._inner = ToolCallingHarness()
        self._median_s, self._sigma = median_s, sigma
        self._met: dict[str, int] = {}

    async def run(self, task: Task, model: ModelEndpoint, tools: ToolEndpoint) -> EndReason:
        """See ``protocols.Harness``."""
        number = self._met[task.id] = self._met.get(task.id, -1) + 1
        chance = derive_random("bench-latency", task.id, number)

        def draw_s() -> float:
            return self._median_s * chance.lognormvariate(0.0, self._sigma)

        return await self._inner.run(task, model, _Slow(tools, draw_s))


class _Slow:
    def __init__(self, tools: ToolEndpoint, draw_s: Callable[[], float]) -> None:
        self._tools, self._draw_s = tools, draw_s

    def specs(self) -> Sequence[ToolSpec]:
        return self._tools.specs()

    async def call(self, calls: Sequence[ToolCall]) -> Sequence[ToolResult]:
        await asyncio.sleep(self._draw_s())
        return await self._tools.call(calls)


def fly(mode: Mode, num_steps: int, folder: Path, *, median_s: float = MEDIAN_S) -> Flown:
    """One run.

    Args:
        mode: which.
        num_steps: optimizer steps, the first of which does not count.
        folder: of the run.
        median_s: median latency of a turn's calls.
    """
    from flightschool.engines.catalogue import tiny_folder
    from flightschool.environments import load_environment
    from flightschool.rollouts import EpisodeRunner
    from flightschool.training import PoolSource, train
    from flightschool.training.folders import RunFolder
    from flightschool.training.journal import Finished, read_journal
    from flightschool.verification import OutcomeReward

    environment = load_environment("desk")
    source = PoolSource([task for task in environment.tasks() if task.stratum == "two_step"], seed=0)
    runner = EpisodeRunner(environment, OutcomeReward(), run="bench", harness=AwaitingHarness(median_s))
    alone = mode == "sync_two_threads"
    settings = TrainingSettings(
        mode="async" if mode == "async" else "sync",
        separate_process=not alone,
        num_threads=2 if alone else 1,
        num_steps=num_steps,
        learning_rate=3e-4,
        group_size=GROUP_SIZE,
        groups_per_step=GROUPS_PER_STEP,
        count_zero_advantage=True,
        max_staleness=MAX_STALENESS,
        max_inflight_groups=GROUPS_PER_STEP,  # as many as a synchronous trainer can have
        temperature=0.7,
        max_flat_groups=1_000_000,
        checkpoint_every=1_000_000,
        trackers=(),
    )
    rows: list[StepProgress] = []

    def note(row: StepProgress) -> None:
        rows.append(row)
        sys.stderr.write(f"{mode}: step {row.step}, {len(row.groups)} groups, reward {row.reward_total:.2f}\n")

    result = train(
        settings,
        model=tiny_folder(),
        run_dir=folder,
        source=source,
        runner=runner,
        progress=note,
        unaudited="a benchmark of speed: no score of this run is a result",
    )
    groups = {e.group.id: e.group for e in read_journal(RunFolder(folder).journal) if isinstance(e, Finished)}
    last = [groups[name] for row in rows[len(rows) // 2 :] for name in row.groups]
    rewards = tuple(statistics.fmean(m.reward.total for m in group.baseline if m.reward) for group in last)
    return _flown(rows, rewards, settings.max_staleness, result.max_staleness)


def _flown(rows: Sequence[StepProgress], rewards: tuple[float, ...], bound: int, oldest: int) -> Flown:
    counted = rows[1:]
    walls = [after.wall_s - before.wall_s for before, after in zip(rows, counted, strict=False)]
    wall_s = sum(walls)
    tokens = sum(row.stats.num_trained_tokens for row in counted)
    return Flown(
        num_groups=sum(len(row.groups) for row in counted),
        wall_s=wall_s,
        train_s=sum(row.stats.seconds for row in counted),
        final_rewards=rewards,
        trainer_idle=sum(row.trainer_idle * wall for row, wall in zip(counted, walls, strict=True)) / wall_s,
        waste=rows[-1].waste,
        length_bias=rows[-1].length_bias,
        expired_token_share=rows[-1].expired_token_share,
        batch_inflation=statistics.fmean(row.batch_inflation for row in counted),
        staleness_bound=bound,
        max_trained_staleness=oldest,
        ess=sum(row.stats.ess * row.stats.num_trained_tokens for row in counted) / max(1, tokens),
    )


def draw_together(overlapping: Flown, in_turn: Flown, two_threads: Flown) -> Overlap:
    """Speed-ups, the bound, and whether the final rewards are equal."""
    t_train = in_turn.train_s / in_turn.num_groups
    t_roll = (in_turn.wall_s - in_turn.train_s) / in_turn.num_groups
    bound = (t_roll + t_train) / max(t_roll, t_train)
    speedup = overlapping.groups_per_s / in_turn.groups_per_s
    ends = overlapping.final_rewards, in_turn.final_rewards
    difference, half = _difference(*ends)
    enough = min(map(len, ends)) >= LEAST_GROUPS
    return Overlap(
        t_roll_s=t_roll,
        t_train_s=t_train,
        bound=bound,
        speedup=speedup,
        share_of_bound=speedup / bound,
        speedup_over_two_threads=overlapping.groups_per_s / two_threads.groups_per_s,
        reward_difference=difference,
        reward_low=difference - half,
        reward_high=difference + half,
        equal_reward=difference - half >= -MARGIN if enough else None,
    )


def _difference(left: Sequence[float], right: Sequence[float]) -> tuple[float, float]:
    """Difference of means, and half the width of its 95 % interval by the normal law."""
    variance = sum(statistics.variance(values) / len(values) for values in (left, right))
    return statistics.fmean(left) - statistics.fmean(right), 1.96 * math.sqrt(variance)
