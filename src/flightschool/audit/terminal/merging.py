"""What was read and what was run about one folder, as one list of findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from flightschool.audit.terminal.records import FlawFinding
from flightschool.records import AuditVerdict, Severity

__all__ = ["merged"]

_EXPLAINS: Final[dict[str, frozenset[str]]] = {
    "noop-passes": frozenset({"swallowed-failure", "empty-criteria", "zero-collected"}),
    "presence-only": frozenset({"swallowed-failure", "empty-criteria", "self-comparison"}),
    "constant-answer": frozenset({"visible-cases", "self-comparison"}),
    "unparsable-passes": frozenset({"swallowed-failure"}),
    "test-edit": frozenset({"grader-in-reach", "zero-collected"}),
    "grader-in-reach": frozenset({"test-edit", "decorative-guard", "path-trojan"}),
    "reread-input": frozenset({"decorative-guard"}),
    "decorative-guard": frozenset({"grader-in-reach", "test-edit"}),
    "shared-state": frozenset({"reward-file-forging"}),
    "reward-file-forging": frozenset({"shared-state"}),
    "early-exit": frozenset({"swallowed-failure", "zero-collected"}),
    "mutant-passes": frozenset(
        {"loose-tolerance", "visible-cases", "self-comparison", "empty-criteria", "superset-answer"}
    ),
}
"""Class that was shown → classes that reading suspected and that it shows too."""
UNSHOWN: Final = "read, and not shown: no attack on it was rewarded"


def merged(read: Sequence[FlawFinding], run: Sequence[FlawFinding], *, was_run: bool) -> list[FlawFinding]:
    """Findings of both passes.

    Args:
        read: what the static pass suspects or proves.
        run: what was executed.
        was_run: whether the dynamic pass came to its end; a suspicion that it did not share then only warns.
    """
    shown = {found.flaw: found for found in reversed(run) if found.confirmed and found.severity is Severity.BARRING}
    found = list(run)
    for suspicion in read:
        if suspicion.flaw in shown:
            found = [_placed(one, suspicion.where) if one.flaw == suspicion.flaw else one for one in found]
            continue
        proof = next(
            (shown[slug] for slug, classes in _EXPLAINS.items() if slug in shown and suspicion.flaw in classes), None
        )
        if proof is not None and suspicion.accuses is AuditVerdict.EXPLOITABLE:
            found.append(_proven(suspicion, proof))
            shown[suspicion.flaw] = found[-1]
        elif suspicion.severity is Severity.BARRING and not suspicion.confirmed and _must_be_shown(suspicion, was_run):
            observed = f"{suspicion.observed}; {UNSHOWN}" if suspicion.observed else UNSHOWN
            found.append(replace(suspicion, severity=Severity.WARNING, observed=observed))
        else:
            found.append(suspicion)
    return found


def _must_be_shown(suspicion: FlawFinding, was_run: bool) -> bool:
    """Exploits always; other accusations where the dynamic pass had its say, a network for the tests apart."""
    if suspicion.accuses is AuditVerdict.EXPLOITABLE:
        return True
    return was_run and suspicion.accuses is not AuditVerdict.LEAKING and suspicion.flaw != "network-in-grading"


def _placed(found: FlawFinding, where: str) -> FlawFinding:
    return found if found.where else replace(found, where=where)


def _proven(suspicion: FlawFinding, proof: FlawFinding) -> FlawFinding:
    return replace(
        suspicion,
        severity=Severity.BARRING,
        confirmed=True,
        script=proof.script,
        user=proof.user,
        observed=proof.observed,
        confidence=1.0,
    )
