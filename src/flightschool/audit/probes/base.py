"""What every probe is: a name, the verdict that its barring findings accuse of, and a function of an examination."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flightschool.audit.examination import Examination, Play
from flightschool.records import AuditVerdict, Finding, Severity

__all__ = ["Probe", "barring", "passes", "passes_unless_equivalent"]


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A probe of single tasks."""

    name: str
    accuses: AuditVerdict
    run: Callable[[Examination], Iterable[Finding]]


def barring(probe: str, what: str, evidence: str = "") -> Finding:
    """A finding that bars its task."""
    return Finding(probe=probe, severity=Severity.BARRING, what=what, evidence=evidence)


def passes(probe: str, who: str, play: Play) -> Iterable[Finding]:
    """A barring finding if work that must fall short succeeded."""
    if play.success:
        calls = "; ".join(f"{e.call.name} {e.call.arguments}" for e in play.attempt.events) or "no call"
        yield barring(probe, f"{who} passes", calls[:600])


def passes_unless_equivalent(exam: Examination, probe: str, who: str, play: Play) -> Iterable[Finding]:
    """Like ``passes``; who hit on the oracle's very work by luck or habit proves no fault of the checks (a warning)."""
    if play.success and exam.is_equivalent(play):
        yield Finding(probe=probe, severity=Severity.WARNING, what=f"{who} happens to do the right work")
    else:
        yield from passes(probe, who, play)
