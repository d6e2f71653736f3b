"""The static pass over one task, and over many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.case import Case, open_case, open_folder
from flightschool.audit.terminal.static.comparisons import comparisons_of
from flightschool.audit.terminal.static.detectors import DETECTORS
from flightschool.audit.terminal.static.expected import secrets_of, solution_runs
from flightschool.audit.terminal.static.mapping import map_trust
from flightschool.audit.terminal.static.trust_map import LeakCandidate, TrustMap
from flightschool.environments.terminal import Note, TerminalTask, UnreadableTask, iter_tasks
from flightschool.errors import InputError
from flightschool.records import Record

__all__ = ["StaticPass", "examine_static", "scan", "scan_folders"]


class StaticPass(Record, frozen=True, kw_only=True):
    """What the static pass found out about a task."""

    findings: tuple[FlawFinding, ...]
    """Warnings, none confirmed, most confident first."""
    trust: tuple[TrustMap, ...]
    """One for each of the task's stages, in their order."""
    leaks: tuple[LeakCandidate, ...] = ()
    skipped: tuple[Note, ...] = ()
    """What was not looked at, and why."""


def scan(task: TerminalTask) -> tuple[FlawFinding, ...]:
    """Findings of the static pass: warnings with ``where`` and ``confidence``, never confirmed."""
    return examine_static(task).findings


def examine_static(task: TerminalTask) -> StaticPass:
    """Read a task's folder and tell what its text alone shows. Nothing is run, nothing outside of it is opened.

    A folder that changed since it was read, or a detector that cannot deal with some text, is a note in ``skipped``.
    """
    try:
        folder = open_folder(task)
    except (InputError, OSError, RecursionError) as error:
        note = Note(where=task.folder, what=f"cannot be listed: {error}")
        return StaticPass(findings=(), trust=tuple(TrustMap(stage=s.name) for s in task.stages), skipped=(note,))
    findings: dict[tuple[str, str], FlawFinding] = {}
    maps: list[TrustMap] = []
    leaks: dict[LeakCandidate, None] = {}
    for stage in task.stages:
        try:
            case = open_case(folder, stage)
            _prepare(case)
        except (InputError, OSError, RecursionError) as error:
            folder.note(stage.name or "tests", f"the grader cannot be followed: {error}")
            maps.append(TrustMap(stage=stage.name))
            continue
        maps.append(case.trust)
        for found in _detected(case):
            old = findings.get((found.flaw, found.where))
            if old is None or old.confidence < found.confidence:
                findings[found.flaw, found.where] = found
        leaks |= dict.fromkeys(case.leaks)
    ordered = sorted(findings.values(), key=lambda found: (-found.confidence, found.where, found.flaw))
    return StaticPass(findings=tuple(ordered), trust=tuple(maps), leaks=tuple(leaks), skipped=tuple(folder.skipped))


def _prepare(case: Case) -> None:
    case.comparisons = [c for live in case.live.python for c in comparisons_of(live, case.of_agent)]
    case.solution = solution_runs(case)
    case.trust = map_trust(case, case.comparisons)
    case.secrets = secrets_of(case, case.comparisons, case.solution)


def _detected(case: Case) -> Iterator[FlawFinding]:
    for detect in DETECTORS:
        try:
            yield from detect(case)
        except RecursionError:
            case.folder.note(detect.__module__.rpartition(".")[2], "nested too deep to be followed")


def scan_folders(parent: Path) -> Iterator[tuple[TerminalTask | UnreadableTask, StaticPass | None]]:
    """The static pass over all tasks at or below a folder, one in memory at a time.

    Raises:
        InputError: the folder is none, or holds no task.
    """
    for task in iter_tasks(parent):
        yield task, examine_static(task) if isinstance(task, TerminalTask) else None
