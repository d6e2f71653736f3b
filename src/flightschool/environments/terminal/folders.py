"""Task folders: which format one has, reading one, walking over thousands."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec

from flightschool.environments.terminal.contents import list_contents
from flightschool.environments.terminal.harbor import SETTINGS_FILE, read_harbor
from flightschool.environments.terminal.records import TaskFormat, TerminalTask, UnreadableTask
from flightschool.environments.terminal.terminal_bench import SETTINGS_FILES, read_terminal_bench
from flightschool.errors import InputError

__all__ = ["count_tasks", "detect_format", "find_folders", "iter_tasks", "read_folder", "read_found", "task_id"]

MAX_DEPTH = 12
"""Folders between what was named and a task."""


def detect_format(folder: Path) -> TaskFormat | None:
    """The format of a folder by the files at its top; None: it is no task.

    ``task.toml`` outranks ``task.yaml``: a folder that was translated keeps its old file. A folder with an instruction
    and tests beside it is a Harbor task that lost its settings, which reading it will say.
    """
    try:
        return _format_of({entry.name for entry in folder.iterdir()})
    except OSError:
        return None


def _format_of(names: set[str]) -> TaskFormat | None:
    if SETTINGS_FILE in names:
        return TaskFormat.HARBOR
    if names.intersection(SETTINGS_FILES):
        return TaskFormat.TERMINAL_BENCH_1
    if "instruction.md" in names and names & {"environment", "tests", "steps"}:
        return TaskFormat.HARBOR
    return None


def read_folder(path: Path, named: Path | None = None) -> TerminalTask:
    """Read one task folder. Nothing is run and no link is followed out of it.

    Args:
        path: the folder.
        named: what the user named; the task's id is the path relative to it. Left out, the user named the folder.

    Raises:
        InputError: it is no task folder, or the format's rules are broken; names the file and the mend.
    """
    contents = list_contents(path)
    format_ = _format_of({entry_path for entry_path in contents.entries if "/" not in entry_path})
    id_ = task_id(path, named or path)
    if format_ is TaskFormat.HARBOR:
        return read_harbor(contents, id_)
    if format_ is TaskFormat.TERMINAL_BENCH_1:
        return read_terminal_bench(contents, id_)
    raise InputError(
        "not a task folder",
        where=str(path),
        expected=f"{SETTINGS_FILE} (Harbor) or {SETTINGS_FILES[0]} (Terminal-Bench 1)",
        mend="name the folder of a task, or one that holds tasks",
    )


def iter_tasks(parent: Path) -> Iterator[TerminalTask | UnreadableTask]:
    """All tasks at or below ``parent``, in order of their paths, one in memory at a time.

    A folder that should be a task and cannot be read is an ``UnreadableTask``, and the walk goes on; so is one that
    cannot be looked into, since nobody knows which tasks it holds. Folders inside a task, hidden folders and links are
    not searched.

    Raises:
        InputError: ``parent`` is no folder (at once), cannot be looked into, or holds no task at all.
    """
    if not parent.is_dir():
        raise InputError(
            "not a folder", where=str(parent), expected="a task folder or one that holds tasks", mend="check the path"
        )
    return (read_found(folder, task_id(folder, parent), problem) for folder, problem in find_folders(parent))


def count_tasks(parent: Path) -> int:
    """How many tasks ``iter_tasks`` would give, by names alone: for a progress bar, before anything is read."""
    return sum(1 for _ in find_folders(parent))


def find_folders(parent: Path) -> Iterator[tuple[Path, OSError | None]]:
    """Folders of tasks by names alone, in order of their paths, and those that cannot be looked into with the reason.

    Raises:
        InputError: ``parent`` cannot be looked into, or nothing is found (when the walk ends).
    """
    todo = [(parent, 0)]
    num_found = 0
    while todo:
        folder, depth = todo.pop()
        names, below, problem = _look(folder)
        if problem is not None and folder == parent:
            raise _closed(folder, problem)
        if problem is not None or _format_of(names) is not None:
            num_found += 1
            yield folder, problem
        elif depth < MAX_DEPTH:
            todo += [(folder / name, depth + 1) for name in reversed(below)]
    if not num_found:
        raise InputError(
            "no task folder",
            where=str(parent),
            expected=f"folders with {SETTINGS_FILE} or {SETTINGS_FILES[0]}",
            mend="name a folder that holds tasks",
        )


def _look(folder: Path) -> tuple[set[str], list[str], OSError | None]:
    """Names in a folder, those of its plain folders in order, and why it cannot be listed."""
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except (FileNotFoundError, NotADirectoryError):  # taken away meanwhile
        return set(), [], None
    except OSError as error:
        return set(), [], error
    below = sorted(e.name for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False))
    return {entry.name for entry in entries}, below, None


def _closed(folder: Path, problem: OSError) -> InputError:
    return InputError(
        f"the folder cannot be looked into: {problem.strerror}",
        where=str(folder),
        expected="a folder that you may list",
        mend=f"chmod u+rx {shlex.quote(str(folder))}, or move it away if it holds no tasks",
    )


def read_found(folder: Path, id_: str, closed: OSError | None = None) -> TerminalTask | UnreadableTask:
    """The task of a folder that ``find_folders`` gave, under an id; why it is none where it cannot be read."""
    try:
        if closed is not None:
            raise _closed(folder, closed)
        return msgspec.structs.replace(read_folder(folder), id=id_)
    except InputError as error:
        problem = error
    except OSError as error:
        problem = InputError(
            f"cannot be read: {error.strerror}",
            where=str(error.filename),
            expected="readable files",
            mend="check rights",
        )
    return UnreadableTask(id=id_, folder=str(folder), **problem.as_dict())


def task_id(folder: Path, named: Path) -> str:
    """The id of a task's folder below what the user named: its path from there, or its name if it was named itself."""
    relative = folder.relative_to(named).as_posix() if folder.is_relative_to(named) else folder.name
    return (folder.name or folder.resolve().name) if relative == "." else relative
