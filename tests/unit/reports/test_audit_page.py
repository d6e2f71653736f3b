"""The page of an audit: verdicts, shared flaws, findings with evidence; whatever a task says of itself is escaped."""

from __future__ import annotations

from pathlib import Path

from flightschool.reports import (
    AuditedFolder,
    AuditPage,
    SharedFlaw,
    ShownFinding,
    ShownWaiver,
    render_audit,
    write_audit,
)
from flightschool.reports.audit_page import MOST_EVIDENCE, MOST_TASKS

EVIL = "<script>alert(1)</script>"


def shown(**fields: object) -> ShownFinding:
    made = {
        "flaw": "presence-only",
        "severity": "barring",
        "confirmed": True,
        "what": "junk passes",
        "observed": "reward 1",
        "evidence": "echo junk > /app/total.txt\n",
        "replay": "flightschool rollout ./tasks/a --policy script:evidence.sh -n 1",
        "mend": "compare the content",
    }
    return ShownFinding(**{**made, **fields})  # type: ignore[arg-type]


def folder(id_: str, verdict: str = "exploitable", *findings: ShownFinding) -> AuditedFolder:
    return AuditedFolder(id=id_, path=f"./tasks/{id_}", verdict=verdict, findings=findings)


def page(*tasks: AuditedFolder, **fields: object) -> AuditPage:
    made = {"pool": "./tasks", "created_at": "2026-11-30T12:00:00+00:00", "was_run": True, "tasks": tasks}
    return AuditPage(**{**made, **fields})  # type: ignore[arg-type]


def test_a_finding_stands_with_its_evidence_how_to_play_it_and_its_mend() -> None:
    text = render_audit(page(folder("a", "exploitable", shown()), folder("b", "sound")))
    for part in ("<b>1</b> exploitable", "<b>1</b> sound", "junk passes", "echo junk &gt; /app/total.txt", "reward 1"):
        assert part in text
    assert "flightschool rollout ./tasks/a --policy script:evidence.sh -n 1" in text
    assert "compare the content" in text
    assert "only read" not in text
    assert "only read" in render_audit(page(was_run=False))


def test_who_read_along_is_named() -> None:
    assert "read by proposer a, checker b" in render_audit(page(readers=("proposer a, checker b",)))
    assert "read by" not in render_audit(page())


def test_who_waived_what_and_why_stands_at_the_top_and_beside_the_task() -> None:
    waiver = ShownWaiver(name=f"Vera {EVIL}", reason=f"known {EVIL}", at="2026-11-30T12:00:00+00:00", tasks=("a", EVIL))
    task = AuditedFolder(id="a", path="./tasks/a", verdict="exploitable", findings=(shown(),), waived=True)
    text = render_audit(page(task, waivers=(waiver,)))
    assert "<script" not in text
    for part in ("Waived", "Vera", "“known", "2026-11-30T12:00:00+00:00", '<span class="tag warn">waived</span>'):
        assert part in text
    assert text.index("Vera") < text.index("junk passes")
    assert "aived" not in render_audit(page(folder("a", "exploitable", shown()))).split("</style>")[1]


def test_mutants_that_were_no_mutants_are_listed_apart() -> None:
    one = AuditedFolder(id="a", path="./tasks/a", verdict="sound", equivalent_mutants=("/app/o: keys in a row",))
    text = render_audit(page(one))
    assert "Equivalent mutants" in text
    assert "/app/o: keys in a row" in text
    assert "Equivalent mutants" not in render_audit(page(folder("b", "sound")))


def test_the_gravest_come_first_and_flaws_that_are_shared_are_told_once() -> None:
    family = SharedFlaw(
        flaw="reward-file-forging", line="tests/test.sh: echo 1", members=("a", "b"), share=1.0, num_confirmed=1
    )
    told = page(folder("a", "flaky", shown()), folder("b", "leaking", shown()), families=(family,))
    assert [task.id for task in told.shown] == ["b", "a"]
    text = render_audit(told)
    assert text.index("reward-file-forging") < text.index(">b <span")
    assert "100 %" in text


def test_what_tasks_say_is_text_and_long_pools_are_cut_with_a_count() -> None:
    text = render_audit(page(folder(EVIL, "exploitable", shown(what=EVIL, observed=EVIL, evidence=EVIL, mend=EVIL))))
    assert "<script" not in text
    many = [
        folder(f"t{number}", "flaky", shown(evidence="x" * (MOST_EVIDENCE + 7))) for number in range(MOST_TASKS + 3)
    ]
    text = render_audit(page(*many))
    assert "3 more tasks with findings" in text
    assert "7 more characters" in text


def test_it_is_written_whole(tmp_path: Path) -> None:
    write_audit(page(), tmp_path / "below/audit.html")
    assert (tmp_path / "below/audit.html").read_text().endswith("</html>")
    assert [place.name for place in (tmp_path / "below").iterdir()] == ["audit.html"]
