"""The spine on one screen: recorded traces in, a measurably better agent out.

No reward trains before it was audited, no task before it was screened, and no score counts that was not measured on
a suite frozen before the training began. Every station keeps what it made in the workspace, so a job that was killed
goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from flightschool.engines import give_back_memory
from flightschool.evaluation import EvaluationRun
from flightschool.protocols import Environment
from flightschool.records import Task
from flightschool.stations import (
    Admission,
    Canaries,
    Checkride,
    Flown,
    JobResult,
    JobSettings,
    Pilot,
    Tell,
    admit,
    audit,
    canary_tasks,
    candidates,
    check_job,
    collect,
    control_settings,
    fly,
    freeze,
    last_measurement_s,
    learn_by_imitation,
    make_harness,
    open_pilot,
    require_room,
    require_strata,
    require_unseen,
    run_name,
    scan_run,
    training_settings,
    write_up,
)
from flightschool.store import Workspace
from flightschool.training import TrainingSettings, TrainResult, refuse_held
from flightschool.training.imitation import ImitationResult
from flightschool.verification import OutcomeReward, keep_reward

__all__ = ["run_job"]

_Result = TypeVar("_Result")


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
        out: the report; ``JOB.json`` with its figures is written beside it (``quickstart.json`` of a quickstart).
        commands: command lines that do the same again, for the report.
    """
    started = time.monotonic()
    check_job(settings, model)
    store, reward = space.store, OutcomeReward(settings.reward)
    keep_reward(store, reward)
    environment, collected = collect(space, settings.environment, tell)
    require_strata(environment, settings)
    require_room(environment, model, settings)
    audits = audit(store, environment, reward, tell, data=space.data)
    frozen = freeze(store, environment, settings.suite, settings.seed, tell)
    canaries = canary_tasks(store, environment, frozen, settings.canaries, tell)
    found = candidates(store, environment, frozen, settings.waiver, canaries)
    run = run_name(job, settings, environment, model)
    refuse_held(space.run_dir(run))
    require_unseen(space, environment, found.sound, run, tell, settings.uncompared)
    checkride = Checkride(store, frozen.suite, environment, reward, settings, tell)

    pilot = open_pilot(model, f"model:{model}", settings)
    before, before_s = _timed(checkride.fly, pilot, f"{run}-before")
    school = _School(space, environment, reward, run, settings, tell)
    imitation = school.imitate(found.sound, model, pilot)
    start, at_start, start_s = model, None, None
    if imitation is not None:
        start = Path(imitation.model)
        pilot = open_pilot(start, f"model:{start}", settings)
        at_start, start_s = _timed(checkride.fly_clean, pilot, f"{run}-start")
    admission = admit(store, environment, reward, frozen, found, pilot, settings, tell)
    del pilot  # its memory is the trainer's now
    give_back_memory()

    still_s = last_measurement_s(settings, before_s, start_s)
    training = training_settings(settings, elapsed_s=time.monotonic() - started, still_s=still_s)
    trained = school.train(run, start, admission, training, canaries)
    after = checkride.fly(open_pilot(Path(trained.model), f"run:{run}", settings), f"{run}-after")
    flown = Flown(
        collected=collected,
        audits=audits,
        watched=scan_run(space, environment, run, canaries),
        frozen=frozen,
        funnel=admission.funnel,
        imitation=imitation,
        trained=trained,
        before=before,
        at_start=at_start,
        after=after,
        control=school.negative_control(start, admission, checkride),
    )
    return write_up(
        space,
        environment,
        settings,
        flown,
        job=job,
        model_before=str(model),
        out=out,
        commands=commands,
        started=started,
    )


def _timed(measure: Callable[[Pilot, str], _Result], pilot: Pilot, run: str) -> tuple[_Result, float]:
    """What was measured, and the seconds that it took."""
    started = time.monotonic()
    return measure(pilot, run), time.monotonic() - started


class _School(NamedTuple):
    """What all learning of a job has in common."""

    space: Workspace
    environment: Environment
    reward: OutcomeReward
    run: str
    settings: JobSettings
    tell: Tell

    def imitate(self, tasks: Sequence[Task], model: Path, pilot: Pilot) -> ImitationResult | None:
        """A model folder that learned from demonstrations at the tasks; None if none were asked for."""
        return learn_by_imitation(
            self.space,
            self.environment,
            self.reward,
            tasks,
            model=model,
            tokenizer=pilot.tokenizer,
            run=self.run,
            settings=self.settings,
            tell=self.tell,
        )

    def train(
        self,
        run: str,
        start: Path,
        admission: Admission,
        training: TrainingSettings,
        canaries: Canaries | None = None,
    ) -> TrainResult:
        """Train from a model folder, or go on with a run that was cut; canaries are mixed in and watched."""
        return fly(
            self.space,
            self.environment,
            self.reward,
            admission,
            run=run,
            model=start,
            settings=training,
            tell=self.tell,
            harness=make_harness(self.settings.harness),
            canaries=canaries,
            engine=self.settings.engine,
            teacher=self.settings.teacher,
        )

    def negative_control(self, start: Path, admission: Admission, checkride: Checkride) -> EvaluationRun | None:
        """The suite as a policy flies it that was trained on shuffled rewards; None if no control was asked for."""
        if not self.settings.evaluation.negative_control_steps:
            return None
        name = f"{self.run}-control"
        astray = self.train(name, start, admission, control_settings(self.settings))
        return checkride.fly_clean(open_pilot(Path(astray.model), f"run:{name}", self.settings), f"{name}-after")
