"""The training station: screened tasks in, a trained model folder out. A run that was cut goes on where it was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flightschool.digest import digest
from flightschool.protocols import Environment, RewardComposition
from flightschool.records import Task
from flightschool.rollouts import EpisodeRunner
from flightschool.stations.settings import JobSettings
from flightschool.stations.telling import Tell
from flightschool.store import Workspace
from flightschool.training import PoolSource, TrainingSettings, TrainResult, resume, train
from flightschool.training.folders import RunFolder

__all__ = ["control_settings", "fly", "run_name", "training_settings"]

LENGTH_OF_NAME = 8


def run_name(job: str, settings: JobSettings, environment: Environment, model: Path) -> str:
    """Name of the run that these settings make: the same job finds its run again, another one never takes it over."""
    content = [settings.model_dump(mode="json"), environment.digest, str(model)]
    return f"{job}-{digest(content).removeprefix('sha256:')[:LENGTH_OF_NAME]}"


def training_settings(settings: JobSettings) -> TrainingSettings:
    """Training settings with the weather of ``[faults]`` and the seed of the job."""
    return settings.training.model_copy(update={"noise": settings.faults.training, "seed": settings.seed})


def control_settings(settings: JobSettings) -> TrainingSettings:
    """The negative control: the same training, shorter, with rewards shuffled within groups."""
    update = {"shuffle_rewards": True, "num_steps": settings.evaluation.negative_control_steps}
    return training_settings(settings).model_copy(update=update)


def fly(
    space: Workspace,
    environment: Environment,
    composition: RewardComposition,
    tasks: Sequence[Task],
    *,
    run: str,
    model: Path,
    settings: TrainingSettings,
    tell: Tell,
) -> TrainResult:
    """Train, or go on training.

    Raises:
        InfrastructureError: trainer or engine died; running the same again goes on with the run.
    """
    tell.station("train")
    folder = space.run_dir(run)
    runner = EpisodeRunner(environment, composition, run=run, keep_blob=space.store.put_blob)
    source = PoolSource(tasks, seed=settings.seed)
    if RunFolder(folder).start.exists():
        return resume(folder, source=source, runner=runner, progress=tell.step)
    return train(settings, model=model, run_dir=folder, source=source, runner=runner, progress=tell.step)
