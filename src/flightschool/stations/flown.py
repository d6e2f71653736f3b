"""What a job made on its way, and the figures that are left of it: ``JOB.json`` beside its report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flightschool.audit.trajectories import TrajectoryFinding
from flightschool.evaluation import Comparison, Difference, EvaluationRun, Frozen, compare
from flightschool.protocols import Environment
from flightschool.records import Record, TaskAudit
from flightschool.screening import Funnel
from flightschool.stations.collecting import Collected
from flightschool.stations.settings import JobSettings
from flightschool.training import TrainResult
from flightschool.training.imitation import ImitationResult

__all__ = ["TRAINED", "Flown", "JobResult", "Measured", "Watched", "job_result"]

TRAINED = "trained"
"""Part of the suite that the training was declared to train, as summaries name it."""


class Measured(Record, frozen=True, kw_only=True):
    """The suite flown before and after, under one weather and one way of sampling."""

    label: str
    """``clean``, ``perturbed`` or ``greedy``."""
    before: EvaluationRun
    after: EvaluationRun


class JobResult(Record, frozen=True, kw_only=True):
    """``JOB.json`` (of a quickstart ``quickstart.json``): where everything lies, and the figures."""

    schema: int = 1
    run: str
    suite: str
    suite_digest: str
    environment: str
    model_before: str
    model_after: str
    report: str
    seed: int
    trained_strata: tuple[str, ...]
    num_suite_tasks_trained_strata: int
    success_before: float
    success_after: float
    gain_low: float
    gain_high: float
    perturbed_before: float
    perturbed_after: float
    greedy_before: float | None
    greedy_after: float | None
    violations_before: float
    violations_after: float
    num_demonstrations: int = 0
    """Recorded episodes that were imitated before reinforcement began."""
    success_at_start: float | None = None
    """Success after the imitation, before reinforcement; None without one."""
    reinforcement_gain_low: float | None = None
    reinforcement_gain_high: float | None = None
    """Interval of what reinforcement added to the imitation."""
    control_gain_low: float | None = None
    control_gain_high: float | None = None
    num_steps: int
    max_staleness: int
    share_reproduced: float
    wall_s: float
    """Wall time of the whole job."""


class Watched(Record, frozen=True, kw_only=True):
    """What was seen of a job's attempts."""

    findings: tuple[TrajectoryFinding, ...] = ()
    """What is suspicious in the attempts of training and measuring."""
    canaries: tuple[str, ...] = ()
    """Impossible tasks that were mixed into training."""


class Flown(Record, frozen=True, kw_only=True):
    """Everything the report is written from."""

    collected: Collected
    audits: tuple[TaskAudit, ...]
    watched: Watched = Watched()
    frozen: Frozen
    funnel: Funnel
    imitation: ImitationResult | None = None
    trained: TrainResult
    before: dict[str, EvaluationRun]
    """Way of measuring → the suite before training; ``clean``, ``perturbed``, ``greedy``."""
    at_start: EvaluationRun | None = None
    """The suite flown after the imitation and before reinforcement, clean; None without an imitation."""
    after: dict[str, EvaluationRun]
    """The same after it."""
    control: EvaluationRun | None = None
    """The suite flown by the negative control, clean."""

    @property
    def measured(self) -> tuple[Measured, ...]:
        """Before and after in pairs."""
        return tuple(Measured(label=label, before=run, after=self.after[label]) for label, run in self.before.items())

    @property
    def reinforced_from(self) -> EvaluationRun:
        """The suite as the model flew it that reinforcement began with, clean."""
        return self.at_start or self.before["clean"]

    def gain_since_start(self, run: EvaluationRun, seed: int) -> Difference:
        """Success on the trained strata, against the model that reinforcement began with."""
        return compare(self.reinforced_from, run, seed=seed).difference(f"success/{TRAINED}")


def job_result(
    settings: JobSettings,
    environment: Environment,
    flown: Flown,
    comparisons: Mapping[str, Comparison],
    model_before: str,
    out: Path,
    wall_s: float,
) -> JobResult:
    """The figures of a finished job.

    Args:
        comparisons: before against after, by way of measuring.
        model_before: folder of the model that was trained.
        out: the report.
        wall_s: of the whole job.
    """
    clean, rough, greedy = comparisons["clean"], comparisons["perturbed"], comparisons.get("greedy")
    gain = clean.difference(f"success/{TRAINED}")
    rough_gain = rough.difference(f"success/{TRAINED}")
    risk = clean.difference("violations/weighted")
    greedy_gain = greedy.difference(f"success/{TRAINED}") if greedy else None
    added = flown.gain_since_start(flown.measured[0].after, settings.seed) if flown.at_start else None
    control_gain = flown.gain_since_start(flown.control, settings.seed) if flown.control else None
    strata = [share for share in flown.frozen.suite.strata if share.trained]
    return JobResult(
        run=flown.trained.run,
        suite=flown.frozen.suite.name,
        suite_digest=flown.frozen.suite.digest,
        environment=environment.name,
        model_before=model_before,
        model_after=flown.trained.model,
        report=str(out),
        seed=settings.seed,
        trained_strata=tuple(share.name for share in strata),
        num_suite_tasks_trained_strata=sum(share.num_tasks for share in strata),
        success_before=gain.before,
        success_after=gain.after,
        gain_low=gain.low,
        gain_high=gain.high,
        perturbed_before=rough_gain.before,
        perturbed_after=rough_gain.after,
        greedy_before=greedy_gain.before if greedy_gain else None,
        greedy_after=greedy_gain.after if greedy_gain else None,
        violations_before=risk.before,
        violations_after=risk.after,
        num_demonstrations=len(flown.imitation.demonstrations) if flown.imitation else 0,
        success_at_start=added.before if added else None,
        reinforcement_gain_low=added.low if added else None,
        reinforcement_gain_high=added.high if added else None,
        control_gain_low=control_gain.low if control_gain else None,
        control_gain_high=control_gain.high if control_gain else None,
        num_steps=flown.trained.manifest.step,
        max_staleness=flown.trained.max_staleness,
        share_reproduced=flown.collected.share_reproduced,
        wall_s=wall_s,
    )
