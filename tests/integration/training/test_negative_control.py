"""Rewards shuffled within groups teach nothing, where the same runs with true rewards do: on tasks never trained.

The unit is the run, since what a shuffled run drifts by is common to all of its tasks: five seeds, equal settings, the
small model that ships, a reward that it can learn in twelve steps. The gain of a run is the mean outcome on eight
held-out families, sampled, after training − before. Intervals are Student's, 95 % over the five runs, so the control
alone raises a false alarm in one of forty choices of seeds; the seeds are fixed, so it does so always or never.
Measured: true rewards +.30 ± .04, shuffled ones −.07 ± .11.
"""

from __future__ import annotations

import asyncio
import statistics
from pathlib import Path

import pytest
from tests.integration.training.bandit import BanditRunner

from flightschool.engines.catalogue import tiny_folder
from flightschool.engines.opening import open_engine
from flightschool.engines.settings import EngineSettings
from flightschool.records import Task
from flightschool.rollouts import EnginePolicy, Sampling
from flightschool.training import PoolSource, StepProgress, TrainingSettings, train

pytestmark = [pytest.mark.integration, pytest.mark.long]
SEEDS = range(5)
STUDENT = 2.776
"""97.5 % quantile of Student's t, four degrees of freedom: of five runs."""
TOLERANCE = 0.15
"""Gain that counts as none, and that the true rewards must exceed."""
SAYINGS = (
    "who repaired pump 7?",
    "count to nine",
    "move crate B-12 to the dock",
    "what is due on Friday?",
    "cancel the order of Mira",
    "thanks, that is all",
    "list all open tickets",
    "close valve 3 slowly",
)


def task(family: str, instruction: str) -> Task:
    return Task(id=family, family=family, stratum="s", instruction=instruction, initial_state="")


POOL = [task(f"f{i}", f"go {i}") for i in range(3)]
HELD_OUT = [task(f"h{i}", words) for i, words in enumerate(SAYINGS)]


async def outcome_on_held_out(model: Path) -> float:
    opened = open_engine(EngineSettings(), model, run="held-out", device="cpu", dtype="float32", max_context=1024)
    await opened.connect()
    policy = EnginePolicy(opened.engine, opened.tokenizer, "held-out", Sampling(max_new_tokens=8))
    try:
        groups = await asyncio.gather(
            *(
                BanditRunner().group(each, policy, size=16, group=each.id, admitted_step=0, seed=1000 * number)
                for number, each in enumerate(HELD_OUT)
            )
        )
    finally:
        await opened.engine.aclose()
    return statistics.fmean(m.reward.outcome for group in groups for m in group.members if m.reward)


def gains(folder: Path, seed: int, *, shuffled: bool) -> tuple[float, float]:
    """Of a run: in its own rollouts (last four steps − first four), and on what it never trained."""
    rows: list[StepProgress] = []
    settings = TrainingSettings(
        mode="sync",
        separate_process=False,
        num_steps=12,
        learning_rate=1e-3,
        group_size=16,
        groups_per_step=2,
        max_inflight_groups=3,
        max_new_tokens=8,
        shuffle_rewards=shuffled,
        seed=seed,
        trackers=(),
    )
    source = PoolSource(POOL)
    result = train(
        settings,
        model=tiny_folder(),
        run_dir=folder,
        source=source,
        runner=BanditRunner(),
        progress=rows.append,
        unaudited="a test",
    )
    first, last = (statistics.fmean(row.reward_outcome for row in part) for part in (rows[:4], rows[-4:]))
    after = asyncio.run(outcome_on_held_out(Path(result.model)))
    return last - first, after - asyncio.run(outcome_on_held_out(tiny_folder()))


def interval(values: list[float]) -> tuple[float, float]:
    half = STUDENT * statistics.stdev(values) / len(values) ** 0.5
    return statistics.fmean(values) - half, statistics.fmean(values) + half


def test_shuffled_rewards_teach_nothing_and_true_ones_do(tmp_path: Path) -> None:
    true = [gains(tmp_path / f"true-{seed}", seed, shuffled=False) for seed in SEEDS]
    control = [gains(tmp_path / f"control-{seed}", seed, shuffled=True) for seed in SEEDS]
    assert interval([trained for trained, _ in true])[0] > TOLERANCE
    assert abs(statistics.fmean(trained for trained, _ in control)) < TOLERANCE
    low, _ = interval([held_out for _, held_out in true])
    control_low, control_high = interval([held_out for _, held_out in control])
    assert low > TOLERANCE
    assert control_low <= 0.0
    assert control_high < TOLERANCE < low  # and that is not for want of power
