"""CPU of scripted tool-only episodes, beside a physical reference measured in the same run.

An episode here is the whole path that training takes, without a model: fresh world, two tool calls through the
boundary, snapshot, checks, reward, attempt record. The reference is what no such episode can do without: a SQLite image
opened, two statements, the image taken out again. Milliseconds depend on the machine and on who else uses it; the
ratio of the two hardly does.
"""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Sequence

from flightschool.bench.targets import Target, at_most
from flightschool.errors import InputError
from flightschool.records import Record, Task
from flightschool.rollouts import EpisodeRunner, OraclePolicy, run_attempts
from flightschool.verification import OutcomeReward, RewardSettings

__all__ = ["MOST_CPU_MS", "EpisodesBench", "bench_episodes", "reference_ms"]

MOST_CPU_MS = 2.0
"""CPU of one scripted episode of two tool calls, in the quietest round: interference only ever adds to it."""
CONCURRENCY = 256
NUM_ROUNDS = 5
STRATUM = "two_step"


class EpisodesBench(Record, frozen=True, kw_only=True):
    """What was measured."""

    cpu_ms: float
    """CPU milliseconds of an episode, median over rounds."""
    cpu_ms_best: float
    """The same in the round with the least interference from the rest of the machine."""
    reference_ms: float
    """CPU milliseconds of the physical reference, median over the same rounds."""
    ratio: float
    """Median over rounds of episode / reference."""
    episodes_per_s: float
    """Episodes a second of wall time, one event loop on one core, median over rounds."""
    num_episodes: int
    """Episodes in all rounds together, a warm-up apart."""
    num_rounds: int
    concurrency: int
    checks_per_episode: float
    success: float
    """Share of episodes that succeeded; anything but 1 means that something else was measured."""
    targets: tuple[Target, ...]


def bench_episodes(num_episodes: int = 2_000, *, seed: int = 0, concurrency: int = CONCURRENCY) -> EpisodesBench:
    """Measure scripted episodes of the worked domain.

    Args:
        num_episodes: episodes over all rounds; at least one a round.
        seed: seed of the episodes.
        concurrency: episodes at a time in one event loop.

    Raises:
        InputError: too few episodes.
    """
    if num_episodes < NUM_ROUNDS:
        raise InputError(
            f"{num_episodes} episodes", where="--num", expected=f"at least {NUM_ROUNDS}", mend="measure more episodes"
        )
    from flightschool.environments.desk import build_environment

    desk = build_environment()
    runner = EpisodeRunner(desk, OutcomeReward(RewardSettings()), run="bench-episodes")
    policy = OraclePolicy(desk)
    tasks = [task for task in desk.tasks() if task.stratum == STRATUM]
    run_attempts(runner, tasks, policy, seed=seed, concurrency=concurrency)  # warm: verifiers, digests, initial facts
    world = desk.open(tasks[0])
    image = world.snapshot()
    world.close()
    per_round = num_episodes // NUM_ROUNDS
    rounds = []
    for number in range(NUM_ROUNDS):
        reference = reference_ms(image, num=max(100, per_round // 2))
        rounds.append((reference, *_round(runner, policy, _cycled(tasks, per_round), seed + number, concurrency)))
    cpu, wall = [row[1] for row in rounds], [row[2] for row in rounds]
    best = min(cpu)
    return EpisodesBench(
        cpu_ms=statistics.median(cpu),
        cpu_ms_best=best,
        reference_ms=statistics.median(row[0] for row in rounds),
        ratio=statistics.median(row[1] / row[0] for row in rounds),
        episodes_per_s=1e3 / statistics.median(wall),
        num_episodes=per_round * NUM_ROUNDS,
        num_rounds=NUM_ROUNDS,
        concurrency=concurrency,
        checks_per_episode=statistics.fmean(row[3] for row in rounds),
        success=statistics.fmean(row[4] for row in rounds),
        targets=(at_most("cpu_ms_best", best, MOST_CPU_MS),),
    )


def reference_ms(image: bytes, num: int = 200) -> float:
    """CPU milliseconds of: open an image in memory, read one row, write one row, take the image out."""
    started = time.process_time()
    for _ in range(num):
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.deserialize(image)
        connection.execute("SELECT * FROM assets LIMIT 1").fetchone()
        connection.execute("UPDATE orders SET technician = 'nobody' WHERE id = 'none'")
        connection.serialize()
        connection.close()
    return (time.process_time() - started) / num * 1e3


def _cycled(tasks: Sequence[Task], num: int) -> list[Task]:
    return [tasks[index % len(tasks)] for index in range(num)]


def _round(
    runner: EpisodeRunner, policy: OraclePolicy, tasks: Sequence[Task], seed: int, concurrency: int
) -> tuple[float, float, float, float]:
    """CPU and wall milliseconds an episode, checks an episode, share of successes."""
    cpu, wall = time.process_time(), time.perf_counter()
    attempts = run_attempts(runner, tasks, policy, seed=seed, concurrency=concurrency)
    cpu_ms = (time.process_time() - cpu) / len(attempts) * 1e3
    wall_ms = (time.perf_counter() - wall) / len(attempts) * 1e3
    checks = statistics.fmean(len(a.verdict.checks) if a.verdict else 0 for a in attempts)
    success = statistics.fmean(float(a.reward is not None and a.reward.success) for a in attempts)
    return cpu_ms, wall_ms, checks, success
