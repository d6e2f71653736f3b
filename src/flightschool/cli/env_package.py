"""``env export``, and what ``env build``, ``env import`` and ``env check`` do about packages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from flightschool.cli import output
from flightschool.cli.references import workspace
from flightschool.cli.verb import verb
from flightschool.errors import InputError

if TYPE_CHECKING:
    from flightschool.environments import BuiltEnvironment, EnvironmentRecord, Examination
    from flightschool.store import Workspace
    from flightschool.traces import TraceSet

__all__ = ["free_place", "import_folder", "keep_built", "keep_examination", "refresh", "register"]


def register(env: typer.Typer) -> None:
    """Add the verb to the group ``env``."""
    verb(env, "export", example="flightschool env export support --out ./support")(export)


def export(
    environment: str = typer.Argument(..., metavar="E", help="An environment of this workspace."),
    out: Path = typer.Option(..., "--out", help="Folder to write; new, empty, or an older package."),
    episodes: bool = typer.Option(True, "--episodes/--no-episodes", help="Whether the recordings go along."),
) -> None:
    """Write the package of an environment: a folder to read, to carry elsewhere, and to import there.

    What is sealed is not in it. A copy outside of the workspace does not follow later changes, nor a later sealing.
    """
    from flightschool.environments import load_record
    from flightschool.environments.packages import write_package

    with workspace() as space:
        _refuse_built_in(environment)
        manifest = write_package(space.store, load_record(space.store, environment), out, episodes=episodes)
    output.say(f"{environment}: {manifest.num_tasks} tasks in {out}, {len(manifest.files)} files, {manifest.digest}")
    output.finish({"env": environment, "package": str(out), "digest": manifest.digest, "files": sorted(manifest.files)})


def _refuse_built_in(environment: str) -> None:
    from flightschool.environments import BUILT_IN

    if environment.partition("?")[0] in BUILT_IN:
        raise InputError(
            f"{environment!r} comes with flightschool and needs no package",
            where=environment,
            expected="an environment of this workspace",
            mend="name it as it is wherever flightschool is installed",
        )


def free_place(space: Workspace, name: str, out: Path | None) -> Path:
    """Where the package of a new environment goes. Raises ``InputError`` where something else lies there."""
    from flightschool.environments.packages import default_place
    from flightschool.environments.packages.places import check_place
    from flightschool.environments.registry import check_environment_name

    check_environment_name(name)
    place = default_place(space.root, name) if out is None else out
    check_place(place)
    return place


def keep_built(
    space: Workspace, built: BuiltEnvironment, recorded: TraceSet, traces: str, place: Path, *, episodes: bool
) -> EnvironmentRecord:
    """Keep a built environment and write its package, with what can be said of it without the held-out measurement.

    One whose declared checks ask a model or start sandboxes is not examined here: `env check` does that, if wanted.
    """
    from flightschool.environments import examine
    from flightschool.environments.packages import write_package
    from flightschool.environments.packages.places import recorded_place, remove_package
    from flightschool.environments.packages.trust import is_judged_elsewhere
    from flightschool.environments.registry import put_record, record_of

    found = None
    if not is_judged_elsewhere(built.environment):
        with output.progress("examining it in sample"):
            world, seen = built.environment, recorded.episodes
            found = examine(world, seen, state=built.state, num_folds=0, fidelity=built.fidelity)
    record = record_of(space.store, built, traces=traces)
    record = msgspec.structs.replace(record, examination=found, package=recorded_place(space.root, place))
    is_new = not place.exists()
    try:
        write_package(space.store, record, place, episodes=episodes)
        put_record(space.store, record)
    except BaseException:
        if is_new:
            remove_package(place)
        raise
    return record


def keep_examination(space: Workspace, record: EnvironmentRecord, examination: Examination) -> None:
    """Keep the figures of an examination, and put them into the package's report."""
    from flightschool.environments.registry import put_record

    record = msgspec.structs.replace(record, examination=examination)
    put_record(space.store, record)
    refresh(space, record)


def refresh(space: Workspace, record: EnvironmentRecord) -> None:
    """Write the package of a changed environment anew; one that somebody edited is left alone, and that is said."""
    from flightschool.environments.packages import refresh_package

    try:
        refresh_package(space.store, space.root, record)
    except InputError as error:
        output.say(f"the package was not written anew: {error.what} ({error.where})", style="yellow")


def import_folder(folder: Path, name: str, trusted: bool) -> None:
    """``env import FOLDER``."""
    from flightschool.environments.packages import import_package

    with workspace() as space:
        record, found = import_package(space.store, space.root, folder, name=name, trusted=trusted)
    recordings = "with its recordings" if found.traces is not None else "without recordings"
    output.say(f"{record.name}: {record.num_tasks} tasks, {record.num_tools} tools, {recordings}; {record.digest}")
    told: dict[str, Any] = {
        "name": record.name,
        "digest": record.digest,
        "kind": record.kind,
        "format": "package",
        "num_tasks": record.num_tasks,
        "num_tools": record.num_tools,
        "traces": record.traces if found.traces is not None else "",
        "trusted": list(found.demands),
    }
    output.finish(told)
