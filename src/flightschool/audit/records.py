"""Records of the audit room."""

from __future__ import annotations

from flightschool.records import Finding, Record

__all__ = ["ProbeReport"]


class ProbeReport(Record, frozen=True, kw_only=True):
    """What one probe said about one task."""

    probe: str
    findings: tuple[Finding, ...] = ()
    error: str = ""
    """Why the probe could not finish; an unfinished probe acquits no one."""
