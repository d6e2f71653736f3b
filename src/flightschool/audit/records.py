"""Records of the audit room."""

from __future__ import annotations

from flightschool.records import Finding, Record

__all__ = ["ProbeReport", "TaskReports"]


class ProbeReport(Record, frozen=True, kw_only=True):
    """What one probe said about one task."""

    probe: str
    findings: tuple[Finding, ...] = ()
    error: str = ""
    """Why the probe could not finish; an unfinished probe acquits no one."""


class TaskReports(Record, frozen=True, kw_only=True):
    """What all probes of single tasks said about one task, as it is kept until the whole environment was examined."""

    task: str
    stratum: str
    reports: tuple[ProbeReport, ...]
    habit_passes: dict[str, bool] | None
    """Stratum → whether its habit passed this task; None where the task could not be examined."""
    equivalent_mutants: tuple[str, ...] = ()
    """Mutants of the oracle that did the oracle's work."""
