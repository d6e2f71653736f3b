"""A task as a Harbor folder again, and changes of its settings.

A Harbor task whose settings and instruction are as they were is copied byte for byte, comments included, so its digest
stays. Where something was changed, that file is written anew and all others are copied. A Terminal-Bench 1 task is laid
out as Harbor wants it; its verdict, what pytest printed, is written as a reward file by a script of ours.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from flightschool.digest import digest
from flightschool.environments.terminal.building import plan_build
from flightschool.environments.terminal.contents import Contents, Entry, EntryKind, list_contents
from flightschool.environments.terminal.folders import read_folder
from flightschool.environments.terminal.harbor import SETTINGS_FILE, settings_fields, step_fields
from flightschool.environments.terminal.harbor_settings import parse_harbor
from flightschool.environments.terminal.plan_records import CopyStep
from flightschool.environments.terminal.records import Placement, TaskFormat, TerminalTask, VerdictSource
from flightschool.environments.terminal.toml_text import toml_text
from flightschool.errors import InputError
from flightschool.records import Json

__all__ = ["amend", "export_harbor"]

_WRAPPER = r"""#!/bin/bash
# Runs the tests of a Terminal-Bench 1 task and writes their verdict as Harbor reads it: 1 when the last summary line of
# pytest names passed tests and no failed or broken one, 0 when it names such. Without a summary there is no verdict,
# and none is written: the grader failed, not the agent.
export TEST_DIR=/tests
mkdir -p /logs/verifier
bash /tests/run-tests.sh 2>&1 | tee /logs/verifier/output.txt
summary=$(tr -d '\r' < /logs/verifier/output.txt | sed $'s/\033\\[[0-9;]*m//g' \
  | grep -E '^=* *[0-9]+ [a-z]+(, [0-9]+ [a-z]+)* in [0-9.:]+s?( \([0-9:]+\))? *=*$' | tail -n 1)
case $summary in
  *" failed"* | *" error"*) echo 0 > /logs/verifier/reward.txt ;;
  *" passed"*) echo 1 > /logs/verifier/reward.txt ;;
esac
exit 0
"""
_NOT_CONTEXT = ("task.yaml", "task.yml", "solution.sh", "solution.yaml", "run-tests.sh", "tests")


def amend(task: TerminalTask, changes: Mapping[str, Json]) -> TerminalTask:
    """The task with settings changed: ``{"verifier": {"environment_mode": "separate"}}`` replaces that key alone.

    Raises:
        ConfigError: the changed settings are impossible.
        InputError: the changes name other steps.
    """
    table = _merged(task.settings, changes)
    return msgspec.structs.replace(
        task, settings=table, digest=digest([task.digest, table]), **_derived(task, table, f"changes of {task.id}")
    )


def _derived(task: TerminalTask, table: dict[str, Json], where: str) -> dict[str, Any]:
    """All fields of the task that follow from a settings table."""
    settings = parse_harbor(table, where)
    if [step.name for step in settings.steps] != [step.name for step in task.steps]:
        raise InputError(
            "the steps are others than those of the folder",
            where=where,
            expected="the same names in the same order",
            mend="add or remove steps in the folder and read it again",
        )
    steps = tuple(
        msgspec.structs.replace(old, **step_fields(settings, step))
        for old, step in zip(task.steps, settings.steps, strict=True)
    )
    return {**settings_fields(settings), "steps": steps}


def _merged(table: Mapping[str, Json], changes: Mapping[str, Json]) -> dict[str, Json]:
    merged = dict(table)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
    return merged


def export_harbor(task: TerminalTask, destination: Path) -> TerminalTask:
    """Write the task as a Harbor folder and return it as read from there. All of it appears at once, or nothing.

    Raises:
        InputError: the destination holds something, a field was changed past ``amend``, the tests of the task are
            judged by a parser that is not known here, or names collide.
    """
    _check_fields(task)
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise InputError(
            "destination is not empty", where=str(destination), expected="a new folder", mend="name another folder"
        )
    destination.parent.mkdir(parents=True, exist_ok=True)
    contents = list_contents(Path(task.folder))
    staging = Path(tempfile.mkdtemp(prefix=f".{destination.name}-", dir=destination.parent))
    try:
        staging.chmod(0o755)
        if task.format is TaskFormat.HARBOR:
            _copy_harbor(task, contents, staging)
        else:
            _lay_out(task, contents, staging)
        exported = read_folder(staging)
        if destination.exists():
            destination.rmdir()
        staging.rename(destination)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return msgspec.structs.replace(exported, id=task.id, folder=str(destination))


def _check_fields(task: TerminalTask) -> None:
    fields = _derived(task, task.settings, task.id)
    changed = [name for name, value in fields.items() if getattr(task, name) != value]
    if changed:
        raise InputError(
            f"{changed[0]} was changed and the settings were not",
            where=task.id,
            expected="fields that follow from the settings",
            mend="change the settings with amend()",
        )


def _copy_harbor(task: TerminalTask, contents: Contents, target: Path) -> None:
    _copy(contents, contents.below(""), "", target)
    there = read_folder(target)
    if there.settings != task.settings:
        (target / SETTINGS_FILE).unlink()  # may be a link
        (target / SETTINGS_FILE).write_text(toml_text(task.settings), encoding="utf-8")
    if there.instruction != task.instruction:
        (target / "instruction.md").unlink(missing_ok=True)
        (target / "instruction.md").write_text(task.instruction, encoding="utf-8")
    for old, new in zip(there.steps, task.steps, strict=True):
        if old.instruction != new.instruction:
            path = target / "steps" / new.name / "instruction.md"
            path.unlink()
            path.write_text(new.instruction, encoding="utf-8")


def _lay_out(task: TerminalTask, contents: Contents, target: Path) -> None:
    if task.verdict_source is not VerdictSource.PYTEST_SUMMARY:
        raise InputError(
            "the verdict of this task cannot be written as a reward",
            where=task.id,
            expected="tests judged by pytest",
            mend="write tests/test.sh by hand",
        )
    (target / SETTINGS_FILE).write_text(toml_text(task.settings), encoding="utf-8")
    (target / "instruction.md").write_text(task.instruction, encoding="utf-8")
    environment = target / "environment"
    environment.mkdir()
    context = task.environment_dir if task.environment_dir != "." else ""
    named = _named(task) if not context else set()
    _copy(
        contents, (e for e in contents.below(context) if context or _is_context(e, task, named)), context, environment
    )
    for placement in task.tests:
        _copy_placement(contents, placement.source, target / placement.target.lstrip("/"))
    script = target / "tests" / "test.sh"
    if script.exists():
        raise InputError(
            "tests/test.sh is there already", where=task.folder, expected="tests without it", mend="rename it"
        )
    script.write_text(_WRAPPER, encoding="utf-8")
    script.chmod(0o755)
    if task.solution:
        _write_solution(contents, task.solution[0], target / "solution" / "solve.sh")


def _is_context(entry: Entry, task: TerminalTask, named: set[str]) -> bool:
    """Tests, solution and settings stay out of the new build context: there they would be in the agent's reach."""
    if entry.path in named:
        return True
    return entry.path.split("/")[0] not in _NOT_CONTEXT and entry.path != task.compose_file


def _named(task: TerminalTask) -> set[str]:
    """Paths that the Dockerfile copies by their name: its author means the agent to have them."""
    return {
        item.path
        for step in plan_build(task).steps
        if isinstance(step, CopyStep)
        for source in step.sources
        if source.path and source.path.split("/")[0] in step.text
        for item in source.items
    }


def _write_solution(contents: Contents, placement: Placement, path: Path) -> None:
    if not placement.content:
        _copy_placement(contents, placement.source, path)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(placement.content, encoding="utf-8")
    path.chmod(0o755)


def _copy_placement(contents: Contents, source: str, target: Path) -> None:
    real = contents.resolve(source) or source
    if contents.is_folder(real):
        target.mkdir(parents=True, exist_ok=True)
        _copy(contents, contents.below(real), real, target)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            _copy_file(contents, contents.entries[real], target)


def _copy(contents: Contents, entries: Iterator[Entry], below: str, target: Path) -> None:
    """Copy entries that lie below ``below``. Links are made anew as they stand, never followed."""
    cut = len(below) + 1 if below else 0
    for entry in entries:
        path = target / entry.path[cut:]
        if entry.kind is EntryKind.FOLDER:
            path.mkdir(exist_ok=True)
        elif entry.kind is EntryKind.LINK:
            path.symlink_to(entry.target)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            _copy_file(contents, entry, path)


def _copy_file(contents: Contents, entry: Entry, path: Path) -> None:
    shutil.copyfile(contents.root / entry.path, path, follow_symlinks=False)
    path.chmod(0o755 if entry.executable else 0o644)
