"""From probes to one verdict a task: the gravest accusation wins, and silence never acquits.

A probe that is missing or could not run makes its task ``unaudited``. Findings of the whole environment have probe
names that begin with ``environment.`` and bar training on any of its tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from flightschool.audit.records import ProbeReport
from flightschool.errors import InputError
from flightschool.records import AuditVerdict, Finding, Reference, Severity, TaskAudit
from flightschool.verification import CheckVerifier

__all__ = ["ENVIRONMENT", "environment_wide", "verdict_of", "verifier_digest"]

ENVIRONMENT = "environment."
"""Prefix of the names of probes whose findings concern every task."""

WIDESPREAD_SHARE = 0.5
WIDESPREAD_TASKS = 4

_PRECEDENCE = tuple(AuditVerdict)  # declared in order of precedence


def verdict_of(reports: Sequence[ProbeReport], required: Mapping[str, AuditVerdict]) -> AuditVerdict:
    """The verdict of one task.

    Args:
        reports: what the probes said.
        required: every probe that must have run, with the verdict that its barring findings accuse of.
    """
    accused = {
        required.get(report.probe, AuditVerdict.EXPLOITABLE)
        for report in reports
        if any(f.severity is Severity.BARRING for f in report.findings)
    }
    completed = {report.probe for report in reports if not report.error}
    if not completed >= set(required):
        accused.add(AuditVerdict.UNAUDITED)
    return min(accused, key=_PRECEDENCE.index, default=AuditVerdict.SOUND)


def verifier_digest(reference: Reference | None) -> str:
    """Digest of the verifier that a reference declares; empty when there is none, or none that could judge."""
    if reference is None:
        return ""
    try:
        return CheckVerifier(reference.checks).digest
    except InputError:
        return ""  # checks that are not usable: every play fails to be graded, so the task is unaudited anyway


def environment_wide(audits: Collection[TaskAudit]) -> tuple[Finding, ...]:
    """Barring findings that concern the whole environment.

    Either a probe of the environment made them, or one probe bars half of the tasks (at least four): then the fault
    lies in what the tasks share, and the tasks that it happened to spare are not to be trusted either.
    """
    wide: dict[str, Finding] = {}
    tasks_by_probe: dict[str, set[str]] = {}
    example: dict[str, Finding] = {}
    for audit in audits:
        for finding in audit.findings:
            if finding.severity is not Severity.BARRING:
                continue
            if finding.probe.startswith(ENVIRONMENT):
                wide.setdefault(finding.what, finding)
            tasks_by_probe.setdefault(finding.probe, set()).add(audit.task)
            example.setdefault(finding.probe, finding)
    for probe, tasks in tasks_by_probe.items():
        if len(tasks) >= max(WIDESPREAD_TASKS, WIDESPREAD_SHARE * len(audits)) and not probe.startswith(ENVIRONMENT):
            what = f"{len(tasks)} of {len(audits)} tasks fail this probe, for instance: {example[probe].what}"
            wide[probe] = Finding(probe=probe, severity=Severity.BARRING, what=what, evidence=example[probe].evidence)
    return tuple(wide.values())
