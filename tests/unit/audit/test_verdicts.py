from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.audit import REQUIRED, ProbeReport, environment_wide, verdict_of
from flightschool.audit.probes.ceiling import findings, habit_scores
from flightschool.records import AuditVerdict, Finding, Severity, TaskAudit

REQUIRE = {"oracle": AuditVerdict.BROKEN_ORACLE, "leak": AuditVerdict.LEAKING, "flake": AuditVerdict.FLAKY}


def finding(probe: str, severity: Severity = Severity.BARRING, what: str = "wrong") -> Finding:
    return Finding(probe=probe, severity=severity, what=what)


def report(probe: str, *findings_: Finding, error: str = "") -> ProbeReport:
    return ProbeReport(probe=probe, findings=findings_, error=error)


def test_only_a_complete_and_silent_examination_is_sound() -> None:
    silent = [report(probe) for probe in REQUIRE]
    assert verdict_of(silent, REQUIRE) is AuditVerdict.SOUND
    assert verdict_of(silent[:-1], REQUIRE) is AuditVerdict.UNAUDITED
    assert verdict_of([*silent[:-1], report("flake", error="died")], REQUIRE) is AuditVerdict.UNAUDITED
    assert verdict_of([], REQUIRE) is AuditVerdict.UNAUDITED


def test_warnings_accuse_of_nothing() -> None:
    told = [report(probe, finding(probe, Severity.WARNING)) for probe in REQUIRE]
    assert verdict_of(told, REQUIRE) is AuditVerdict.SOUND


@settings(max_examples=50, deadline=None)
@given(st.sets(st.sampled_from(sorted(REQUIRED))), st.sets(st.sampled_from(sorted(REQUIRED))))
def test_the_gravest_accusation_wins(accusing: set[str], missing: set[str]) -> None:
    reports = [report(p, *([finding(p)] if p in accusing else [])) for p in REQUIRED if p not in missing]
    accused = {REQUIRED[p] for p in accusing - missing} | ({AuditVerdict.UNAUDITED} if missing else set())
    order = list(AuditVerdict)
    assert verdict_of(reports, REQUIRED) is min(accused, key=order.index, default=AuditVerdict.SOUND)


def audit(task: str, *findings_: Finding) -> TaskAudit:
    return TaskAudit(
        environment="e",
        task=task,
        task_digest=task,
        verifier_digest="v",
        verdict=AuditVerdict.EXPLOITABLE if findings_ else AuditVerdict.SOUND,
        findings=findings_,
    )


def test_a_finding_of_the_environment_concerns_every_task() -> None:
    one = finding("environment.ceiling", what="habit scores .4")
    assert environment_wide([audit("a", one), audit("b", one), audit("c")]) == (one,)


def test_a_probe_that_bars_half_of_the_tasks_suspects_the_environment() -> None:
    audits = [audit(str(n), finding("leak")) for n in range(4)] + [audit(str(n)) for n in range(4, 8)]
    assert [f.probe for f in environment_wide(audits)] == ["leak"]
    assert environment_wide(audits[1:]) == ()  # three of seven
    assert environment_wide(audits[:3]) == ()  # three tasks are no environment


def test_habits_are_weighted_by_traffic() -> None:
    rows = [("a", {"a": True, "b": False}), ("a", {"a": False, "b": False}), ("b", {"a": True, "b": True})]
    shares = {"a": 0.6, "b": 0.4}
    assert habit_scores(rows, shares) == {"a": 0.6 * 0.5 + 0.4, "b": 0.4}
    assert set(findings(rows, shares)) == {"a"}  # .7 is above .6; .4 is not above .4
