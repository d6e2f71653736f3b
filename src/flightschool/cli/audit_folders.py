"""``audit`` on task folders: read, attacked, judged; finished ones are kept, so that a run that was stopped goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flightschool.cli import output
from flightschool.cli.audit_admitting import Admitting
from flightschool.cli.audit_fixing import fix_folders
from flightschool.cli.audit_report import write_page_of
from flightschool.cli.audit_rows import Told, tell_people
from flightschool.cli.audit_waived import tell_waivers
from flightschool.cli.references import existing_path, workspace_if_any
from flightschool.cli.rollout_folders import CACHE_NAME

if TYPE_CHECKING:
    from flightschool.audit.terminal import FolderAudit
    from flightschool.audit.terminal.proposing import Readers
    from flightschool.environments.terminal import TerminalTask
    from flightschool.store import Workspace

__all__ = ["Care", "ReaderNames", "audit_folders_verb", "data_folder"]


@dataclass(frozen=True, kw_only=True)
class ReaderNames:
    """The models that read folders, as the user named them; empty: none."""

    proposer: str = ""
    checker: str = ""

    def check(self, *, static: bool) -> None:
        """Refuse what cannot be meant. Raises ``InputError``."""
        from flightschool.errors import InputError

        if self.checker and not self.proposer:
            raise InputError(
                "nothing is proposed, so nothing is weighed",
                where="--checker",
                expected="--proposer beside it",
                mend="name the model that proposes programs",
            )
        if self.proposer and static:
            raise InputError(
                "what a model proposes is run",
                where="--proposer",
                expected="an audit that runs",
                mend="leave --static out",
            )


@dataclass(frozen=True, kw_only=True)
class Care:
    """How thoroughly folders are audited."""

    static: bool
    """Read only."""
    repeats: int
    """Plays of each reference."""
    however_slow: bool = False
    """Whether slow references are played as often as others."""
    seed: int
    """Of the plays."""
    fresh: bool
    """Forget what was finished earlier."""
    readers: ReaderNames
    """Models that read the folders."""
    build_network: bool
    """Whether steps of builds that fetch share this machine's network."""

    @property
    def mode(self) -> str:
        """What an audit by the probes depends on, for the journal."""
        every = " all" if self.however_slow else ""
        return "read" if self.static else f"run {self.repeats}{every} {self.seed}"


def audit_folders_verb(
    paths: Sequence[str], *, care: Care, fix: Path | None, admitting: Admitting, report: Path | None
) -> None:
    """Audit the tasks of folders, and finish the verb.

    Args:
        paths: as the user named them.
        care: how thoroughly.
        fix: folder for repaired copies; None: none are made.
        admitting: what is to be listed as fit to train on.
        report: file for a page; None: none is wanted.
    """
    from flightschool.audit.terminal.proposing import open_readers

    started = time.perf_counter()
    for path in paths:
        _check(path)
    care.readers.check(static=care.static)
    space = workspace_if_any()
    admitting.check(static=care.static, in_workspace=space is not None)
    data = data_folder(space)
    told = Told()
    with open_readers(care.readers.proposer, care.readers.checker) as models:
        _audit(paths, care, models, data, space, told)
        if fix is not None:
            fix_folders(fix, told, lambda task: _audit_one(task, care, models, data))
    tell_people(told)
    admitted = admitting.admit(", ".join(paths), told.audits, space)
    if space is not None:
        told.waive(space.store)
        space.close()
    tell_waivers(told.rows)
    summary = told.summary(time.perf_counter() - started)
    write_page_of(report, ", ".join(paths), told.rows, was_run=not care.static, families=summary["families"])
    payload = {"tasks": told.rows, "summary": summary, **({} if admitted is None else {"admitted": admitted})}
    output.finish(payload, fell_short=set(told.verdicts) != {"sound"})


def _audit(
    paths: Sequence[str], care: Care, models: Readers | None, data: Path, space: Workspace | None, told: Told
) -> None:
    """All tasks, each told and kept as it is finished."""
    from flightschool.audit.terminal.journal import Journal, journal_name
    from flightschool.environments.terminal import TaskPool

    pool = TaskPool([Path(path) for path in paths])
    file = data / "audits" / journal_name("\n".join(str(Path(path).resolve()) for path in paths))
    with output.progress(f"auditing {', '.join(paths)}", len(pool)) as bar:

        def on_audit(audit: FolderAudit) -> None:
            # what only was read must not replace what was run
            told.add(audit if space is None or care.static else _keep(space, audit, fresh=care.fresh))
            bar.tick()

        _with_care(care, models, data)(
            pool,
            journal=Journal(file, care.mode, fresh=care.fresh),
            readers_journal=None if models is None else Journal(file, f"{care.mode} {models.mode}"),
            on_audit=on_audit,
        )


def _keep(space: Workspace, audit: FolderAudit, *, fresh: bool) -> FolderAudit:
    """Keep an audit in the workspace, with what readers said earlier of the same content; what is kept."""
    from flightschool.audit import kept_folder_audit, save_folder_audit
    from flightschool.audit.terminal.proposing.standing import with_reading

    if not fresh:
        audit = with_reading(audit, kept_folder_audit(space.store, audit.digest))
    save_folder_audit(space.store, audit)
    return audit


def _audit_one(task: TerminalTask, care: Care, models: Readers | None, data: Path) -> FolderAudit:
    made: list[FolderAudit] = []
    _with_care(care, models, data)([task], on_audit=made.append)
    return made[0]


def _with_care(care: Care, models: Readers | None, data: Path) -> Callable[..., None]:
    """``audit_folders`` as thorough as was asked for."""
    from flightschool.audit.terminal.auditing import audit_folders

    return partial(
        audit_folders,
        images=data / "images",
        static_only=care.static,
        repeats=care.repeats,
        however_slow=care.however_slow,
        seed=care.seed,
        readers=models,
        build_network=care.build_network,
    )


def _check(path: str) -> None:
    from flightschool.errors import InputError

    if not existing_path(path, "task folder").is_dir():
        raise InputError("not a folder", where=path, expected="a task folder or one that holds tasks", mend="check it")


def data_folder(space: Workspace | None) -> Path:
    """Where images and finished audits are kept: with the workspace's data, else in the user's cache."""
    if space is not None:
        return space.data
    cache = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME")
    if cache is None:
        return Path.cwd() / f".{CACHE_NAME}"
    below = Path(cache) if os.environ.get("XDG_CACHE_HOME") else Path(cache) / ".cache"
    return below / CACHE_NAME
