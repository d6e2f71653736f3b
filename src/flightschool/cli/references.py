"""What words on the command line refer to: a reference with ``/`` or a leading ``.`` is a path, all else a name."""

from __future__ import annotations

import contextlib
import getpass
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from flightschool.environments.opening import existing_path, is_path, is_url, open_environment, reopen_environment
from flightschool.errors import InputError, NotFoundError, StoreError

if TYPE_CHECKING:
    from flightschool.perturbation import FaultProfile
    from flightschool.protocols import Environment
    from flightschool.rollouts import Policy
    from flightschool.rollouts.terminal import TerminalPolicy
    from flightschool.rollouts.transcript import Sampling
    from flightschool.store import Workspace

__all__ = [
    "actor",
    "check_name",
    "existing_path",
    "fault_profile",
    "is_path",
    "is_url",
    "open_environment",
    "policy",
    "reopen_environment",
    "run_model",
    "terminal_policy",
    "will_write",
    "workspace",
    "workspace_if_any",
]


def check_name(name: str, option: str) -> str:
    """A name that a user may give to something new.

    Raises:
        InputError: it would be read as a path, or is empty.
    """
    if not name.strip() or is_path(name) or not name.isprintable():
        raise InputError(
            f"{name!r} cannot be a name",
            where=option,
            expected="a plain name, without / and not beginning with a dot",
            mend="choose another name",
        )
    return name


def will_write(file: Path | None, option: str) -> None:
    """See that a file can be written at the end of a long verb, before it begins. Nothing stays behind.

    Args:
        file: None: none is wanted.
        option: that named it, for the error.

    Raises:
        InputError: it is a folder, or there is no right or no place to write it.
    """
    if file is None:
        return
    made: list[Path] = []
    is_new = False
    try:
        is_new = not file.exists()
        if not is_new and not file.is_file() and not file.is_dir():  # a pipe can be opened but once
            return
        made = [folder for folder in file.parents if not folder.exists()]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("ab").close()
    except OSError as error:
        raise InputError(
            f"the file cannot be written: {error.strerror}",
            where=f"{option} {file}",
            expected="a file in a folder that you may write to",
            mend="name another file",
        ) from error
    finally:
        if is_new:
            with contextlib.suppress(OSError):
                file.unlink()
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()


def workspace() -> Workspace:
    """The workspace around the working directory. Raises ``StoreError`` when there is none."""
    from flightschool.store import Workspace

    return Workspace.find()


def workspace_if_any() -> Workspace | None:
    """The workspace, or None where there is none; a broken one is an error all the same."""
    from flightschool.store import CONFIG_NAME, Workspace

    here = Path.cwd()
    if not any((folder / CONFIG_NAME).is_file() for folder in (here, *here.parents)):
        return None
    return Workspace.find()


def fault_profile(reference: str | None) -> FaultProfile | None:
    """The weather by name or path; None for none and for ``clean``."""
    if reference is None:
        return None
    from flightschool.perturbation import profile

    found = profile(reference)
    return None if found.is_clean else found


def policy(text: str, environment: Environment, space: Workspace | None, sampling: Sampling | None = None) -> Policy:
    """The policy of the command line's grammar."""
    from flightschool.rollouts import parse_policy

    return parse_policy(text, environment, sampling=sampling, resolve_run=_resolves(space))


def terminal_policy(text: str, space: Workspace | None, sampling: Sampling | None = None) -> TerminalPolicy:
    """The same grammar, to act in terminals."""
    from flightschool.rollouts.terminal import parse_policy

    return parse_policy(text, sampling=sampling, resolve_run=_resolves(space))


def _resolves(space: Workspace | None) -> Callable[[str], Path]:
    def resolve(run: str) -> Path:
        if space is None:
            raise StoreError(
                "a run needs a workspace", where=f"run:{run}", expected="a workspace", mend="change into its folder"
            )
        return run_model(run, space)

    return resolve


def run_model(reference: str, space: Workspace) -> Path:
    """Model folder of ``RUN`` (its final model) or ``RUN@STEP`` (the checkpoint of a step).

    Raises:
        NotFoundError: no such run, or it keeps no such weights.
    """
    from flightschool.training.folders import RunFolder

    run, _, step = reference.partition("@")
    folder = RunFolder(space.run_dir(run))
    if not folder.root.is_dir():
        raise NotFoundError(f"no run is called {run!r}", where=str(folder.root), mend="see flightschool runs list")
    if not step:
        if not folder.model.is_dir():
            raise NotFoundError(
                f"run {run!r} has no final model",
                where=str(folder.model),
                expected="a finished run",
                mend=f"finish it with flightschool train --resume {run}, or name a step: run:{run}@STEP",
            )
        return folder.model
    if not step.isdigit():
        raise NotFoundError(
            f"run {run!r} keeps no weights of step {step!r}",
            where=str(folder.root),
            expected="the number of a kept step",
            mend=f"see flightschool runs show {run}",
        )
    folder.kept_checkpoint(int(step))
    served = folder.root / "served" / f"step-{int(step):06d}"
    if not served.is_dir():  # a checkpoint holds what a trainer needs, and no tokenizer
        from flightschool.training.model_export import export_model

        export_model(folder.root, served, int(step))
    return served


def actor() -> str:
    """Who sits at the keyboard, for the audit log."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a passwd entry for this user
        return "unknown"
