"""Environments as they are named on a command line and kept in records: a path, a name, or the address of a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flightschool.errors import InfrastructureError, InputError
from flightschool.records import Record

if TYPE_CHECKING:
    from flightschool.protocols import Environment
    from flightschool.store import Workspace

__all__ = ["existing_path", "is_path", "is_url", "open_environment", "reference_of", "reopen_environment"]

REFERENCE_KIND = "environment-reference"


def is_path(reference: str) -> bool:
    """Whether the word is a path rather than a name in the workspace."""
    return "/" in reference or reference.startswith(".")


def is_url(reference: str) -> bool:
    """Whether the word is the address of a server: an environment that is served."""
    return reference.startswith(("http://", "https://"))


def existing_path(text: str, what: str) -> Path:
    """The path, which must exist.

    Raises:
        InputError: nothing is there.
    """
    path = Path(text)
    if not path.exists():
        raise InputError(
            f"{what} not found", where=text, expected="a file or folder that exists", mend="check the path"
        )
    return path


class EnvironmentReference(Record, frozen=True, kw_only=True):
    """How an environment was named, so that what was recorded in it can be run again."""

    reference: str


def open_environment(
    reference: str, space: Workspace | None, *, whole: bool = False, folders: bool = False
) -> Environment:
    """The environment by name, by name with options (``desk?seed=3``), by the address of a server, or by the path of a
    module that builds it; where a verb can do with them (``folders``), by the path of task folders.

    Without the tasks that this workspace has sealed, unless the ``whole`` is asked for (to open what was sealed).

    Raises:
        NotFoundError: no such environment.
        InputError: a path that is no module, code that gives no environment, or a server that does not answer.
        GateError: the environment still holds what was sealed from it.
    """
    if is_path(reference.partition("?")[0]) and not is_url(reference):
        from flightschool.environments.from_traces import open_code

        path = existing_path(reference, "environment")
        if folders and path.is_dir():
            from flightschool.environments.terminal import TerminalFolders

            environment: Environment = TerminalFolders(path)
        elif reference.endswith(".py"):
            environment = open_code(str(path.resolve()), where=reference)
        else:
            raise InputError(
                "an environment of a folder is imported before it is used" if path.is_dir() else "not an environment",
                where=reference,
                expected="a name, or the path of a .py file with build_environment()",
                mend=f"flightschool env import {reference}, if it is a package; task folders are for rollout, audit "
                "and eval; other environments are built with flightschool env build",
            )
        reference = str(path.resolve())
    else:
        from flightschool.environments.registry import load_environment

        try:
            environment = load_environment(reference, space)
        except InfrastructureError as error:
            if not is_url(reference):
                raise
            raise InputError(error.what, where=reference, expected=error.expected, mend=error.mend) from error
    if space is not None:
        from flightschool.governance import served

        environment = environment if whole else served(space.store, environment)
        key = f"{environment.name}/{environment.digest}"
        if not space.store.has(REFERENCE_KIND, key):
            space.store.put(REFERENCE_KIND, key, EnvironmentReference(reference=reference))
    return environment


def reopen_environment(name: str, digest: str, space: Workspace, *, whole: bool = False) -> Environment:
    """The environment that something was recorded in, as it was named then.

    Whether it is still the same is for the caller to see: it may want to name what has changed.
    """
    return open_environment(reference_of(name, digest, space), space, whole=whole, folders=True)


def reference_of(name: str, digest: str, space: Workspace) -> str:
    """The words by which an environment of this name and digest was opened here; its name where it never was."""
    key = f"{name}/{digest}"
    kept = space.store.has(REFERENCE_KIND, key)
    return space.store.get(REFERENCE_KIND, key, EnvironmentReference).reference if kept else name
