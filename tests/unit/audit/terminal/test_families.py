# ruff: noqa: E501 - the texts of small tasks
"""One flaw of many tasks is told once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightschool.audit.terminal import FlawFinding, FolderAudit
from flightschool.audit.terminal.families import group_by_flaw, normal_line
from flightschool.records import AuditVerdict, Severity


def audit(folder: Path, name: str, test: str, *findings: FlawFinding) -> FolderAudit:
    place = folder / name / "tests/test.sh"
    place.parent.mkdir(parents=True)
    place.write_text(test)
    return FolderAudit(id=name, path=str(folder / name), digest=name, verdict=AuditVerdict.SOUND, findings=findings)


def finding(flaw: str, where: str, **more: object) -> FlawFinding:
    fields: dict[str, object] = {
        "flaw": flaw, "severity": Severity.WARNING, "accuses": AuditVerdict.EXPLOITABLE, "what": "x", "where": where, **more,
    }  # fmt: skip
    return FlawFinding(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "normal"),
    [
        ('  if [ "$(cat /app/out/total)" = "2051" ]; then', "if [ S = S ]; then"),
        ("pytest /tests/test_x.py -rA | tee /logs/a.txt", "pytest P -n0 | tee P"),
        ("assert abs(total - 31.5) < eps", "assert abs(n0 - N) < n1"),
        ("assert total == total", "assert n0 == n0"),
        ("assert total == other", "assert n0 == n1"),
        ("", ""),
    ],
)
def test_lines_without_what_differs(line: str, normal: str) -> None:
    assert normal_line(line) == normal


@given(st.text(max_size=300))
def test_any_line_has_a_normal_form_that_does_not_grow_by_spaces(line: str) -> None:
    assert normal_line("  " + line + "\t ") == normal_line(line)


def test_a_shared_line_is_one_family(tmp_path: Path) -> None:
    audits = [
        audit(
            tmp_path,
            f"t{n}",
            f"#!/bin/bash\n# task {n}\npytest /tests/test_{n}.py | tee /logs/{n}\n",
            finding("swallowed-failure", "tests/test.sh:3"),
        )
        for n in range(7)
    ]
    audits.append(audit(tmp_path, "other", "echo 1 > /r\n", finding("swallowed-failure", "tests/test.sh:1")))
    audits += [audit(tmp_path, f"clean{n}", "true\n") for n in range(2)]
    (family,) = group_by_flaw(iter(audits))
    assert family.members == tuple(f"t{n}" for n in range(7))
    assert family.line == "pytest P | tee P"
    assert family.share == 0.7
    assert (family.num_confirmed, family.severity) == (0, Severity.WARNING)


def test_a_shared_file_is_one_family_and_the_gravest_severity_counts(tmp_path: Path) -> None:
    text = "one\ntwo\n"
    confirmed = {"confirmed": True, "severity": Severity.BARRING}
    audits = [
        audit(tmp_path, "a", text, finding("noop-passes", "tests/test.sh")),
        audit(tmp_path, "b", text, finding("noop-passes", "tests/test.sh", **confirmed)),
        audit(tmp_path, "c", text + "three\n", finding("noop-passes", "tests/test.sh")),
    ]
    (family,) = group_by_flaw(audits)
    assert family.members == ("a", "b")
    assert (family.num_confirmed, family.severity, family.example.confirmed) == (1, Severity.BARRING, True)


def test_classes_stay_apart_and_small_families_are_asked_for(tmp_path: Path) -> None:
    audits = [
        audit(tmp_path, "a", "x\n", finding("flaky", "tests/test.sh:1"), finding("noop-passes", "")),
        audit(tmp_path, "b", "x\n", finding("flaky", "tests/test.sh:1"), finding("copied-input", "")),
    ]
    assert [(f.flaw, f.members) for f in group_by_flaw(audits)] == [("flaky", ("a", "b"))]
    assert len(group_by_flaw(audits, least=1)) == 3
    assert group_by_flaw([]) == ()


def test_nothing_is_read_outside_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("pytest /x\n")
    audits = [audit(tmp_path, name, "x\n", finding("flaky", "../secret:1")) for name in "ab"]
    (family,) = group_by_flaw(audits)
    assert family.line == ""
    link = tmp_path / "a/tests/link"
    link.symlink_to(tmp_path / "secret")
    (family,) = group_by_flaw([audits[0], audit(tmp_path, "c", "x\n", finding("flaky", "tests/link:1"))], least=1)[:1]
    assert "pytest" not in family.line


TEMPLATE = """\
#!/bin/bash
mkdir -p /logs/verifier
got=$(cat /app/{0})
want="{1}"
score=0
if [ "$got" = "$want" ]; then score=1; fi
echo "$got is compared with $want"
echo $score > /logs/verifier/reward.txt
"""


def test_what_points_at_no_file_is_shared_by_tasks_with_the_same_tests(tmp_path: Path) -> None:
    """Three tasks that happen to have the same sentence said of them are none; members of one template are."""
    broken = finding("broken-oracle", "", accuses=AuditVerdict.BROKEN_ORACLE, what="The reference does not pass")
    apart = [audit(tmp_path, name, f"[ -e /app/{name} ]\n", broken) for name in ("a", "b", "c")]
    assert group_by_flaw(apart) == ()
    said = [
        finding("mutant-passes", "", what=f"/app/{name}: {number} became 7") for name, number in (("x", 1), ("y", 2))
    ]
    twins = [audit(tmp_path, f"t{at}", TEMPLATE.format(f"o{at}", at), one) for at, one in enumerate(said)]
    (family,) = group_by_flaw([*apart, *twins])
    assert (family.flaw, family.members, family.line) == ("mutant-passes", ("t0", "t1"), "")


def test_the_reference_is_part_of_what_it_is_accused_of(tmp_path: Path) -> None:
    broken = finding("broken-oracle", "", accuses=AuditVerdict.BROKEN_ORACLE, what="The reference does not pass")
    audits = [audit(tmp_path, name, TEMPLATE.format("o", 1), broken) for name in ("a", "b", "c")]
    for one, text in zip(audits, ("echo 1 > /app/o\n", "echo 1 > /app/o\n", "awk x > /app/o\n"), strict=True):
        place = Path(one.path, "solution/solve.sh")
        place.parent.mkdir()
        place.write_text(text)
    (family,) = group_by_flaw(audits)
    assert family.members == ("a", "b")


def test_without_tests_nothing_is_shared(tmp_path: Path) -> None:
    said = finding("broken-oracle", "", accuses=AuditVerdict.BROKEN_ORACLE)
    audits = [
        FolderAudit(id=name, path=str(tmp_path / name), digest=name, verdict=AuditVerdict.SOUND, findings=(said,))
        for name in "ab"
    ]
    assert group_by_flaw(audits) == ()
