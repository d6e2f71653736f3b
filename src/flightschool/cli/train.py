"""``train``: the whole road from one configuration file; killed half-way, it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from flightschool.cli import output
from flightschool.cli.jobs import JobRecord, find_job, fly_job, note_job
from flightschool.cli.references import is_path, workspace
from flightschool.cli.verb import verb
from flightschool.errors import InputError

if TYPE_CHECKING:
    from flightschool.engines.scoring import TeacherSettings
    from flightschool.stations import JobResult, JobSettings
    from flightschool.store import Workspace

__all__ = ["register", "rooted"]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    verb(app, "train", example="flightschool train train.toml")(train)


def train(
    config: Path | None = typer.Argument(None, metavar="CONFIG.toml", help="What to train, on what, how."),
    resume: str | None = typer.Option(None, "--resume", metavar="RUN", help="Go on with a run that was cut short."),
) -> None:
    """Audit, freeze, measure, screen, train, measure again, and write the report.

    Every station keeps what it made: the same command, or --resume RUN, goes on where a killed one was.
    """
    from flightschool.config import load_settings
    from flightschool.stations import JobSettings

    if (config is None) == (resume is None):
        raise InputError(
            "a configuration and a run to resume" if config else "nothing to train",
            where="flightschool train",
            expected="either CONFIG.toml or --resume RUN",
            mend="give one of the two",
        )
    settings = load_settings(config, JobSettings) if config is not None else None
    with workspace() as space:
        if resume is not None:
            record = find_job(space, resume)
        else:
            assert config is not None
            assert settings is not None
            record = _open(space, config, rooted(settings, config.resolve().parent))
        result = fly_job(space, record)
    _tell(result)
    output.finish({**msgspec.to_builtins(result)})


def rooted(settings: JobSettings, folder: Path) -> JobSettings:
    """The settings with all relative paths taken from the folder of their file, wherever the command runs.

    The words of ``harness.command`` stay as they are, since only the program knows which are paths: it is started in
    that folder.
    """

    def path(text: str) -> str:
        return str((folder / text).resolve()) if is_path(text) else text

    table = settings.environment
    traces = table.traces
    if traces is not None and traces != "shipped":
        traces = str((folder / traces).resolve())
    environment = table.model_copy(
        update={
            "traces": traces,
            "state": (folder / table.state).resolve() if table.state is not None else None,
            "code": path(table.code) if table.code is not None else None,
            "checks": (folder / table.checks).resolve() if table.checks is not None else None,
        }
    )
    harness, engine = settings.harness, settings.engine
    if harness.command is not None:
        harness = harness.model_copy(update={"directory": (folder / (harness.directory or ".")).resolve()})
    if engine.publish_to is not None:
        engine = engine.model_copy(update={"publish_to": (folder / engine.publish_to).resolve()})
    weather = {key: path(value) for key, value in settings.faults.model_dump().items()}
    return settings.model_copy(
        update={
            "environment": environment,
            "model": settings.model.model_copy(update={"name": path(settings.model.name)}),
            "teacher": _rooted_teacher(settings.teacher, folder),
            "faults": settings.faults.model_copy(update=weather),
            "harness": harness,
            "engine": engine,
        }
    )


def _rooted_teacher(teacher: TeacherSettings | None, folder: Path) -> TeacherSettings | None:
    """A teacher's folders are always paths."""
    if teacher is None:
        return None
    found: dict[str, object] = {}
    if not teacher.is_served:
        found["model"] = str((folder / teacher.model).resolve())
    if teacher.tokenizer is not None:
        found["tokenizer"] = (folder / teacher.tokenizer).resolve()
    return teacher.model_copy(update=found)


def _open(space: Workspace, config: Path, settings: JobSettings) -> JobRecord:
    """Find the model and note down the job."""
    from flightschool.cli.quickstart import resolve_model
    from flightschool.stations import check_settings

    check_settings(settings)  # before a model is downloaded for nothing
    job = config.stem.replace(".", "-")
    return note_job(
        space,
        settings,
        job=job,
        model=resolve_model(settings.model.name, settings.engine, output.say),
        report=f"reports/{job}.html",
        commands=(f"flightschool train {config}",),
    )


def _tell(result: JobResult) -> None:
    from flightschool.cli.quickstart import tell_result

    tell_result(result)
