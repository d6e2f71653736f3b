"""Checks that people declare for the tasks of an environment, in TOML, beside those that its maker drafted.

    drafted = "kept"              # or "left_out": only what stands here judges the tasks named here

    [[check]]
    tasks = ["cancel-A1"]         # left out: every task
    id = "letter"
    kind = "functional"
    rule = "file"
    path = "/letters/A1.txt"
    expected = "Your order A1 is cancelled."

Beside ``tasks`` a table is what ``verification.declaring`` reads. A declared check takes the place of a drafted one of
the same id. They enter the environment's digest, so that an audit made before them does not count for what they made.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from flightschool.config import load_toml
from flightschool.digest import digest as content_digest
from flightschool.errors import ConfigError, FlightschoolError
from flightschool.protocols import Environment
from flightschool.records import CheckKind, CheckSpec, CommandCheck, JudgeCheck, Record, Reference
from flightschool.verification import CheckVerifier, parse_checks, rules_in, tools_in

__all__ = ["Declaration", "DeclaredCheck", "DeclaredEnvironment", "load_declaration", "refuse_unknown_tools"]


class DeclaredCheck(Record, frozen=True, kw_only=True):
    """One check with the tasks that it judges."""

    check: CheckSpec
    tasks: tuple[str, ...] = ()
    """Empty: all."""


class Declaration(Record, frozen=True, kw_only=True):
    """A file of declared checks."""

    checks: tuple[DeclaredCheck, ...]
    drafted: Literal["kept", "left_out"] = "kept"
    """What becomes of the environment's own checks at tasks that a declared one judges."""

    @property
    def waits(self) -> bool:
        """Whether a check asks a model or starts a sandbox, so that judging a task takes time or money."""
        rules = (rule for row in self.checks for rule in rules_in(row.check.rule))
        return any(isinstance(rule, JudgeCheck | CommandCheck) for rule in rules)


def load_declaration(path: Path) -> Declaration:
    """Read a file of checks.

    Raises:
        ConfigError: it cannot be read, or the first thing in it that is wrong.
    """
    table = dict(load_toml(path))
    drafted = table.pop("drafted", "kept")
    if drafted not in ("kept", "left_out"):
        raise ConfigError(
            f"drafted is {drafted!r}", where=str(path), expected="'kept' or 'left_out'", mend="correct the word"
        )
    odd = sorted(set(table) - {"check"})
    if odd:
        raise ConfigError(
            f"unknown key {odd[0]!r}", where=str(path), expected="drafted, [[check]]", mend="correct or remove it"
        )
    rows = table.get("check")
    if not isinstance(rows, list) or not rows:
        parse_checks(table, folder=path.parent, where=str(path))  # raises what is wrong
        rows = []
    declared = tuple(_declared(row, number, path) for number, row in enumerate(rows, 1))
    _refuse_same_ids(declared, path)
    return Declaration(checks=declared, drafted=cast("Literal['kept', 'left_out']", drafted))


def _refuse_same_ids(declared: Sequence[DeclaredCheck], path: Path) -> None:
    """Two checks may share an id only if no task has both."""
    seen: dict[str, set[str]] = {}  # id → tasks; "" for all of them
    for row in declared:
        tasks, others = set(row.tasks or ("",)), seen.setdefault(row.check.id, set())
        if others and ("" in others | tasks or others & tasks):
            raise ConfigError(
                f"two checks of one task have the id {row.check.id!r}",
                where=f"{path}: check {row.check.id}",
                expected="an id of its own for each check of a task",
                mend="rename one, or name different tasks in both",
            )
        others |= tasks


def _declared(row: Any, number: int, path: Path) -> DeclaredCheck:  # Any: what stands in the file, not yet validated
    where = f"{path}: check {row.get('id', number) if isinstance(row, dict) else number}"
    if not isinstance(row, dict):
        raise ConfigError("not a table", where=where, expected="[[check]]", mend="declare a table")
    tasks = row.get("tasks", [])
    if (
        not isinstance(tasks, list)
        or not all(isinstance(task, str) for task in tasks)
        or ("tasks" in row and not tasks)
    ):
        raise ConfigError(
            "'tasks' is no list of task ids",
            where=where,
            expected='tasks = ["id", ...]',
            mend="name tasks, or leave it out for all",
        )
    plain = {key: value for key, value in row.items() if key != "tasks"}
    (check,) = parse_checks({"check": [plain]}, folder=path.parent, where=str(path))
    return DeclaredCheck(check=check, tasks=tuple(tasks))


class DeclaredEnvironment:
    """An environment whose tasks are judged by declared checks too (``protocols.Environment``).

    Args:
        inner: the environment.
        declaration: the checks.
        later: tools that are not in the environment yet, and will be.

    Raises:
        ConfigError: a check names a task or a tool that does not exist, or the checks of a task are not usable
            together.
    """

    def __init__(self, inner: Environment, declaration: Declaration, *, later: Collection[str] = ()) -> None:
        self.inner = inner
        self.declaration = declaration
        self.name = inner.name
        self.strata: Mapping[str, float] = inner.strata
        self.policy_text = inner.policy_text
        self.digest = content_digest({"inner": inner.digest, "checks": declaration})
        self.tasks = inner.tasks
        self.task = inner.task
        self.tools = inner.tools
        self.permissions = inner.permissions
        self.open = inner.open
        _refuse_unknown_tasks(declaration, [task.id for task in inner.tasks()])
        refuse_unknown_tools(
            [row.check for row in declaration.checks], [*(spec.name for spec in inner.tools()), *later]
        )
        for task_id in {task for row in declaration.checks for task in row.tasks} or {t.id for t in inner.tasks()[:1]}:
            _refuse_unusable(self.reference(task_id), task_id)

    def reference(self, task_id: str) -> Reference:
        """The sealed side of a task, with its declared checks."""
        reference = self.inner.reference(task_id)
        own = [row.check for row in self.declaration.checks if not row.tasks or task_id in row.tasks]
        if not own:
            return reference
        replaced = {check.id for check in own}
        kept = [c for c in reference.checks if c.id not in replaced] if self.declaration.drafted == "kept" else []
        return msgspec.structs.replace(reference, checks=(*kept, *own))


def _refuse_unknown_tasks(declaration: Declaration, known: Sequence[str]) -> None:
    names = set(known)
    for row in declaration.checks:
        for task in row.tasks:
            if task not in names:
                near = difflib.get_close_matches(task, known, n=1)
                raise ConfigError(
                    f"there is no task {task!r}",
                    where=f"check {row.check.id}: tasks",
                    expected=f"one of {len(known)} task ids",
                    mend=f"did you mean {near[0]!r}?" if near else "list them with: flightschool env show",
                )


def refuse_unknown_tools(checks: Iterable[CheckSpec], known: Sequence[str]) -> None:
    """A minefield on a tool that nobody has would never be stepped on, and a milestone never be reached.

    Raises:
        ConfigError: a check is about a tool that is not known.
    """
    for check in checks:
        for tool in tools_in(check.rule):
            if tool not in known:
                near = difflib.get_close_matches(tool, known, n=3)
                raise ConfigError(
                    f"there is no tool {tool!r}",
                    where=f"check {check.id}",
                    expected=f"one of {len(known)} tools",
                    mend=f"did you mean {' or '.join(map(repr, near))}?"
                    if near
                    else "list them with: flightschool env show",
                )


def _refuse_unusable(reference: Reference, task_id: str) -> None:
    try:
        CheckVerifier(reference.checks)
    except FlightschoolError as error:
        raise ConfigError(
            error.what, where=f"task {task_id}: {error.where}", expected=error.expected, mend=error.mend
        ) from error
    if not any(check.kind is CheckKind.FUNCTIONAL for check in reference.checks):
        raise ConfigError(
            "no functional check is left",
            where=f"task {task_id}",
            expected="at least one: what the end state or the answer has to be",
            mend="declare one, or keep the drafted ones: drafted = 'kept'",
        )
