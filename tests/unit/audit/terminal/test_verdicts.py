"""One verdict a folder, what reading and running say together, and the exact bound of a flake rate."""

from __future__ import annotations

import math

import pytest
from tests import needs

from flightschool.audit.terminal.advice import MENDS
from flightschool.audit.terminal.flaws import FLAWS
from flightschool.audit.terminal.merging import merged
from flightschool.audit.terminal.probes.reference import flake_bound
from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.verdicts import folder_verdict
from flightschool.records import AuditVerdict, Severity


def found(flaw: str, *, confirmed: bool = True, severity: Severity = Severity.BARRING, where: str = "") -> FlawFinding:
    script = "#!/bin/sh\n:\n" if confirmed else ""
    return FlawFinding(
        flaw=flaw,
        severity=severity,
        accuses=FLAWS[flaw].accuses,
        what="x",
        confirmed=confirmed,
        where=where,
        script=script,
    )


def test_the_gravest_accusation_wins() -> None:
    every = [found("locale-dependence"), found("noop-passes"), found("answer-in-view"), found("flaky")]
    assert folder_verdict(every, unaudited=False) is AuditVerdict.LEAKING
    assert folder_verdict(every[:2], unaudited=True) is AuditVerdict.EXPLOITABLE
    assert folder_verdict([found("broken-oracle"), *every], unaudited=False) is AuditVerdict.BROKEN_ORACLE
    assert folder_verdict([], unaudited=True) is AuditVerdict.UNAUDITED
    assert folder_verdict([], unaudited=False) is AuditVerdict.SOUND


def test_warnings_and_unexecuted_exploits_accuse_no_one() -> None:
    assert folder_verdict([found("noop-passes", severity=Severity.WARNING)], unaudited=False) is AuditVerdict.SOUND
    assert folder_verdict([found("noop-passes", confirmed=False)], unaudited=False) is AuditVerdict.SOUND


def test_a_suspicion_that_was_not_shown_warns_and_says_why() -> None:
    (one,) = merged([found("pytest-hook", confirmed=False)], [], was_run=True)
    assert one.severity is Severity.WARNING
    assert "not shown" in one.observed


def test_a_suspicion_that_a_shown_attack_explains_is_shown_too() -> None:
    both = merged(
        [found("swallowed-failure", confirmed=False, where="tests/test.sh:4")], [found("noop-passes")], was_run=True
    )
    assert [(one.flaw, one.confirmed) for one in both] == [("noop-passes", True), ("swallowed-failure", True)]
    assert both[1].script == both[0].script


def test_the_same_class_is_told_once_with_its_place() -> None:
    (one,) = merged(
        [found("noop-passes", confirmed=False, where="tests/test.sh:4")], [found("noop-passes")], was_run=True
    )
    assert (one.where, one.confirmed) == ("tests/test.sh:4", True)


def test_a_leak_that_was_read_bars_without_being_run() -> None:
    (one,) = merged([found("answer-in-view", confirmed=False)], [], was_run=True)
    assert one.severity is Severity.BARRING


@pytest.mark.parametrize(("failures", "runs"), [(0, 20), (1, 20), (3, 7), (5, 40)])
def test_flake_bound_is_where_so_few_failures_become_unlikely(failures: int, runs: int) -> None:
    bound = flake_bound(failures, runs)
    few = math.fsum(math.comb(runs, k) * bound**k * (1 - bound) ** (runs - k) for k in range(failures + 1))
    assert few == pytest.approx(0.05, abs=1e-9)


@pytest.mark.parametrize(("failures", "runs"), [(1, 20), (3, 7)])
def test_flake_bound_is_the_quantile_of_a_beta_distribution(failures: int, runs: int) -> None:
    beta = needs.package("scipy.stats").beta
    assert flake_bound(failures, runs) == pytest.approx(beta.ppf(0.95, failures + 1, runs - failures), abs=1e-9)


def test_flake_bound_by_hand() -> None:
    assert flake_bound(0, 20) == pytest.approx(1 - 0.05 ** (1 / 20))
    assert round(flake_bound(0, 20), 3) == 0.139
    assert flake_bound(0, 0) == flake_bound(4, 4) == 1.0


def test_every_class_has_advice() -> None:
    assert set(MENDS) == set(FLAWS)
