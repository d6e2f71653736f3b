"""The training station: screened tasks in, a trained model folder out. A run that was cut goes on where it was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flightschool.audit.trajectories import facts_of
from flightschool.digest import digest
from flightschool.engines.scoring.settings import TeacherSettings
from flightschool.engines.settings import EngineSettings
from flightschool.governance import AuditLog
from flightschool.protocols import Environment, Harness, RewardComposition
from flightschool.records import MilestoneCheck, Task
from flightschool.rollouts import EpisodeRunner
from flightschool.stations.endings import ended_early
from flightschool.stations.gates import Admission
from flightschool.stations.settings import JobSettings
from flightschool.stations.telling import Tell
from flightschool.stations.watching import Canaries, WatchedSource
from flightschool.store import Workspace
from flightschool.training import PoolSource, TaskNotes, TrainingSettings, TrainResult, resume, train
from flightschool.training.algorithms import MilestonesOf
from flightschool.training.folders import RunFolder

__all__ = ["control_settings", "fly", "last_measurement_s", "run_name", "training_settings"]

LENGTH_OF_NAME = 8
MEASURING_GROWS = 1.3
"""A trained model acts more than an untrained one, so measuring it takes longer."""
IN_WEATHER = 1.4
"""The suite in bad weather against the same in clear weather: calls are tried again. Seen: 1.2; the rest is reserve."""
WRITING_S = 20.0
"""The last step, the checkpoint, loading it again and the report."""
LEAST_TRAINING_S = 30.0
"""However late it is, a job that trains makes some steps."""


def run_name(job: str, settings: JobSettings, environment: Environment, model: Path) -> str:
    """Name of the run that these settings make: the same job finds its run again, another one never takes it over."""
    # who answers for a suite that cannot be compared makes no other run
    content = [settings.model_dump(mode="json", exclude={"uncompared"}), environment.digest, str(model)]
    return f"{job}-{digest(content).removeprefix('sha256:')[:LENGTH_OF_NAME]}"


def last_measurement_s(settings: JobSettings, before_s: float, start_s: float | None) -> float:
    """Seconds that measuring the trained model will take, guessed from what was measured so far.

    Args:
        before_s: the first measurement, in every way that the job measures.
        start_s: the imitation in clear weather, which acts much as the trained model will; None without imitation.
    """
    if start_s is None:
        return MEASURING_GROWS * before_s
    return start_s * (1.0 + IN_WEATHER + (1.0 if settings.evaluation.greedy else 0.0))


def training_settings(settings: JobSettings, *, elapsed_s: float = 0.0, still_s: float = 0.0) -> TrainingSettings:
    """Training settings with the weather of ``[faults]``, the seed of the job and the time that it leaves.

    Args:
        elapsed_s: since the job began.
        still_s: what the last measurement will take.
    """
    limits = [] if settings.training.time_limit_s is None else [settings.training.time_limit_s]
    if settings.time_limit_s is not None:
        left_s = settings.time_limit_s - elapsed_s - still_s - WRITING_S
        limits.append(max(left_s, LEAST_TRAINING_S))
    update = {"noise": settings.faults.training, "seed": settings.seed, "time_limit_s": min(limits, default=None)}
    return settings.training.model_copy(update=update)


def control_settings(settings: JobSettings) -> TrainingSettings:
    """The negative control: the same training, shorter, with rewards shuffled within groups."""
    steps = settings.evaluation.negative_control_steps
    update = {"shuffle_rewards": True, "num_steps": steps, "distill_weight": 0.0}  # a teacher's word is no reward
    return training_settings(settings).model_copy(update=update)


def fly(
    space: Workspace,
    environment: Environment,
    composition: RewardComposition,
    admission: Admission,
    *,
    run: str,
    model: Path,
    settings: TrainingSettings,
    tell: Tell,
    harness: Harness | None = None,
    canaries: Canaries | None = None,
    engine: EngineSettings | None = None,
    teacher: TeacherSettings | None = None,
) -> TrainResult:
    """Train, or go on training; each consumed group is scanned. The run cites the audit log's head.

    Args:
        canaries: impossible tasks that are mixed in, watched, and give no gradient.
        harness: drives the model; the built-in one by default.
        engine: what samples; our own by default. A run goes on with the one that it began with.
        teacher: whose word trains, where the settings ask one; kept as the engine is.

    Raises:
        InfrastructureError: trainer or engine died; running the same again goes on with the run.
    """
    tell.station("train")
    folder = space.run_dir(run)
    pool = PoolSource(admission.tasks, weights=admission.weights, seed=settings.seed)
    mixed_in = canaries or Canaries()
    source = WatchedSource(pool, facts_of(environment), mixed_in, tell)
    notes = TaskNotes(milestones_of=_milestones(environment, admission.tasks), untrained=mixed_in.ids)
    runner = EpisodeRunner(environment, composition, run=run, harness=harness, keep_blob=space.store.put_blob)
    if RunFolder(folder).start.exists():
        result = resume(folder, source=source, runner=runner, progress=tell.step, note=tell.note, notes=notes)
    else:
        result = train(
            settings,
            model=model,
            run_dir=folder,
            source=source,
            runner=runner,
            progress=tell.step,
            note=tell.note,
            notes=notes,
            engine=engine,
            teacher=teacher if settings.asks_teacher else None,
            log_head=AuditLog(space.store).head().digest,
        )
    if (early := ended_early(result, settings)) is not None:
        tell.note(early)
    return result


def _milestones(environment: Environment, tasks: Sequence[Task]) -> MilestonesOf | None:
    """What the checks of tasks declare as milestones; None where no check does."""
    found: dict[str, list[tuple[float, MilestoneCheck]]] = {}
    for task in tasks:
        for check in environment.reference(task.id).checks:
            if isinstance(check.rule, MilestoneCheck):
                found.setdefault(task.id, []).append((check.weight, check.rule))
    return (lambda task_id: found.get(task_id, [])) if found else None
