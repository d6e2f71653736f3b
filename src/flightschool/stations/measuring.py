"""The measuring station: a model behind an engine, on the frozen suite, in clear and in rough weather."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from flightschool.evaluation import EvaluationRun, evaluate, keep_run, load_run
from flightschool.governance import AuditLog
from flightschool.perturbation import profile
from flightschool.protocols import Environment, RewardComposition, Tokenizer, TrainedEngine
from flightschool.records import Attempt, Suite
from flightschool.rollouts import EnginePolicy, Sampling
from flightschool.stations.failing import Ungraded
from flightschool.stations.harnesses import make_harness
from flightschool.stations.settings import JobSettings
from flightschool.stations.telling import Tell
from flightschool.store import SqlStore
from flightschool.training.placing import engine_device

__all__ = ["EVALUATION_KIND", "PROFILE_KIND", "Checkride", "Pilot", "num_cores", "open_pilot"]

EVALUATION_KIND = "evaluation"
PROFILE_KIND = "fault-profile"


NUM_PREFIXES = 128
"""Prompts whose caches are kept: a suite flown in several ways computes each prompt once."""


@dataclass
class Pilot:
    """A model behind one engine, to be sampled in several ways."""

    engine: TrainedEngine
    tokenizer: Tokenizer
    name: str
    """Policy name, in the grammar of the command line."""
    max_new_tokens: int
    constrained: bool = False
    """Whether completions follow the dialect's grammar."""

    def policy(self, temperature: float) -> EnginePolicy:
        """The model at a temperature. The tasks of a family open alike: the engine computes that once."""
        sampling = Sampling(
            temperature=temperature,
            max_new_tokens=self.max_new_tokens,
            shared="opening",
            constrained=self.constrained,
        )
        return EnginePolicy(self.engine, self.tokenizer, self.name, sampling)


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def open_pilot(folder: Path, name: str, settings: JobSettings) -> Pilot:
    """Load a model with all cores to itself: nothing else runs while a suite is flown. A server is made to serve it."""
    from flightschool.engines.opening import open_engine

    opened = open_engine(
        settings.engine,
        folder,
        device=engine_device(settings.training, settings.engine),
        max_context=settings.training.max_context,
        max_prefixes=NUM_PREFIXES,
        num_threads=num_cores(),
    )
    asyncio.run(opened.serve(name, folder))
    return Pilot(
        engine=opened.engine,
        tokenizer=opened.tokenizer,
        name=name,
        max_new_tokens=settings.training.max_new_tokens,
        constrained=settings.engine.constrain_calls,
    )


@dataclass
class Checkride:
    """A frozen suite in its environment, to be flown by one pilot after another."""

    store: SqlStore
    suite: Suite
    environment: Environment
    composition: RewardComposition
    settings: JobSettings
    tell: Tell

    def fly(self, pilot: Pilot, run: str) -> dict[str, EvaluationRun]:
        """The suite in every way that the job measures it: ``clean``, ``perturbed`` and, clean again, ``greedy``.

        Clean and perturbed are sampled as in training; greedy shows how much of a gain is mere decoding.
        """
        table = self.settings.evaluation
        flown = {label: self._fly(pilot, run, label, table.temperature) for label in ("clean", "perturbed")}
        if table.greedy and table.temperature > 0.0:
            flown["greedy"] = self._fly(pilot, run, "greedy", 0.0)
        return flown

    def fly_clean(self, pilot: Pilot, run: str) -> EvaluationRun:
        """The suite in clear weather alone."""
        return self._fly(pilot, run, "clean", self.settings.evaluation.temperature)

    def _fly(self, pilot: Pilot, run: str, label: str, temperature: float) -> EvaluationRun:
        """Fly once and keep the evaluation with all its attempts. A kept evaluation of this id is returned.

        Equal seeds pair two measurements: the same latencies and the same faults meet both models. An evaluation with
        too many infra failures would be refused by every comparison: it is neither kept nor taken from what was kept.

        Raises:
            GateError: too many attempts have no grade; says why.
        """
        run_id = f"{run}-{label}"
        self.tell.station(f"measure {pilot.name}, {label}")
        if self.store.has(EVALUATION_KIND, run_id):
            kept = load_run(self.store, run_id)
            if kept.suite_digest == self.suite.digest and kept.missing_share <= kept.rules.most_missing:
                return kept
        faults = profile(self.settings.faults.evaluation if label == "perturbed" else "clean")
        if not faults.is_clean:
            self.store.put(PROFILE_KIND, faults.label, faults)
        attempts: list[Attempt] = []
        repeats = self.settings.evaluation.repeats
        ungraded = Ungraded(repeats * len(self.suite.task_digests), f"evaluation {run_id}")

        def take(attempt: Attempt) -> None:
            attempts.append(attempt)
            ungraded.see(attempt)

        measured = evaluate(
            self.suite,
            self.environment,
            pilot.policy(temperature),
            composition=self.composition,
            run=run_id,
            weather_profile=None if faults.is_clean else faults,
            repeats=repeats,
            seed=self.settings.seed,
            concurrency=self.settings.evaluation.concurrency,
            progress=self.tell.tick,
            on_attempt=take,
            keep_blob=self.store.put_blob,
            harness=make_harness(self.settings.harness),
            log_head=AuditLog(self.store).head().digest,
        )
        self.store.put_many(("attempt", attempt.id, attempt) for attempt in attempts)
        keep_run(self.store, measured, actor="train")
        return measured
