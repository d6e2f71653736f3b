"""Our side of a workload: a whole run by ``training.train``, in a process of its own (``processes``).

Episodes go through the real runner, boundary, checks and journal; nothing is left out that a user's run has, except for
trackers.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from flightschool.bench.training.orders import OrdersEnvironment
from flightschool.bench.training.workload import Side, StepFigures, Workload
from flightschool.engines import EngineSettings
from flightschool.errors import TokenContractError
from flightschool.protocols import RewardComposition
from flightschool.records import Attempt, EpisodeGroup, Reward, SpanKind, Task, Verdict
from flightschool.rollouts import EpisodeRunner, ToolCallingHarness
from flightschool.training import StepProgress, TrainingSettings, train
from flightschool.training.folders import RunFolder
from flightschool.training.journal import Finished, read_journal
from flightschool.training.prefix_tree import Key, num_pairs, num_tree_pairs, num_tree_tokens
from flightschool.verification import OutcomeReward

__all__ = ["Listed", "RandomReward", "settings_of", "train_ours"]


class Listed:
    """A ``GroupSource`` that gives tasks in their order, once."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._left = iter(tasks)

    def next_task(self) -> Task | None:
        """The next one."""
        return next(self._left, None)

    def report(self, group: EpisodeGroup) -> None:
        """Nothing follows from it."""


class RandomReward:
    """Draws the outcome, so that members of a group differ and every row trains; the learning rate is next to nothing.

    Args:
        seed: of the draws.
    """

    digest = "random"

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def compose(self, verdict: Verdict, virtual_ms: float, num_tokens: int | None = None) -> Reward:
        """See ``protocols.RewardComposition``."""
        del verdict, virtual_ms, num_tokens
        drawn = 0.9 * self._chance.random()
        return Reward(outcome=drawn, process=0.0, latency=0.0, gate=1.0, total=drawn)


def settings_of(work: Workload) -> TrainingSettings:
    """Like the peer's: GRPO, token mean, no divergence, fused AdamW, one optimizer step a batch.

    A batch is ``groups_per_step`` groups, those without a gradient counted, as the peer's is.
    """
    separate = work.mode == "async"
    return TrainingSettings(
        mode=work.mode,
        separate_process=separate,
        num_threads=max(1, work.num_threads // 2) if separate else work.num_threads,
        num_steps=work.num_steps,
        group_size=work.group_size,
        groups_per_step=work.groups_per_step,
        count_zero_advantage=True,
        max_inflight_groups=-(-3 * work.groups_per_step // 2),  # as the defaults have it
        learning_rate=work.learning_rate,
        max_new_tokens=work.max_new_tokens,
        max_flat_groups=1_000_000,
        checkpoint_every=1_000_000,
        time_limit_s=work.limit_s,
        process_weight=0.0,
        spare_memory=False,
        trackers=(),
        seed=work.seed,
    )


class _GoalReachedError(Exception):
    """The run may end."""


def train_ours(work: Workload, folder: Path) -> Side:
    """Train, and say what each step took.

    Raises:
        TokenContractError: a prompt was rendered as other ids than the workload's.
    """
    environment = OrdersEnvironment(work.kind, [prompt.order for prompt in work.prompts])
    reward: RewardComposition = OutcomeReward()
    if work.reward == "random":
        reward = RandomReward(work.seed)
    runner = EpisodeRunner(environment, reward, run="bench", harness=ToolCallingHarness(max_invalid=1))
    rows: list[tuple[float, StepProgress]] = []

    def note(row: StepProgress) -> None:
        rows.append((time.perf_counter(), row))
        sys.stderr.write(f"ours: step {row.step}, {row.stats.num_trained_tokens} tokens, success {row.success:.2f}\n")
        if work.goal is not None and row.success >= work.goal:
            raise _GoalReachedError

    started = time.perf_counter()
    with contextlib.suppress(_GoalReachedError):
        train(
            settings_of(work),
            model=Path(work.model),
            run_dir=folder,
            source=Listed(environment.tasks()),
            runner=runner,
            engine=EngineSettings(packed_weights=True),
            progress=note,
            unaudited="a benchmark of speed: no score of this run is a result",
        )
    groups = {
        entry.group.id: entry.group for entry in read_journal(RunFolder(folder).journal) if isinstance(entry, Finished)
    }
    _check_prompts(work, groups.values())
    return Side(steps=tuple(_figures(rows, groups, started)))


def _figures(
    rows: Sequence[tuple[float, StepProgress]], groups: dict[str, EpisodeGroup], started: float
) -> Iterator[StepFigures]:
    before = started
    for at, row in rows:
        consumed = [groups[name] for name in row.groups]
        members = [member for group in consumed for member in group.baseline]
        yield StepFigures(
            wall_s=at - before,
            trained_tokens=row.stats.num_trained_tokens,
            sampled_tokens=sum(member.num_completion_tokens for member in members),
            num_rows=len(members),
            success=row.success,
            reward=row.reward_total,
            train_s=row.stats.seconds,
            forward_tokens=row.stats.num_forward_tokens,
            prefill_tokens=_prefill(group.baseline for group in consumed if group.baseline),
            seen_pairs=_seen_pairs([group.baseline for group in consumed if group.baseline]),
        )
        before = at


def _prefill(groups: Iterable[Sequence[Attempt]]) -> int:
    """Distinct tokens that were told to the policy: what prompts have in common once, observations of each member."""
    kept = list(groups)
    observed = sum(
        len(span.token_ids_T)
        for members in kept
        for member in members
        for span in member.spans
        if span.kind is SpanKind.OBSERVATION
    )
    return num_tree_tokens(_prompts(kept), least=1) + observed


def _seen_pairs(groups: Sequence[Sequence[Attempt]]) -> int:
    """Of a token that training must compute and one before it or itself; prompts as in ``_prefill``."""
    pairs = num_tree_pairs(_prompts(groups), least=1)
    for member in (member for members in groups for member in members):
        prompt = len(member.spans[0].token_ids_T)
        pairs += num_pairs(prompt, max(prompt, sum(len(span.token_ids_T) for span in member.spans) - 1))
    return pairs


def _prompts(groups: Sequence[Sequence[Attempt]]) -> list[Key]:
    return [Key(tokens=members[0].spans[0].token_ids_T, group=place) for place, members in enumerate(groups)]


def _check_prompts(work: Workload, groups: Iterable[EpisodeGroup]) -> None:
    expected = {prompt.order.id: prompt.token_ids_T for prompt in work.prompts}
    for group in groups:
        for member in group.members:
            if member.spans[0].token_ids_T != expected[group.task]:
                raise TokenContractError(
                    f"the prompt of {group.task} was rendered as other tokens than the peer gets",
                    where=member.id,
                    expected="equal token ids on both sides",
                    mend="bring the peer's chat template and the dialect together",
                )
