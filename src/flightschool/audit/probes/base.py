"""What every probe is: a name, the verdict that its barring findings accuse of, and a function of an examination."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flightschool.audit.examination import Examination, Play
from flightschool.records import AuditVerdict, Finding, Severity

__all__ = ["Probe", "barring", "passes", "passes_unless_equivalent", "unfinished", "warning"]


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A probe of single tasks."""

    name: str
    accuses: AuditVerdict
    run: Callable[[Examination], Iterable[Finding]]


def barring(probe: str, what: str, evidence: str = "", play: Play | None = None) -> Finding:
    """A finding that bars its task; with the play that shows it, if one does."""
    actions = () if play is None else play.actions
    return Finding(probe=probe, severity=Severity.BARRING, what=what, evidence=evidence, actions=actions)


def warning(probe: str, what: str, evidence: str = "", play: Play | None = None) -> Finding:
    """A finding that bars nothing."""
    actions = () if play is None else play.actions
    return Finding(probe=probe, severity=Severity.WARNING, what=what, evidence=evidence, actions=actions)


def unfinished(probe: str, error: str) -> Finding:
    """That a probe could not finish: it accuses of nothing, and keeps its task from being acquitted."""
    _, _, told = error.partition("mend: ")
    return Finding(
        probe=probe,
        severity=Severity.WARNING,
        what="probe unfinished",
        evidence=error[:600],
        confidence=0.0,
        mend=told or "mend in the environment what stopped the probe (it is told in the evidence), then audit again",
    )


def passes(probe: str, who: str, play: Play) -> Iterable[Finding]:
    """A barring finding if work that must fall short succeeded."""
    if play.success:
        yield barring(probe, f"{who} passes", play.told, play)


def passes_unless_equivalent(exam: Examination, probe: str, who: str, play: Play) -> Iterable[Finding]:
    """Like ``passes``; who hit on the oracle's very work by luck or habit proves no fault of the checks (a warning)."""
    if play.success and exam.is_equivalent(play):
        yield warning(probe, f"{who} happens to do the right work", play.told, play)
    else:
        yield from passes(probe, who, play)
