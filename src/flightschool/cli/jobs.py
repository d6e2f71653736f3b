"""Jobs as the workspace remembers them, so that the run of one can be gone on with by its name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flightschool.errors import NotFoundError
from flightschool.records import Record

if TYPE_CHECKING:
    from flightschool.stations import JobResult, JobSettings
    from flightschool.store import Workspace

__all__ = ["JOB_KIND", "JobRecord", "find_job", "fly_job", "note_job"]

JOB_KIND = "job"


class JobRecord(Record, frozen=True, kw_only=True):
    """What a job was started with."""

    job: str
    settings: str
    """``JobSettings`` as JSON, paths absolute."""
    model: str
    """Folder of the model that is trained."""
    report: str
    """File of the report, from the workspace's folder."""
    commands: tuple[str, ...]
    """Command lines that do the same again."""


def note_job(
    space: Workspace, settings: JobSettings, *, job: str, model: Path, report: str, commands: tuple[str, ...]
) -> JobRecord:
    """Keep a job before it begins; noting the same again changes nothing."""
    from flightschool.digest import digest

    record = JobRecord(job=job, settings=settings.model_dump_json(), model=str(model), report=report, commands=commands)
    space.store.put(JOB_KIND, f"{job}/{digest(record)}", record)
    return record


def find_job(space: Workspace, run: str) -> JobRecord:
    """The job that makes this run.

    Raises:
        NotFoundError: no job of the workspace does.
    """
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


def fly_job(space: Workspace, record: JobRecord) -> JobResult:
    """Run a job, or go on with it, with live progress."""
    from flightschool.cli.telling import LiveTell
    from flightschool.pipeline import run_job  # heavy: the rooms come with it
    from flightschool.stations import JobSettings

    settings = JobSettings.model_validate_json(record.settings)
    with LiveTell() as tell:
        return run_job(
            space,
            settings,
            Path(record.model),
            tell,
            job=record.job,
            out=space.root / record.report,
            commands=record.commands,
        )
