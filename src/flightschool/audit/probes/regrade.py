"""The same evidence, judged in a process that shares nothing with this one, gets the same verdict (invariant 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flightschool.audit.examination import Play
from flightschool.audit.probes.base import barring
from flightschool.audit.records import ProbeReport
from flightschool.errors import InfrastructureError
from flightschool.records import Finding, Reference
from flightschool.verification import SeparateGrader, agree

NAME = "regrade"
ELSEWHERE: Mapping[str, str] = {"TZ": "Pacific/Kiritimati", "LC_ALL": "C"}
"""Where the separate process stands: fourteen hours ahead of UTC, in no country."""


def judge_elsewhere(
    grader: SeparateGrader, evidence: Sequence[tuple[str, Play]], references: Mapping[str, Reference]
) -> dict[str, ProbeReport]:
    """Reports by task.

    Args:
        grader: the separate process; one serves a whole audit, since starting it costs more than judging.
        evidence: (task id, play) in any order.
        references: task id → checks.
    """
    findings: dict[str, list[Finding]] = {task_id: [] for task_id, _ in evidence}
    errors: dict[str, str] = {}
    for task_id, play in evidence:
        try:
            verdict = grader.judge(references[task_id].checks, play.evidence)
        except InfrastructureError as error:
            errors[task_id] = str(error)
            continue
        if play.attempt.verdict is None or not agree(play.attempt.verdict, verdict):
            failed = ", ".join(check.id for check in verdict.checks if not check.passed)
            what = f"a separate process, in another time zone and locale, judges {play.attempt.policy!r} differently"
            findings[task_id].append(barring(NAME, what, f"failed there: {failed}", play))
    return {
        task_id: ProbeReport(probe=NAME, findings=tuple(found), error=errors.get(task_id, ""))
        for task_id, found in findings.items()
    }
