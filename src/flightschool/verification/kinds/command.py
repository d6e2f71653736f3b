"""A test command on the end state ends with 0, in a sandbox of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from xml.etree import ElementTree

from flightschool.errors import InfrastructureError
from flightschool.records import CommandCheck, Json
from flightschool.verification.isolated import VerifierRun
from flightschool.verification.kinds.base import Finding, Kind
from flightschool.verification.states import States

__all__ = ["COMMAND"]

_LONGEST_TAIL = 600


def _judge(rule: CommandCheck, states: States) -> Finding:
    run = states.resources.run_command(rule, states.evidence.end_state)
    if run.problem:
        return _only_the_end_fails(rule, states, run)
    tail = (run.stdout + run.stderr)[-_LONGEST_TAIL:].decode("utf-8", "replace")
    if run.exit_code != 0:
        return Finding(False, f"exit code {run.exit_code}: {tail}")
    if not rule.junit:
        return Finding(True, f"exit code 0: {tail}")
    passed, found = _report(rule, run)
    return Finding(passed, f"exit code 0; {found}")


def _only_the_end_fails(rule: CommandCheck, states: States, run: VerifierRun) -> Finding:
    """Not passed if the command ends by itself on the initial state; otherwise the tests or this machine are broken.

    Work that never ends, or eats all memory, is the policy's doing; were it infrastructure, it would leave the
    denominator.
    """
    control = states.resources.run_command(rule, states.evidence.initial_state)
    if control.problem:
        raise InfrastructureError(
            f"{control.problem}, on the initial state too",
            where=" ".join(rule.command)[:200],
            expected="a test command that ends by itself within its limits",
            mend="raise timeout_s, or mend the tests",
        )
    return Finding(False, f"on the end state alone: {run.problem}")


def _report(rule: CommandCheck, run: VerifierRun) -> tuple[bool, str]:
    """Whether the report shows the expected number of tests as run and passed, and nothing else."""
    if rule.junit in run.odd_files:
        return False, f"the report was refused: {run.odd_files[rule.junit]}"
    data = run.files.get(rule.junit)
    if data is None:
        return False, "no report was written"
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        return False, "the report declares entities"
    try:
        cases = list(ElementTree.fromstring(data).iter("testcase"))
    except ElementTree.ParseError as error:
        return False, f"the report is no XML: {error}"
    bad = [case for case in cases if any(case.find(tag) is not None for tag in ("failure", "error", "skipped"))]
    num_passed = len(cases) - len(bad)
    found = f"{num_passed} of {len(cases)} tests passed, expected {rule.num_tests}"
    return num_passed == rule.num_tests and not bad, found


def _problem(rule: CommandCheck) -> str:
    if not rule.command or not rule.command[0]:
        return "there is no command"
    if not 0.0 < rule.timeout_s < math.inf:
        return f"timeout_s {rule.timeout_s} is not a positive number"
    if bool(rule.junit) != (rule.num_tests > 0):
        return "junit and num_tests go together: a report without a number expected would let no tests pass"
    if rule.junit.count("/") == 1:
        return "the report needs a folder of its own"
    odd = [path for path in (*rule.files, *([rule.junit] if rule.junit else ())) if not _is_absolute(path)]
    return f"{odd[0]!r} is not an absolute path" if odd else ""


def _is_absolute(path: str) -> bool:
    return path.startswith("/") and not {"", ".", ".."} & set(path[1:].split("/"))


def _expected(rule: CommandCheck) -> Iterator[Json]:
    return iter(rule.files.values())


COMMAND = Kind(_judge, _problem, _expected)
