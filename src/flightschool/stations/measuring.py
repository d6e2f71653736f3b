"""The measuring station: a model behind an engine, on the frozen suite, in clear and in rough weather."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flightschool.evaluation import EvaluationRun, evaluate
from flightschool.perturbation import profile
from flightschool.protocols import Environment, RewardComposition, Tokenizer
from flightschool.records import Attempt, Suite
from flightschool.rollouts import EnginePolicy, Sampling
from flightschool.stations.settings import JobSettings
from flightschool.stations.telling import Tell
from flightschool.store import SqlStore

if TYPE_CHECKING:
    from flightschool.engines import TorchEngine

__all__ = ["EVALUATION_KIND", "PROFILE_KIND", "Pilot", "checkride", "measure", "num_cores", "open_pilot"]

EVALUATION_KIND = "evaluation"
PROFILE_KIND = "fault-profile"


NUM_PREFIXES = 128
"""Prompts whose caches are kept: a suite flown in several ways computes each prompt once."""


@dataclass
class Pilot:
    """A model behind one engine, to be sampled in several ways."""

    engine: TorchEngine
    tokenizer: Tokenizer
    name: str
    """Policy name, in the grammar of the command line."""
    max_new_tokens: int

    def policy(self, temperature: float) -> EnginePolicy:
        """The model at a temperature. The tasks of a family open alike: the engine computes that once."""
        sampling = Sampling(temperature=temperature, max_new_tokens=self.max_new_tokens, shared="opening")
        return EnginePolicy(self.engine, self.tokenizer, self.name, sampling)


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def open_pilot(folder: Path, name: str, settings: JobSettings) -> Pilot:
    """Load a model with all cores to itself: nothing else runs while a suite is flown."""
    from flightschool.engines import TorchEngine, load_model

    loaded = load_model(folder, device=settings.training.device)
    engine = TorchEngine(
        loaded, max_context=settings.training.max_context, max_prefixes=NUM_PREFIXES, num_threads=num_cores()
    )
    return Pilot(engine=engine, tokenizer=loaded.tokenizer, name=name, max_new_tokens=settings.training.max_new_tokens)


def measure(
    store: SqlStore,
    suite: Suite,
    environment: Environment,
    composition: RewardComposition,
    pilot: Pilot,
    *,
    run: str,
    weather: str,
    temperature: float,
    settings: JobSettings,
    tell: Tell,
) -> EvaluationRun:
    """Fly the suite once and keep the evaluation with all its attempts. A kept evaluation of this id is returned.

    Equal seeds pair two measurements: the same latencies and the same faults meet both models.
    """
    if store.has(EVALUATION_KIND, run):
        kept = store.get(EVALUATION_KIND, run, EvaluationRun)
        if kept.suite_digest == suite.digest:
            return kept
    faults = profile(weather)
    if not faults.is_clean:
        store.put(PROFILE_KIND, faults.label, faults)
    attempts: list[Attempt] = []
    measured = evaluate(
        suite,
        environment,
        pilot.policy(temperature),
        composition=composition,
        run=run,
        weather_profile=None if faults.is_clean else faults,
        repeats=settings.evaluation.repeats,
        seed=settings.seed,
        concurrency=settings.evaluation.concurrency,
        progress=tell.tick,
        on_attempt=attempts.append,
        keep_blob=store.put_blob,
    )
    store.put_many(("attempt", attempt.id, attempt) for attempt in attempts)
    store.put(EVALUATION_KIND, measured.id, measured)
    return measured


def checkride(
    store: SqlStore,
    suite: Suite,
    environment: Environment,
    composition: RewardComposition,
    pilot: Pilot,
    *,
    run: str,
    settings: JobSettings,
    tell: Tell,
) -> dict[str, EvaluationRun]:
    """The suite in every way that the job measures it: ``clean``, ``perturbed`` and, clean again, ``greedy``.

    Clean and perturbed are sampled as in training; greedy shows how much of a gain is mere decoding.
    """
    table = settings.evaluation
    ways = {"clean": ("clean", table.temperature), "perturbed": (settings.faults.evaluation, table.temperature)}
    if table.greedy and table.temperature > 0.0:
        ways["greedy"] = ("clean", 0.0)
    measured = {}
    for label, (weather, temperature) in ways.items():
        tell.station(f"measure {pilot.name}, {label}")
        measured[label] = measure(
            store,
            suite,
            environment,
            composition,
            pilot,
            run=f"{run}-{label}",
            weather=weather,
            temperature=temperature,
            settings=settings,
            tell=tell,
        )
    return measured
