"""Do the latency and thinking terms make episodes shorter, and at what price? Bounded as shipped, and unbounded.

    python recipes/shorter_episodes.py --seeds 0 1 2

A small model first imitates a *thorough* operator of the maintenance desk: half of the time it reads twice, looks again
after it wrote, and says at length that it is done. All of that is allowed and solves the task; none of it is needed.
From there three arms train alike, on families that no measurement uses:

- ``plain``: no such terms;
- ``bounded``: ``latency_weight`` and ``thinking_weight``, as ``training`` has them: added after the normalisation,
  among correct members only, bounded by their weights and by the gap between correct and wrong work;
- ``unbounded``: the same quantities with the same slopes, but part of the score: of every member, without limits, and
  hence normalised with it;
- ``steep``: the same with four times the slope, so that half a second is worth as much as being right. Bounded terms
  cannot be set so that they reverse right and wrong; these can.

Every arm is measured on the same held-out tasks with equal seeds; differences are paired, intervals are two-level
bootstraps over families, of all training seeds together. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeAlias

import torch

from flightschool.digest import derive_random
from flightschool.engines import TorchEngine, get_model, load_model
from flightschool.environments.desk import DeskEnvironment, build_environment
from flightschool.errors import FlightschoolError
from flightschool.protocols import RewardComposition
from flightschool.records import Attempt, Message, Reward, Task, ToolCall, Verdict
from flightschool.rollouts import EnginePolicy, EpisodeRunner, Sampling, demonstrate, run_attempts
from flightschool.statistics import Interval, paired_bootstrap
from flightschool.training import PoolSource, StepProgress, TrainingSettings, train
from flightschool.training.imitation import ImitationSettings, imitate
from flightschool.verification import OutcomeReward, RewardSettings

ARMS = ("plain", "bounded", "unbounded", "steep")
SLOPES = {"unbounded": 1.0, "steep": 4.0}
WEIGHT = 0.25
"""Of each term; the most that settings allow."""
BUDGET = 32
"""Sampled tokens; one read, one write and a word need about as many."""
FASTEST_MS, SLOWEST_MS = 500.0, 2_500.0
MARGIN = 0.05
"""Accuracy counts as equal where the interval of the difference stays above minus this."""
MEASURES = ("success", "tokens", "calls", "virtual_ms")
Rows: TypeAlias = list[dict[str, float]]
"""Measures by held-out task."""


# ------------------------------------------------------------------------------------------------ rewards


def composition_of(arm: str) -> RewardComposition:
    """The reward of an arm."""
    bounded = OutcomeReward(
        RewardSettings(
            process_share=0.1,
            latency_low_ms=FASTEST_MS,
            latency_high_ms=SLOWEST_MS,
            thinking_budget=BUDGET,
        )
    )
    return Unbounded(bounded, SLOPES[arm]) if arm in SLOPES else bounded


class Unbounded:
    """Takes time and tokens off the outcome, of right and wrong work alike, however many there are.

    Args:
        inner: the reward that it starts from.
        slope: in terms of the bounded terms'.
    """

    def __init__(self, inner: OutcomeReward, slope: float) -> None:
        self._inner, self._slope = inner, slope
        self.digest = f"unbounded {slope} {inner.digest}"

    def compose(self, verdict: Verdict, virtual_ms: float, num_tokens: int | None = None) -> Reward:
        """See ``protocols.RewardComposition``."""
        found = self._inner.compose(verdict, virtual_ms, num_tokens)
        slow = self._slope * WEIGHT * (virtual_ms - FASTEST_MS) / (SLOWEST_MS - FASTEST_MS)
        wordy = self._slope * WEIGHT * ((num_tokens or 0) / BUDGET - 1.0)
        outcome = found.gate * found.outcome - slow - wordy
        return Reward(outcome=outcome, process=0.0, latency=0.0, gate=1.0, total=outcome)


# ------------------------------------------------------------------------------------------------ the beginning


def thorough(desk: DeskEnvironment, task: Task, number: int) -> list[Message]:
    """What a thorough operator does in its n-th episode of a task."""
    chance = derive_random("thorough", task.id, number)
    reads, write = desk.reference(task.id).oracle[:-1], desk.reference(task.id).oracle[-1]
    calls = [*reads, *(reads if chance.random() < 0.5 else ()), write, *(reads if chance.random() < 0.5 else ())]
    words = (
        "Done." if chance.random() < 0.5 else "I have read the record, carried it out as asked and looked again. Done."
    )
    turns = [Message(role="assistant", tool_calls=(_numbered(call, place),)) for place, call in enumerate(calls)]
    return [*turns, Message(role="assistant", content=words)]


def _numbered(call: ToolCall, place: int) -> ToolCall:
    return ToolCall(id=f"call_{place}_0", name=call.name, arguments=call.arguments)


def beginning(desk: DeskEnvironment, pool: Sequence[Task], folder: Path, options: argparse.Namespace) -> Path:
    """A model that imitates the thorough operator."""
    model = Path(options.model) if "/" in options.model else get_model(options.model)
    runner = EpisodeRunner(desk, composition_of("plain"), run="demonstrations")
    recordings = [(task.id, thorough(desk, task, n)) for n in range(options.lessons) for task in pool]
    shown = demonstrate(runner, pool, recordings, load_model(model).tokenizer, max_context=options.max_context, seed=0)
    say(f"{len(shown.attempts)} demonstrations of {len(recordings)}, {shown.left_out}")
    settings = ImitationSettings(epochs=1, learning_rate=options.imitation_rate, batch_size=8)
    training = settings_of("plain", 0, options)
    imitate(settings, training, model=model, out=folder, demonstrations=shown.attempts, num_threads=options.threads)
    return folder


# ------------------------------------------------------------------------------------------------ the arms


def settings_of(arm: str, seed: int, options: argparse.Namespace) -> TrainingSettings:
    """Equal for all arms but for the two weights."""
    weight = WEIGHT if arm == "bounded" else 0.0
    return TrainingSettings(
        mode="sync",
        separate_process=False,
        num_threads=options.threads,
        num_steps=options.steps,
        learning_rate=options.learning_rate,
        warmup_steps=2,
        group_size=8,
        groups_per_step=options.groups,
        count_zero_advantage=True,
        temperature=options.temperature,
        max_new_tokens=64,
        max_context=options.max_context,
        latency_weight=weight,
        thinking_weight=weight,
        max_flat_groups=1_000_000,
        checkpoint_every=1_000_000,
        trackers=(),
        seed=seed,
    )


def fly(arm: str, seed: int, start: Path, folder: Path, options: argparse.Namespace) -> Rows:
    """Train one arm from the start and measure its model; a process of its own."""
    torch.set_num_threads(options.threads)
    desk = build_environment()
    pool, held_out = parted(desk)

    def note(row: StepProgress) -> None:
        say(f"{arm}, seed {seed}, step {row.step}: {row.completion_tokens:.0f} tokens, {row.tool_calls:.1f} calls")

    result = train(
        settings_of(arm, seed, options),
        model=start,
        run_dir=folder,
        source=PoolSource(pool, seed=seed),
        runner=EpisodeRunner(desk, composition_of(arm), run=f"{arm}-{seed}"),
        progress=note,
        unaudited="an experiment on the shipped desk, with rewards that are made worse on purpose",
    )
    rows = measure(Path(result.model), desk, held_out, options)
    say(f"{arm}, seed {seed}: {_means([rows])}")
    return rows


def parted(desk: DeskEnvironment) -> tuple[list[Task], list[Task]]:
    """Tasks of two thirds of the families to train on, those of the others to measure with."""
    tasks = [task for task in desk.tasks() if task.stratum == "two_step"]
    families = sorted({task.family for task in tasks})
    derive_random("shorter-episodes").shuffle(families)
    kept = set(families[: len(families) // 3])
    return [task for task in tasks if task.family not in kept], [task for task in tasks if task.family in kept]


# ------------------------------------------------------------------------------------------------ measuring


def measure(model: Path, desk: DeskEnvironment, held_out: Sequence[Task], options: argparse.Namespace) -> Rows:
    """Means by held-out task, equal seeds for whatever is measured."""
    loaded = load_model(model)
    engine = TorchEngine(loaded, max_context=options.max_context, num_threads=options.threads)
    sampling = Sampling(temperature=options.temperature, max_new_tokens=64)
    policy = EnginePolicy(engine, loaded.tokenizer, "measured", sampling)
    runner = EpisodeRunner(desk, composition_of("plain"), run="measured")
    repeated = [task for task in held_out for _ in range(options.samples)]
    found: dict[str, list[Attempt]] = {task.id: [] for task in held_out}
    for attempt in run_attempts(runner, repeated, policy, seed=1):
        if attempt.reward is not None:
            found[attempt.task].append(attempt)
    return [
        {
            "success": statistics.fmean(bool(a.reward and a.reward.success) for a in found[task.id]),
            "tokens": statistics.fmean(a.num_completion_tokens for a in found[task.id]),
            "calls": statistics.fmean(len(a.events) for a in found[task.id]),
            "virtual_ms": statistics.fmean(a.timings.virtual_ms for a in found[task.id]),
        }
        for task in held_out
    ]


def compare(before: Sequence[Rows], after: Sequence[Rows], families: Sequence[str]) -> dict[str, Interval]:
    """Paired differences after − before, task by task; training seeds are averaged first."""
    differences = {}
    for name in MEASURES:
        pairs = [
            [statistics.fmean(flight[place][name] for flight in side) for place in range(len(families))]
            for side in (before, after)
        ]
        differences[name] = paired_bootstrap(pairs[0], pairs[1], families)
    return differences


def main(options: argparse.Namespace) -> dict[str, object]:
    """All arms and seeds."""
    started = time.perf_counter()
    desk = build_environment()
    pool, held_out = parted(desk)
    labels = [task.family for task in held_out]
    with tempfile.TemporaryDirectory(prefix="shorter-episodes-") as scratch:
        start = beginning(desk, pool, Path(scratch) / "start", options)
        base = measure(start, desk, held_out, options)
        say(f"start: {_means([base])}")
        with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as processes:
            flights = {
                (arm, seed): processes.submit(fly, arm, seed, start, Path(scratch) / f"{arm}-{seed}", options)
                for seed in options.seeds
                for arm in ("plain", *options.arms)
            }
            arms = ("plain", *options.arms)
            found = {arm: [flights[arm, seed].result() for seed in options.seeds] for arm in arms}
    against = {arm: compare(found["plain"], found[arm], labels) for arm in options.arms}
    return {
        "num_held_out": len(held_out),
        "num_pool": len(pool),
        "options": vars(options),
        "start": _means([base]),
        "arms": {arm: _means(found[arm]) for arm in arms},
        "by_seed": {arm: [_means([flight]) for flight in found[arm]] for arm in arms},
        "minus_plain": {
            arm: {name: [i.value, i.low, i.high] for name, i in intervals.items()} for arm, intervals in against.items()
        },
        "shorter": {arm: all(i[name].high < 0.0 for name in MEASURES[1:]) for arm, i in against.items()},
        "as_accurate": {arm: i["success"].low > -MARGIN for arm, i in against.items()},
        "less_accurate": {arm: i["success"].high < 0.0 for arm, i in against.items()},
        "wall_s": time.perf_counter() - started,
    }


def _means(flights: Sequence[Rows]) -> dict[str, float]:
    rows = [row for flight in flights for row in flight]
    return {name: round(statistics.fmean(row[name] for row in rows), 3) for name in MEASURES}


def say(text: str) -> None:
    """For people."""
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Shorter episodes at equal accuracy, on the maintenance desk.")
    parser.add_argument("--model", default="tiny", help="name, or a path to a model folder")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", choices=ARMS[1:], nargs="+", default=ARMS[1:], help="besides plain")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--groups", type=int, default=6, help="groups of 8 attempts a step")
    parser.add_argument("--lessons", type=int, default=4, help="demonstrations of each pool task")
    parser.add_argument("--samples", type=int, default=4, help="attempts at each held-out task")
    parser.add_argument("--imitation-rate", type=float, default=5e-4)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--max-context", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--jobs", type=int, default=1, help="arms that fly side by side")
    try:
        print(json.dumps(main(parser.parse_args())))
    except FlightschoolError as error:
        sys.exit(str(error))
