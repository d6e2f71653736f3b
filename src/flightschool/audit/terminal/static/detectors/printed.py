"""Verdicts read from what was printed: markers that the policy's work can print itself, absence of failures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.case import Case
from flightschool.audit.terminal.static.detectors.verdict_flow import number_of
from flightschool.audit.terminal.static.expected import shell_literals
from flightschool.audit.terminal.static.shell_runs import Run

__all__ = ["detect"]

_MARKERS: Final = ("pass", "success", "ok", "all tests", "correct", "done", "100%", "score")
_BAD: Final = ("fail", "error", "incorrect", "wrong", "not ok", "traceback")
_MEND: Final = "judge by the exit status of a process that the policy's code does not share"


def detect(case: Case) -> Iterator[FlawFinding]:
    """In shell and in Python."""
    writers: dict[str, list[Run]] = {}
    for run in case.runs:
        targets = [path for path, _ in run.writes]
        if run.program == "tee":
            targets += [run.path(word) for word in run.argv[1:] if not word.startswith("-")]
        for path in targets:
            writers.setdefault(path, []).append(run)
    for verdict in case.verdict_runs():
        if (number_of(verdict) or 0.0) <= 0:
            continue
        for guard in verdict.guards:
            positive = guard.kind in ("if", "and") and not guard.negated
            for test in guard.runs:
                literal = next((word for word in shell_literals(test) if _says(word.lower())), "")
                if literal:
                    yield from _shell(case, test, literal.lower(), positive, writers)
    yield from _python(case)


def _says(word: str) -> bool:
    return any(marker in word for marker in (*_MARKERS, *_BAD))


def _shell(case: Case, test: Run, literal: str, positive: bool, writers: dict[str, list[Run]]) -> Iterator[FlawFinding]:
    origin = [*test.sources]
    for word in test.argv[1:]:
        origin += writers.get(test.path(word), [])
    origin = [base for run in origin for base in run.basis()]
    bad = any(word in literal for word in _BAD)
    runs_pytest = any("pytest" in run.argv[:6] or run.program == "pytest" for run in origin)
    inverted = "-v" in test.argv or "-qv" in test.argv or "!" in test.words
    if bad and (not positive or inverted):
        yield case.finding(
            "zero-collected",
            "what does not print a failure passes, also when nothing was run",
            test.where,
            0.75,
            "require the exit status 0 and that the expected number of tests ran",
        )
    elif not bad and positive and runs_pytest and "failed" not in literal:
        yield case.finding(
            "swallowed-failure",
            f"a run that prints {literal!r} passes, also when other tests failed",
            test.where,
            0.7,
            _MEND,
        )
    started = {id(run) for _, run in case.live.programs}
    shares = bool(case.live.imports) and runs_pytest
    if not bad and positive and (shares or any(id(run) in started for run in origin)):
        yield case.finding(
            "stdout-forging", f"{literal!r} decides, and the policy's own code can print it", test.where, 0.75, _MEND
        )


def _python(case: Case) -> Iterator[FlawFinding]:
    for comparison in case.comparisons:
        programs = [detail for kind, detail in comparison.origins if kind == "program"]
        texts = [value.lower() for value in comparison.literals if isinstance(value, str)]
        marker = next((text for text in texts if any(text.strip().startswith(m) or m == text for m in _MARKERS)), "")
        if programs and marker and comparison.operator in ("in", "==", "startswith", "endswith", "search"):
            yield case.finding(
                "stdout-forging",
                f"{marker.strip()!r} in the output of {programs[0]} decides, and the policy can print it",
                comparison.where,
                0.7,
                _MEND,
            )
