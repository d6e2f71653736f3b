"""The probes, one small file each, and the table of those that every task must have seen."""

from __future__ import annotations

from flightschool.audit.probes import (
    answers,
    ceiling,
    chance,
    constant,
    equivalents,
    flake,
    idle,
    leak,
    mutants,
    numbers,
    oracle,
    regrade,
    residue,
)
from flightschool.audit.probes.base import Probe
from flightschool.records import AuditVerdict

__all__ = ["PROBES", "REQUIRED", "Probe", "ceiling", "regrade"]

PROBES: tuple[Probe, ...] = (
    Probe(name=oracle.NAME, accuses=AuditVerdict.BROKEN_ORACLE, run=oracle.probe),
    Probe(name=leak.NAME, accuses=AuditVerdict.LEAKING, run=leak.probe),
    Probe(name=idle.NOOP, accuses=AuditVerdict.EXPLOITABLE, run=idle.probe_noop),
    Probe(name=idle.STOP, accuses=AuditVerdict.EXPLOITABLE, run=idle.probe_stop),
    Probe(name=idle.DECLINE_ONLY, accuses=AuditVerdict.EXPLOITABLE, run=idle.probe_decline),
    Probe(name=chance.RANDOM, accuses=AuditVerdict.EXPLOITABLE, run=chance.probe_random),
    Probe(name=chance.JUNK, accuses=AuditVerdict.EXPLOITABLE, run=chance.probe_junk),
    Probe(name=constant.NAME, accuses=AuditVerdict.EXPLOITABLE, run=constant.probe),
    Probe(name=mutants.NAME, accuses=AuditVerdict.EXPLOITABLE, run=mutants.probe),
    Probe(name=numbers.NAME, accuses=AuditVerdict.EXPLOITABLE, run=numbers.probe),
    Probe(name=answers.ANSWERS, accuses=AuditVerdict.EXPLOITABLE, run=answers.probe_answers),
    Probe(name=answers.JUDGE, accuses=AuditVerdict.EXPLOITABLE, run=answers.probe_judge),
    Probe(name=residue.UNGRADABLE, accuses=AuditVerdict.EXPLOITABLE, run=residue.probe_ungradable),
    Probe(name=residue.CARRY_OVER, accuses=AuditVerdict.EXPLOITABLE, run=residue.probe_carry_over),
    Probe(name=equivalents.NAME, accuses=AuditVerdict.REFUSES_CORRECT_WORK, run=equivalents.probe),
    Probe(name=flake.NAME, accuses=AuditVerdict.FLAKY, run=flake.probe),
)
"""Probes of single tasks, in the order in which they run."""

REQUIRED: dict[str, AuditVerdict] = {
    **{probe.name: probe.accuses for probe in PROBES},
    regrade.NAME: AuditVerdict.FLAKY,
    ceiling.NAME: AuditVerdict.EXPLOITABLE,
}
"""Every probe that must have run before a task can be called sound, with what its barring findings accuse of."""
