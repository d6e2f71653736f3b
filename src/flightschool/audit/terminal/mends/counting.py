"""Tests must have run: as many as the files hold, and none skipped."""

from __future__ import annotations

from typing import Final

from flightschool.audit.terminal.mends.draft import Draft
from flightschool.audit.terminal.mends.records import AppliedMend
from flightschool.audit.terminal.static.detectors.asserting import test_functions

__all__ = ["require_executed"]

REPORT: Final = "/logs/verifier/junit.xml"
GUARD: Final = """\
import sys
import xml.etree.ElementTree as tree

least = int(sys.argv[2])
try:
    suites = list(tree.parse(sys.argv[1]).getroot().iter("testsuite"))
except (OSError, tree.ParseError):
    sys.exit("the tests left no report: they ended early")
count = {key: sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")}
executed = count["tests"] - count["skipped"]
if count["failures"] or count["errors"] or executed < least:
    sys.exit(f"{executed} of at least {least} tests were executed, {count['failures'] + count['errors']} failed")
"""


def require_executed(draft: Draft) -> list[AppliedMend]:
    """``pytest …`` becomes ``pytest … --junitxml=R && python3 -I guard R N``, where one line holds the whole command.

    N is the number of test functions; parameters only make it larger.
    """
    applied: list[AppliedMend] = []
    told = tuple(sorted({f.flaw for f in draft.findings if f.flaw in ("early-exit", "zero-collected")}))
    for case in draft.cases if told and draft.task.tests_dir else ():
        functions = sum(len(test_functions(live.code)) for live in case.live.python if live.by_pytest)
        script = case.tests.places.get(case.stage.test_command[-1], "") if case.stage.test_command else ""
        entries = [e for e in case.trust.python_entries if e.runner == "pytest" and e.where.startswith(script + ":")]
        guard = f"{draft.task.tests_dir}/require_executed.py"
        if not functions or len(entries) != 1 or (draft.exists(guard) and guard not in draft.changed):
            continue
        lines = draft.lines(script)
        number = int(entries[0].where.rpartition(":")[2])
        if not 0 < number <= len(lines) or script in draft.changed:
            continue
        line = _counted(lines[number - 1], functions)
        if line:
            lines[number - 1] = line
            draft.write(script, "".join(lines))
            draft.write(guard, GUARD)
            what = f"passing takes at least {functions} executed tests and none that failed"
            applied.append(AppliedMend(rule="require-executed", flaws=told, file=script, what=what))
    return applied


def _counted(line: str, least: int) -> str:
    """The line with the report and its guard; empty: it cannot be told where the command ends."""
    body = line.rstrip("\n")
    guard = f"python3 -I /tests/require_executed.py {REPORT} {least}"
    command, then, rest = body.partition("; then")
    conditional = body.strip().startswith("if ") and bool(then)
    if not conditional:
        command, then, rest = body, "", ""
    unclear = any(mark in command for mark in (";", "|", "&", "<", ">", "`", "(", "--junit")) or command.endswith("\\")
    if unclear or "pytest" not in command or command.strip().startswith(("while ", "for ", "until ")):
        return ""
    return f"{command} --junitxml={REPORT} && {guard}{then}{rest}\n"
