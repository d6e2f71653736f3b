"""What readers said of a content outlives an audit of it without readers."""

from __future__ import annotations

from msgspec.structs import replace

from flightschool.audit.terminal.examination import Play
from flightschool.audit.terminal.proposing.standing import unread_copy, with_reading
from flightschool.audit.terminal.records import FlawFinding, FolderAudit
from flightschool.audit.terminal.trial import finding
from flightschool.audit.terminal.verdicts import folder_verdict
from flightschool.records import Severity


def found(flaw: str, what: str, severity: Severity = Severity.BARRING) -> FlawFinding:
    return finding(flaw, what, Play(reward=1.0), "true\n", severity=severity)


def audit(*findings: FlawFinding, readers: str = "", digest: str = "d", unaudited: str = "") -> FolderAudit:
    verdict = folder_verdict(findings, unaudited=bool(unaudited))
    return FolderAudit(
        id="one",
        path="tasks/one",
        digest=digest,
        verdict=verdict,
        findings=findings,
        readers=readers,
        unaudited_because=unaudited,
        notes=("seen",),
    )


CHOICE = found("one-of-many", "right work is refused: the other pair")
READ = audit(CHOICE, readers="proposer m, checker m")


def test_silence_of_the_probes_clears_nothing() -> None:
    kept = with_reading(audit(), READ)
    assert (kept.verdict, kept.findings, kept.readers) == ("refuses-correct-work", (CHOICE,), READ.readers)
    assert kept.notes == ("seen",)


def test_what_readers_dropped_is_not_raised_again() -> None:
    accused = found("mutant-passes", "a mutant passes")
    dropped = audit(replace(accused, severity=Severity.WARNING), readers="m")
    assert with_reading(audit(accused), dropped).verdict == "sound"


def test_what_the_probes_find_anew_is_added() -> None:
    kept = with_reading(audit(found("noop-passes", "doing nothing passes")), READ)
    assert (kept.verdict, len(kept.findings)) == ("exploitable", 2)


def test_a_failed_examination_acquits_no_one() -> None:
    assert with_reading(audit(unaudited="no sandbox"), replace(READ, findings=())).verdict == "unaudited"


def test_what_stands_for_itself() -> None:
    fresh = audit(readers="other")
    assert with_reading(fresh, READ) is fresh
    plain = audit()
    assert with_reading(plain, None) is plain
    assert with_reading(plain, audit(CHOICE)) is plain, "nobody read the earlier one"
    assert with_reading(plain, replace(READ, digest="another")) is plain


def test_a_copy_that_nobody_read_is_not_cleared() -> None:
    copy = audit(digest="copy")
    told = unread_copy(copy, READ)
    assert (told.verdict, "--proposer" in told.unaudited_because) == ("unaudited", True)
    assert unread_copy(copy, audit()) is copy
    read = replace(copy, readers="m")
    assert unread_copy(read, READ) is read
