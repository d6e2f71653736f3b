"""Starting a run, and going on with one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from flightschool.engines.scoring import TeacherSettings, check_teacher
from flightschool.engines.settings import EngineSettings
from flightschool.errors import ConfigError, GateError, InputError, NotFoundError
from flightschool.protocols import GroupSource
from flightschool.records import Record
from flightschool.training.algorithms import MilestonesOf, TurnQuality, milestone_quality
from flightschool.training.checkpoints import newest_whole, set_aside
from flightschool.training.folders import (
    RunFolder,
    remove_all_published,
    remove_published,
    shared_path,
    write_durably,
)
from flightschool.training.generation import GenerationStation, GroupRunner, LocalGeneration
from flightschool.training.incidents import Incidents, NoteCallback
from flightschool.training.journal import Recovery, recover
from flightschool.training.link import InlineLink, Launch, ProcessLink, TrainerLink, launcher, trainer_command
from flightschool.training.messages import Manifest, TrainerSpec
from flightschool.training.orchestrator import Orchestrator, TrainResult
from flightschool.training.preflight import preflight
from flightschool.training.progress import ProgressCallback, StepProgress
from flightschool.training.run_lock import held_run
from flightschool.training.settings import TrainingSettings
from flightschool.training.source import Rewound
from flightschool.training.supervisor import supervise
from flightschool.training.teaching import TeacherDesk, check_asked, open_desk
from flightschool.training.trackers import Trackers
from flightschool.training.watch import LoopWatch

__all__ = ["RunStart", "TaskNotes", "read_run", "resume", "run_supervised", "train"]

MakeStation = Callable[[TrainingSettings, TrainerSpec], GenerationStation]


class RunStart(Record, frozen=True, kw_only=True):
    """What a run was started with; ``run.json``."""

    run: str
    model: str
    settings: str
    """``TrainingSettings`` as JSON."""
    engine: str = "{}"
    """``EngineSettings`` as JSON."""
    teacher: str = ""
    """``TeacherSettings`` as JSON; empty: none is asked."""
    log_head: str = ""
    """Digest of the audit log's last entry when the run began: the log proves that the freeze came before."""
    unaudited: str = ""
    """Why it trains on tasks whose reward nobody audited; empty where a log stands for that."""


@dataclass(frozen=True)
class TaskNotes:
    """What training must know of tasks beside their attempts."""

    milestones_of: MilestonesOf | None = None
    """For ``turn_quality = "milestones"``."""
    untrained: frozenset[str] = frozenset()
    """Tasks that are watched and give no gradient: canaries, which no honest policy can pass."""


def train(
    settings: TrainingSettings,
    *,
    model: Path,
    run_dir: Path,
    source: GroupSource,
    runner: GroupRunner,
    progress: ProgressCallback | None = None,
    note: NoteCallback | None = None,
    launch: Launch | None = None,
    notes: TaskNotes | None = None,
    engine: EngineSettings | None = None,
    teacher: TeacherSettings | None = None,
    log_head: str = "",
    unaudited: str = "",
) -> TrainResult:
    """Train a model in an environment, from step 0.

    The gates (audit, freeze, screening, lineage) stand before this call, in ``flightschool.stations``: this room knows
    neither verdicts nor suites. It demands that the caller says which way the tasks came: through gates whose log it
    cites, or past them for a reason that is kept with the run.

    Args:
        settings: of the run.
        model: folder of the model to begin with.
        run_dir: folder of the run; must not hold one yet. Its name is the run's.
        source: of tasks.
        runner: of episodes, with environment and reward; an ``EpisodeRunner``.
        progress: is called after every step.
        note: is told what failed and was mended.
        launch: starts the trainer process; the real trainer by default.
        notes: what training must know of tasks beside their attempts.
        engine: what samples; our own in this process by default.
        teacher: whose word trains, where the settings ask for one.
        log_head: digest of the audit log's last entry, which the gates wrote before.
        unaudited: why the tasks train without an audit, where there is no such log: a benchmark, a test of one's own.

    Raises:
        GateError: neither ``log_head`` nor ``unaudited`` is given.
        InputError: the folder holds a run already, another process trains it, or the model cannot be used.
        InfrastructureError: trainer or engine died; go on with ``resume``.
    """
    _require_declared(run_dir.name, log_head, unaudited)
    _refuse_existing(run_dir)
    check_combination(settings)
    check_asked(settings, teacher, engine)
    preflight(settings, model, engine)
    if teacher is not None:
        check_teacher(teacher, model, settings.max_context)
    start = RunStart(
        run=run_dir.name,
        model=str(model.resolve()),
        settings=settings.model_dump_json(),
        engine=(engine or EngineSettings()).model_dump_json(),
        teacher="" if teacher is None else teacher.model_dump_json(),
        log_head=log_head,
        unaudited=unaudited.strip(),
    )
    with held_run(run_dir):
        _refuse_existing(run_dir)  # another process may have begun it meanwhile
        write_durably(RunFolder(run_dir).start, msgspec.json.encode(start))
        return _run_local(start, run_dir, source, runner, progress, note, launch, notes)


def _refuse_existing(run_dir: Path) -> None:
    if RunFolder(run_dir).start.exists():
        raise InputError(
            f"run {run_dir.name!r} exists",
            where=str(run_dir),
            expected="a folder without a run",
            mend="go on with --resume, or take another name",
        )


def resume(
    run_dir: Path,
    *,
    source: GroupSource,
    runner: GroupRunner,
    progress: ProgressCallback | None = None,
    note: NoteCallback | None = None,
    launch: Launch | None = None,
    notes: TaskNotes | None = None,
) -> TrainResult:
    """Go on with a run that was killed or failed; a finished one returns its result.

    Args:
        run_dir: its folder.
        source: a *fresh* source, built with the same tasks and seed as at the start.
        runner: as at the start.
        progress: is called after every step.
        note: is told what failed and was mended.
        launch: starts the trainer process; the real trainer by default.
        notes: what training must know of tasks beside their attempts.

    Raises:
        NotFoundError: the folder holds no run.
        InputError: another process trains it.
        StoreError: its journal is broken, or none of its checkpoints is whole.
    """
    start = read_run(run_dir)
    finished = _read_result(run_dir)
    if finished is not None:
        return finished
    with held_run(run_dir):
        finished = _read_result(run_dir)  # another process may have finished it meanwhile
        if finished is not None:
            return finished
        teacher = _asked_teacher(start)
        if teacher is not None:
            longest = TrainingSettings.model_validate_json(start.settings).max_context
            check_teacher(teacher, Path(start.model), longest)
        return _run_local(start, run_dir, source, runner, progress, note, launch, notes)


def _read_result(run_dir: Path) -> TrainResult | None:
    path = RunFolder(run_dir).result
    return msgspec.json.decode(path.read_bytes(), type=TrainResult) if path.exists() else None


def read_run(run_dir: Path) -> RunStart:
    """What a run was started with. Raises ``NotFoundError``."""
    path = RunFolder(run_dir).start
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunStart)
    except FileNotFoundError:
        raise NotFoundError(
            f"no run in {run_dir.name!r}", where=str(run_dir), expected="a folder with run.json", mend="check the name"
        ) from None


def _require_declared(run: str, log_head: str, unaudited: str) -> None:
    """No reward trains before it was audited, unless somebody says why. Raises ``GateError``."""
    if not log_head and not unaudited.strip():
        raise GateError(
            "nothing says that the tasks were audited",
            where=f"train, run {run!r}",
            expected="log_head, the head of the audit log that the gates wrote to; or unaudited, a reason",
            mend='run flightschool train, whose gates audit; or pass unaudited="why": it is kept with the run',
        )


def check_combination(settings: TrainingSettings) -> None:
    """Refuse settings that cannot work together."""
    if settings.mode == "async" and not settings.separate_process:
        raise ConfigError(
            "separate_process = false in async mode",
            where="training.separate_process",
            expected="mode = 'sync'",
            mend="leave the trainer its own process, or train synchronously",
        )


def _run_local(
    start: RunStart,
    run_dir: Path,
    source: GroupSource,
    runner: GroupRunner,
    progress: ProgressCallback | None,
    note: NoteCallback | None,
    launch: Launch | None,
    notes: TaskNotes | None,
) -> TrainResult:
    def station(settings: TrainingSettings, spec: TrainerSpec) -> GenerationStation:
        return LocalGeneration(
            settings,
            model=Path(spec.model),
            runner=runner,
            run=spec.run,
            weights=Path(spec.weights),
            engine=EngineSettings.model_validate_json(start.engine),
            publish_to=run_dir / "published",
            routing=RunFolder(run_dir).routing,
        )

    return _run_held(start, run_dir, source, station, progress, note, launch, notes)


def run_supervised(
    start: RunStart,
    run_dir: Path,
    *,
    source: GroupSource,
    make_station: MakeStation,
    progress: ProgressCallback | None = None,
    note: NoteCallback | None = None,
    launch: Launch | None = None,
    notes: TaskNotes | None = None,
) -> TrainResult:
    """Run with any generation station and any trainer process, until it is done.

    Args:
        start: what the run was started with.
        run_dir: its folder; what an earlier incarnation left there is gone on with.
        source: a fresh source; it is moved past what was admitted before.
        make_station: builds generation.
        progress: is called after every step.
        note: is told what failed and was mended.
        launch: starts the trainer process; the real trainer by default.
        notes: what training must know of tasks beside their attempts.

    Raises:
        InputError: another process trains the run.
        InfrastructureError: what failed did so again and again.
    """
    with held_run(run_dir):
        return _run_held(start, run_dir, source, make_station, progress, note, launch, notes)


def _run_held(
    start: RunStart,
    run_dir: Path,
    source: GroupSource,
    make_station: MakeStation,
    progress: ProgressCallback | None,
    note: NoteCallback | None,
    launch: Launch | None,
    notes: TaskNotes | None,
) -> TrainResult:
    settings = TrainingSettings.model_validate_json(start.settings)
    folder, rewound = RunFolder(run_dir), Rewound(source)
    incidents = Incidents(folder.incidents, note)
    known = notes or TaskNotes()
    trackers = Trackers(settings, run_dir, start.run, incidents)

    def told(row: StepProgress) -> None:
        trackers.write(row)
        if progress is not None:
            progress(row)

    def fly() -> TrainResult:
        return _run_incarnation(
            start, run_dir, settings, rewound, make_station, told, incidents, launch or _launch(settings), known
        )

    def step_reached() -> int:
        newest = folder.newest_checkpoint()
        return newest[1].step if newest else 0

    try:
        return supervise(
            fly,
            step_reached=step_reached,
            max_restarts=settings.max_restarts,
            pause=settings.restart_pause_s,
            incidents=incidents,
        )
    finally:
        trackers.close()


def _run_incarnation(
    start: RunStart,
    run_dir: Path,
    settings: TrainingSettings,
    source: Rewound,
    make_station: MakeStation,
    progress: ProgressCallback | None,
    incidents: Incidents,
    launch: Launch,
    notes: TaskNotes,
) -> TrainResult:
    folder = RunFolder(run_dir)
    checkpoint = _newest_checkpoint(folder, incidents)
    folder.prune_checkpoints()
    recovery = recover(folder.journal, checkpoint[1] if checkpoint else None, settings.max_staleness)
    source.rewind(recovery.next_ordinal)
    remove_all_published(run_dir)  # of incarnations that were killed
    spec = _spec(start, run_dir, recovery, checkpoint[0] if checkpoint else None)
    quality, teacher = _quality(settings, notes), _asked_teacher(start)

    async def run() -> TrainResult:
        link = _link(settings, folder, launch)
        station: GenerationStation | None = None
        desk: TeacherDesk | None = None
        try:
            if teacher is not None:
                desk = await open_desk(teacher, settings, Path(start.model), incidents, notes.untrained)
            station = make_station(settings, spec)
            orchestrator = Orchestrator(
                settings,
                spec,
                source=source,
                make_group=station.make_group,
                link=link,
                apply_weights=station.apply_weights,
                recovery=recovery,
                progress=progress,
                incidents=incidents,
                quality=quality,
                untrained=notes.untrained,
                score=None if desk is None else desk.score,
            )
            async with LoopWatch(settings.hang_s, folder.log, incidents):
                return await orchestrator.run()
        finally:
            if station is not None:
                await station.close()
            if desk is not None:
                await desk.aclose()
            await link.close()
            remove_published(Path(spec.weights))

    return asyncio.run(run())


def _spec(start: RunStart, run_dir: Path, recovery: Recovery, checkpoint: Path | None) -> TrainerSpec:
    return TrainerSpec(
        run=start.run,
        incarnation=recovery.incarnation,
        step=recovery.step,
        model=start.model,
        checkpoint=str(checkpoint) if checkpoint else "",
        run_dir=str(run_dir),
        weights=str(shared_path(run_dir, recovery.incarnation)),
        settings=start.settings,
    )


def _newest_checkpoint(folder: RunFolder, incidents: Incidents) -> tuple[Path, Manifest] | None:
    """The newest that is whole. Newer ones are set aside: weights that this start leaves behind are dead for good."""
    checkpoint, damaged = newest_whole(folder.checkpoints(), thorough=True)
    for error in damaged:
        aside = set_aside(Path(error.where))
        going_on = f"going on from step {checkpoint[1].step if checkpoint else 0}"
        incidents.add("checkpoint", f"{error.what}; kept as {aside.name}, {going_on}")
    return checkpoint


def _asked_teacher(start: RunStart) -> TeacherSettings | None:
    return TeacherSettings.model_validate_json(start.teacher) if start.teacher else None


def _quality(settings: TrainingSettings, notes: TaskNotes) -> TurnQuality | None:
    if settings.turn_quality == "failed_calls" or not settings.turn_weight:
        return None
    if notes.milestones_of is None:
        raise ConfigError(
            "no milestones of tasks are known",
            where="training.turn_quality",
            expected="an environment whose checks declare milestones",
            mend="declare them ([[check]] with rule = 'milestones'), or set turn_quality = 'failed_calls'",
        )
    return milestone_quality(notes.milestones_of)


def _launch(settings: TrainingSettings) -> Launch:
    return launcher(trainer_command(), settings.num_threads)


def _link(settings: TrainingSettings, folder: RunFolder, launch: Launch) -> TrainerLink:
    if settings.separate_process:
        return ProcessLink(launch, log=folder.log, hang_s=settings.hang_s)
    from flightschool.training.server import Server
    from flightschool.training.trainer_process import build_torch_trainer

    return InlineLink(Server(build_torch_trainer))
