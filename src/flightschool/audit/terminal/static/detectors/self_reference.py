"""What is expected comes from where the policy can write: its own output, or inputs that are read again."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.case import Case
from flightschool.audit.terminal.static.comparisons import Comparison
from flightschool.audit.terminal.static.detectors.guarding import hashes
from flightschool.audit.terminal.static.shell_runs import Run

__all__ = ["detect"]

_CASES: Final = ("case", "example", "sample", "test", "fixture")
_OWN: Final = "take what is expected from the tests' own files"
_COPY: Final = "keep a copy of the input in tests/ and compute what is expected from that"


def detect(case: Case) -> Iterator[FlawFinding]:
    """In Python and in shell."""
    told: set[tuple[str, str]] = set()
    for comparison in case.comparisons:
        for slug, path, what, confidence, mend in _python(case, comparison):
            if (slug, path) not in told:
                told.add((slug, path))
                yield case.finding(slug, what, comparison.where, confidence, mend)
    for run in case.decisive():
        yield from _shell(case, run)


def _python(case: Case, comparison: Comparison) -> Iterator[tuple[str, str, str, float, str]]:
    left = {detail for kind, detail in comparison.left_origins if kind in ("file", "module")}
    right = {detail for kind, detail in comparison.right_origins if kind in ("file", "module")}
    if not left or not right or comparison.operator in ("is", "is not"):
        return
    if hashes(comparison.left) and hashes(comparison.right):
        return
    view = case.view
    shipped = {path for path in left ^ right if path in view.files and view.may_write(path)}
    shipped |= (
        {path for path in left & right if path in view.files and view.may_write(path)} if left == right else set()
    )
    for path in sorted(shipped):
        if any(word in posixpath.basename(path).lower() for word in _CASES) and _runs_something(comparison):
            yield "visible-cases", path, f"the cases in {path} are the policy's to read and to change", 0.55, _OWN
        yield "reread-input", path, f"what is expected is computed from {path}, which the policy can change", 0.6, _COPY
    if not shipped and not any(path in view.files for path in left | right):
        if left == right and _same_value(comparison):
            return
        path = sorted(right)[0]
        yield "self-comparison", path, f"the policy's work is compared with {path}, its own work too", 0.65, _OWN


def _same_value(comparison: Comparison) -> bool:
    """Whether both sides are fields of one result: an inner consistency, not a reference."""
    return all(
        isinstance(side, ast.Subscript | ast.Attribute | ast.Name) for side in (comparison.left, comparison.right)
    )


def _runs_something(comparison: Comparison) -> bool:
    return any(kind in ("program", "module") for kind, _ in comparison.origins)


def _shell(case: Case, run: Run) -> Iterator[FlawFinding]:
    if run.program not in ("cmp", "diff", "[", "[[", "test"):
        return
    paths: list[str] = []
    for base in run.basis():
        if base is run and run.program in ("[", "[[", "test"):
            continue
        words = [*base.argv[1:]]
        paths += [
            path for word in words if word[:1] not in ("-", "$", "") and _is_path(word) and (path := base.path(word))
        ]
        paths += list(base.reads)
    agent = [path for path in dict.fromkeys(paths) if case.of_agent(path)]
    if len(agent) < 2 or any(path in case.tests.places for path in paths):
        return
    shipped = [path for path in agent if path in case.view.files and case.view.may_write(path)]
    if shipped:
        yield case.finding(
            "reread-input",
            f"what is expected is computed from {shipped[0]}, which the policy can change",
            run.where,
            0.6,
            _COPY,
        )
    elif not any(path in case.view.files for path in agent):
        yield case.finding(
            "self-comparison",
            f"{agent[0]} is compared with {agent[1]}, and both are the policy's work",
            run.where,
            0.65,
            _OWN,
        )


def _is_path(word: str) -> bool:
    return " " not in word and "{" not in word and ("/" in word or ("." in word and word.rpartition(".")[2].isalpha()))
