"""Task folders as an environment that a suite can be frozen from: what is asked and what judges it, by digests.

Nothing runs here. A world of such a task is a sandbox, which ``rollouts.terminal`` opens; this side knows the tasks,
their families and strata, and of each the digests of its parts, so that a refusal can say what was changed.

Where a folder says nothing about its family, folders whose names differ by a number at their end are taken for one:
``sort-3`` and ``sort-12``, ``sum1`` and ``sum2``. A family that is too large costs power; one that was cut in two would
put the twin of a measured task into the training pool.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from flightschool.digest import digest as content_digest
from flightschool.environments.terminal.contents import Entry, EntryKind, list_contents
from flightschool.environments.terminal.folders import detect_format, iter_tasks, read_folder
from flightschool.environments.terminal.harbor import SETTINGS_FILE
from flightschool.environments.terminal.records import TerminalTask, UnreadableTask
from flightschool.environments.terminal.terminal_bench import SETTINGS_FILES
from flightschool.errors import InputError, NotFoundError
from flightschool.protocols import Permissions, World
from flightschool.records import Reference, Task, ToolCall, ToolSpec

__all__ = ["FolderTask", "TerminalFolders", "Told", "family_of", "stratum_of"]

Told: TypeAlias = dict[str, tuple[str, str, str]]
"""Id of a task → its digest, family and stratum."""

MAX_TURNS: Final = 40
"""Turns of a model that acts in a terminal; the task's own time limit holds besides."""
MOST_TEXT: Final = 1 << 20
"""Bytes read of a solution's file."""
ONE_STRATUM: Final = "tasks"
_VARIANT: Final = re.compile(r"[-_.\s]*(?:v|variant)?[-_.]?\d+$", re.IGNORECASE)


class FolderTask(Task, frozen=True, kw_only=True):
    """A task whose digest is that of its whole folder, as attempts and audits of folders record it."""

    folder_digest: str

    @property
    def digest(self) -> str:
        """Digest of every file of the folder."""
        return self.folder_digest


def family_of(task: TerminalTask) -> str:
    """``family`` of the folder's metadata; else its path without a number at the end."""
    named = task.metadata.get("family")
    if isinstance(named, str) and named.strip():
        return named.strip()
    head, slash, name = task.id.rpartition("/")
    return f"{head}{slash}{_VARIANT.sub('', name) or name}"


def stratum_of(task: TerminalTask) -> str:
    """``stratum`` or ``category`` of the folder's metadata; else the folder that it lies in; else one for all."""
    for key in ("stratum", "category"):
        named = task.metadata.get(key)
        if isinstance(named, str) and named.strip():
            return named.strip()
    head, _, _ = task.id.partition("/")
    return head if head != task.id else ONE_STRATUM


def digest_of(told: Told) -> str:
    """Digest of task folders as an environment, wherever they lie."""
    return content_digest({"kind": "task folders", "tasks": told})


class TerminalFolders:
    """The tasks at or below a folder (``protocols.Environment``, without worlds of its own).

    Args:
        path: a task's folder, or one that holds tasks.
        told: of all tasks of the environment, where only some lie here (sealed ones that were opened again); the
            environment's digest is that of the whole.
        named: the path that the environment is called by; this one by default.

    Raises:
        InputError: no task is there, or one of them cannot be read: a suite must not leave it out unseen.
    """

    policy_text = ""

    def __init__(self, path: Path, *, told: Told | None = None, named: str = "") -> None:
        self.path = path.resolve()
        self.name = named or str(self.path)
        found = [read_folder(path)] if detect_format(path) is not None else list(iter_tasks(path))
        broken = [task for task in found if isinstance(task, UnreadableTask)]
        if broken:
            first = broken[0]
            raise InputError(
                f"{len(broken)} of {len(found)} task folders cannot be read, the first is {first.id!r}: {first.what}",
                where=first.where,
                expected="folders that can all be read: what is left out would be missed by no one",
                mend=first.mend or "mend it, or move it away",
            )
        self.folders = {task.id: task for task in found if isinstance(task, TerminalTask)}
        self._tasks = {task.id: _task(task) for task in self.folders.values()}
        here: Told = {task.id: (task.digest, task.family, task.stratum) for task in self._tasks.values()}
        self.told = {**(told or {}), **here}
        """What the environment's digest is made of."""
        self.digest = digest_of(self.told)

    @property
    def strata(self) -> Mapping[str, float]:
        """Shares of the tasks: what the shares of traffic are, a file of weights must say."""
        counts = Counter(task.stratum for task in self._tasks.values())
        return {stratum: number / len(self._tasks) for stratum, number in counts.items()}

    def tasks(self) -> Sequence[Task]:
        """All tasks in order of their paths."""
        return tuple(self._tasks.values())

    def task(self, task_id: str) -> Task:
        """One task. Raises ``NotFoundError``."""
        self.folder(task_id)
        return self._tasks[task_id]

    def folder(self, task_id: str) -> TerminalTask:
        """The folder behind a task. Raises ``NotFoundError``."""
        if task_id not in self.folders:
            raise NotFoundError(
                f"there is no task {task_id!r}",
                where=str(self.path),
                expected=f"one of {len(self.folders)} task folders",
                mend="name a task by its path below that folder",
            )
        return self.folders[task_id]

    def tools(self) -> Sequence[ToolSpec]:
        """None that an environment serves: a model's shell is opened with the sandbox."""
        return ()

    def permissions(self, task: Task) -> Permissions:
        """None: inside its sandbox everything is allowed. Raises ``InputError``."""
        raise self._no_world(task.id)

    def open(self, task: Task) -> World:
        """No world that calls could act on. Raises ``InputError``."""
        raise self._no_world(task.id)

    def without(self, task_ids: Sequence[str]) -> str:
        """Digest of what is left when these tasks are taken away."""
        return digest_of({task_id: told for task_id, told in self.told.items() if task_id not in set(task_ids)})

    def reference(self, task_id: str) -> Reference:
        """No checks of ours: the task's own tests judge, in a sandbox of their own. The solution stands as text."""
        task = self.folder(task_id)
        contents = list_contents(Path(task.folder))
        files = [entry.path for entry in contents.entries.values() if entry.kind is EntryKind.FILE]
        texts = [contents.read_head(path, MOST_TEXT) for path in files if _part_of(path, task) == "truth"]
        calls = [
            ToolCall(id=f"solution_{number}", name="shell", arguments={"command": text.decode(errors="replace")})
            for number, text in enumerate(texts)
        ]
        return Reference(task_id=task_id, checks=(), oracle=tuple(calls), oracle_answer="")

    def parts_of(self, task_id: str) -> Mapping[str, str]:
        """Part of a task (``prompt``, ``truth``, ``verifier``, ``state``, ``permissions``) → digest.

        Every file of the folder belongs to exactly one part, so that any edited byte changes one of the digests.

        Raises:
            NotFoundError: no such task.
        """
        task = self.folder(task_id)
        contents = list_contents(Path(task.folder))
        parts: dict[str, list[Entry]] = {part: [] for part in ("prompt", "truth", "verifier", "state", "permissions")}
        for entry in contents.entries.values():
            parts[_part_of(entry.path, task)].append(entry)
        digests = {part: contents.digest_of(iter(entries)) for part, entries in parts.items()}
        asked = [task.instruction, *(stage.instruction for stage in task.stages)]  # Terminal-Bench 1: in its settings
        return digests | {"prompt": content_digest([digests["prompt"], asked])}

    def _no_world(self, task_id: str) -> InputError:
        return InputError(
            "a terminal task has no tools that could be called: programs and models act in its sandbox",
            where=task_id,
            expected="a verb that opens sandboxes: rollout, audit, eval",
            mend="use one of them",
        )


def _task(task: TerminalTask) -> FolderTask:
    asked = "\n\n".join(stage.instruction for stage in task.stages if stage.instruction) or task.instruction
    return FolderTask(
        id=task.id,
        family=family_of(task),
        stratum=stratum_of(task),
        instruction=asked,
        initial_state=task.id,
        max_turns=MAX_TURNS,
        folder_digest=task.digest,
    )


def _part_of(path: str, task: TerminalTask) -> str:
    """Which part of a task a file of its folder belongs to."""
    for part, sources in (("verifier", _tests(task)), ("truth", _solutions(task))):
        if any(path == source or path.startswith(f"{source}/") for source in sources):
            return part
    name = path.rpartition("/")[2]
    if name == "instruction.md":
        return "prompt"
    return "permissions" if path in (SETTINGS_FILE, *SETTINGS_FILES) else "state"


def _tests(task: TerminalTask) -> Iterator[str]:
    yield from [task.tests_dir] if task.tests_dir else []
    yield from (placement.source for stage in task.stages for placement in stage.tests)


def _solutions(task: TerminalTask) -> Iterator[str]:
    yield from [task.solution_dir] if task.solution_dir else []
    yield from (placement.source for stage in task.stages for placement in stage.solution)
