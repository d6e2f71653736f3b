"""Verdicts, graders and tests that lie where the policy can write."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.case import Case, verdict_path
from flightschool.audit.terminal.static.shell_runs import Run

__all__ = ["detect"]

_JUDGES: Final = ("verif", "check", "grade", "judge", "score", "eval", "test", "validat", "assert", "reward", "oracle")
_MOVE: Final = "move it to tests/, so that it reaches the sandbox of the grader only"


def detect(case: Case) -> Iterator[FlawFinding]:
    """All of them."""
    yield from _copied_verdicts(case)
    yield from _kept_verdicts(case)
    yield from _programs(case)
    yield from _sourced(case)


def _copied_verdicts(case: Case) -> Iterator[FlawFinding]:
    for path in case.trust.verdict_paths:
        if case.of_agent(path):
            run = next((run for run in case.verdict_runs()), None)
            yield case.finding(
                "reward-file-forging",
                f"the reward is taken from {path}, which the policy can write",
                run.where if run else "",
                0.75,
                "compute the reward from checks of the tests' own",
            )


def _kept_verdicts(case: Case) -> Iterator[FlawFinding]:
    """A verdict that is there already is kept."""
    for run in case.verdict_runs():
        if any(guard.kind == "trap" for guard in run.guards):
            continue  # at the end, what is there was written by the script itself
        for guard in run.guards:
            for test in guard.runs:
                asks = test.program in ("[", "[[", "test") and any(word in ("-f", "-e", "-s") for word in test.words)
                named = any(word.startswith("/logs/verifier/reward") for word in test.words)
                if asks and named and ("!" in test.words or guard.kind in ("or", "else") or guard.negated):
                    yield case.finding(
                        "reward-file-forging",
                        "a reward file that is there already is kept",
                        run.where,
                        0.7,
                        "remove the folder of the verdict before grading",
                    )
        if any(append and path == verdict_path(run) for path, append in run.writes):
            yield case.finding(
                "reward-file-forging", "the reward is appended to what the file holds", run.where, 0.4, "write with >"
            )


def _is_judge(path: str) -> bool:
    name = posixpath.basename(path).lower()
    return any(word in name for word in _JUDGES)


def _programs(case: Case) -> Iterator[FlawFinding]:
    told: set[str] = set()
    for program, run in case.live.programs:
        if program.path in told or program.path not in case.view.files or not case.view.may_write(program.path):
            continue
        told.add(program.path)
        if program.interpreter == "pytest":
            yield case.finding(
                "test-edit",
                f"the tests at {program.path} lie in the image, where the policy can edit them",
                run.where,
                0.85,
                _MOVE,
            )
        elif _decides(case, run):
            yield case.finding(
                "grader-in-reach",
                f"{program.path} decides the verdict and lies where the policy can write it",
                run.where,
                0.85 if _is_judge(program.path) else 0.4,
                _MOVE,
            )
        elif _is_judge(program.path):
            yield case.finding(
                "grader-in-reach", f"the grader runs {program.path}, which the policy can write", run.where, 0.5, _MOVE
            )
    for found in case.live.imports:
        other = any(
            kind == "module" and detail in (found.module, found.path)
            for comparison in case.comparisons
            for kind, detail in comparison.live.flow.origins(comparison.other)
        )
        if found.path in case.view.files and case.view.may_write(found.path) and _is_judge(found.path) | other:
            yield case.finding(
                "grader-in-reach", f"the tests import {found.path}, which the policy can write", found.where, 0.6, _MOVE
            )


def _decides(case: Case, run: Run) -> bool:
    """Whether the exit status of a command is the verdict, or its output is copied to it."""
    for verdict in case.verdict_runs():
        if any(run is base for source in verdict.sources for base in source.basis()):
            return True
        for guard in verdict.guards:
            for condition in guard.runs:
                if condition is run or any(run is status for status in condition.statuses):
                    return True
                if any(run is status for base in condition.inner for status in base.basis()):
                    return True
    return run.use == "errexit" and any(verdict.guards == () for verdict in case.verdict_runs())


def _sourced(case: Case) -> Iterator[FlawFinding]:
    own = set(case.tests.places.values())
    for run in case.runs:
        if run.in_script and run.in_script not in own and run.file in own:
            path = next((run.path(word) for word in run.argv if "/" in word and case.of_agent(run.path(word))), "")
            if case.view.may_write(path):
                yield case.finding(
                    "grader-in-reach",
                    f"the grader runs {path or run.in_script} out of the image",
                    run.where,
                    0.8,
                    _MOVE,
                )
        elif run.program in (".", "source") and len(run.argv) > 1 and not run.in_script:
            path = run.path(run.argv[1])
            if (
                case.of_agent(path)
                and not path.startswith(("/etc/", "/root", "/opt/venv"))
                and "/bin/activate" not in path
            ):
                yield case.finding(
                    "evaluated-output",
                    f"the grader sources {path}, which the policy can write",
                    run.where,
                    0.8,
                    "read values from it as data instead",
                )
