"""From findings to one verdict: the gravest accusation wins, and what was not examined acquits no one."""

from __future__ import annotations

from collections.abc import Sequence

from flightschool.audit.terminal.records import FlawFinding
from flightschool.records import AuditVerdict, Severity

__all__ = ["folder_verdict"]

_PRECEDENCE = tuple(AuditVerdict)  # declared in order of precedence


def folder_verdict(findings: Sequence[FlawFinding], *, unaudited: bool) -> AuditVerdict:
    """The verdict of one folder.

    Args:
        findings: what was found; only barring ones accuse, and an accusation of an exploit counts only when it was
            executed.
        unaudited: a probe that every task must have seen could not run.
    """
    accused = {
        found.accuses
        for found in findings
        if found.severity is Severity.BARRING and (found.confirmed or found.accuses is not AuditVerdict.EXPLOITABLE)
    }
    if unaudited:
        accused.add(AuditVerdict.UNAUDITED)
    return min(accused, key=_PRECEDENCE.index, default=AuditVerdict.SOUND)
