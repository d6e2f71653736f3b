"""The spine on one screen: recorded traces in, a measurably better agent out.

No reward trains before it was audited, no task before it was screened, and no score counts that was not measured on
a suite frozen before the training began. Every station keeps what it made in the workspace, so a job that was killed
goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from flightschool.stations import (
    Flown,
    JobResult,
    JobSettings,
    Tell,
    admit,
    audit,
    checkride,
    collect,
    control_settings,
    fly,
    freeze,
    open_pilot,
    run_name,
    training_settings,
    write_up,
)
from flightschool.store import Workspace
from flightschool.verification import OutcomeReward, keep_reward

__all__ = ["run_job"]


def run_job(
    space: Workspace, settings: JobSettings, model: Path, tell: Tell, *, job: str, out: Path, commands: Sequence[str]
) -> JobResult:
    """Run the whole road.

    Args:
        space: workspace that keeps everything.
        settings: of all stations.
        model: folder of the model that is to be trained.
        tell: is told of progress.
        job: name of the job, from which the run takes its name.
        out: the report; ``quickstart.json`` is written beside it.
        commands: command lines that do the same again, for the report.
    """
    started = time.monotonic()
    store, reward = space.store, OutcomeReward(settings.reward)
    keep_reward(store, reward)

    environment, collected = collect(space, settings.environment, tell)
    audits = audit(store, environment, reward, tell)
    frozen = freeze(store, environment, settings.suite, settings.seed, tell)
    run = run_name(job, settings, environment, model)

    measuring = time.monotonic()
    pilot = open_pilot(model, f"model:{model}", settings)
    before = checkride(
        store, frozen.suite, environment, reward, pilot, run=f"{run}-before", settings=settings, tell=tell
    )
    measuring_s = time.monotonic() - measuring
    tasks, funnel = admit(store, environment, reward, frozen, pilot, settings, tell)
    del pilot  # its memory is the trainer's now

    training = training_settings(settings, elapsed_s=time.monotonic() - started, measuring_s=measuring_s)
    trained = fly(space, environment, reward, tasks, run=run, model=model, settings=training, tell=tell)
    pilot = open_pilot(Path(trained.model), f"run:{run}", settings)
    after = checkride(store, frozen.suite, environment, reward, pilot, run=f"{run}-after", settings=settings, tell=tell)
    del pilot

    control = None
    if settings.evaluation.negative_control_steps:
        name = f"{run}-control"
        shuffled = fly(
            space, environment, reward, tasks, run=name, model=model, settings=control_settings(settings), tell=tell
        )
        pilot = open_pilot(Path(shuffled.model), f"run:{name}", settings)
        control = checkride(
            store, frozen.suite, environment, reward, pilot, run=f"{name}-after", settings=settings, tell=tell
        )["clean"]

    flown = Flown(
        collected=collected,
        audits=audits,
        frozen=frozen,
        funnel=funnel,
        trained=trained,
        before=before,
        after=after,
        control=control,
    )
    return write_up(
        space,
        environment,
        settings,
        flown,
        model_before=str(model),
        out=out,
        commands=commands,
        started=started,
    )
