"""``train``: the whole road from one configuration file; killed half-way, it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from flightschool.cli import output
from flightschool.cli.references import is_path, workspace
from flightschool.cli.verb import verb
from flightschool.errors import InputError, NotFoundError
from flightschool.records import Record

if TYPE_CHECKING:
    from flightschool.stations import JobResult, JobSettings
    from flightschool.store import Workspace

__all__ = ["register", "rooted"]

JOB_KIND = "job"


class JobRecord(Record, frozen=True, kw_only=True):
    """What a job was started with, so that its run can be gone on with by name."""

    job: str
    settings: str
    """``JobSettings`` as JSON, paths absolute."""
    model: str
    """Folder of the model that is trained."""
    command: str


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
            record = _find(space, resume)
        else:
            assert config is not None
            assert settings is not None
            record = _open(space, config, rooted(settings, config.resolve().parent))
        result = _fly(space, record)
    _tell(result)
    output.finish({**msgspec.to_builtins(result)})


def rooted(settings: JobSettings, folder: Path) -> JobSettings:
    """The settings with all relative paths taken from the folder of their file, wherever the command runs."""

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
        }
    )
    weather = {key: path(value) for key, value in settings.faults.model_dump().items()}
    return settings.model_copy(
        update={
            "environment": environment,
            "model": settings.model.model_copy(update={"name": path(settings.model.name)}),
            "faults": settings.faults.model_copy(update=weather),
        }
    )


def _open(space: Workspace, config: Path, settings: JobSettings) -> JobRecord:
    """Find the model and note down the job."""
    from flightschool.cli.quickstart import resolve_model
    from flightschool.digest import digest

    job = config.stem.replace(".", "-")
    record = JobRecord(
        job=job,
        settings=settings.model_dump_json(),
        model=str(resolve_model(settings.model.name, output.say)),
        command=f"flightschool train {config}",
    )
    space.store.put(JOB_KIND, f"{job}/{digest(record)}", record)
    return record


def _find(space: Workspace, run: str) -> JobRecord:
    """The job that makes this run."""
    from flightschool.environments import load_environment
    from flightschool.stations import JobSettings, run_name

    kept = [record for _, record in space.store.items(JOB_KIND, JobRecord)]
    for record in kept:
        settings = JobSettings.model_validate_json(record.settings)
        if not run.startswith(f"{record.job}-"):
            continue
        try:
            environment = load_environment(settings.environment.name, space)
        except NotFoundError:  # killed before its environment was built: there is no run of it yet
            continue
        if run_name(record.job, settings, environment, Path(record.model)) == run:
            return record
    raise NotFoundError(
        f"no job of this workspace makes a run {run!r}",
        where=str(space.root),
        expected="a run as flightschool runs list names it, in an unchanged environment",
        mend="run the command that started it once more: every station goes on where it was",
    )


def _fly(space: Workspace, record: JobRecord) -> JobResult:
    from flightschool.cli.telling import LiveTell
    from flightschool.pipeline import run_job
    from flightschool.stations import JobSettings

    out = space.root / "reports" / f"{record.job}.html"
    with LiveTell() as tell:
        settings = JobSettings.model_validate_json(record.settings)
        return run_job(space, settings, Path(record.model), tell, job=record.job, out=out, commands=[record.command])


def _tell(result: JobResult) -> None:
    from flightschool.cli.quickstart import tell_result

    tell_result(result)
