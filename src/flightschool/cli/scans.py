"""What the trajectory scan found, as verbs tell it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from flightschool.cli import output

if TYPE_CHECKING:
    from flightschool.audit.trajectories import TaskFacts, TrajectoryFinding
    from flightschool.records import Attempt
    from flightschool.store import SqlStore

__all__ = ["finding_row", "keep_scan", "kept_scan", "scan_made", "tell_findings"]

MOST_NAMED = 100
"""Attempts and tasks that one finding names under ``--json``; their number is always told."""


def scan_made(
    attempts: Iterable[Attempt], facts: dict[str, TaskFacts], store: SqlStore | None, environment: str
) -> tuple[TrajectoryFinding, ...]:
    """Scan what was just made; canaries are those that the workspace has marked."""
    from flightschool.audit.trajectories import canaries_of, scan_attempts

    marked = frozenset[str]() if store is None else canaries_of(store, environment)
    return scan_attempts(attempts, facts=facts, canaries=marked)


def keep_scan(store: SqlStore, run: str, findings: Sequence[TrajectoryFinding]) -> None:
    """Keep the findings with their run."""
    from flightschool.audit.trajectories import save_scan

    save_scan(store, run, findings)


def kept_scan(store: SqlStore, run: str) -> tuple[TrajectoryFinding, ...]:
    """The findings kept with a run; none where it was not scanned."""
    from flightschool.audit.trajectories import load_scan

    return load_scan(store, run)


def finding_row(finding: TrajectoryFinding) -> dict[str, Any]:
    """One finding under ``--json``."""
    return {
        "rule": finding.rule,
        "severity": finding.severity.value,
        "what": finding.what,
        "evidence": finding.evidence,
        "num_attempts": len(finding.attempts),
        "attempts": finding.attempts[:MOST_NAMED],
        "num_tasks": len(finding.tasks),
        "tasks": finding.tasks[:MOST_NAMED],
    }


def tell_findings(findings: Sequence[TrajectoryFinding]) -> None:
    """The findings for people, the gravest first."""
    for finding in findings:
        style = "red" if finding.severity.value == "barring" else "yellow"
        output.say(f"{finding.severity.value}: {finding.what} ({finding.rule})", style=style)
        output.say(f"  {finding.evidence}")
        if finding.attempts:
            more = f" and {len(finding.attempts) - 1} more" if len(finding.attempts) > 1 else ""
            output.say(f"  {finding.attempts[0]}{more}")
