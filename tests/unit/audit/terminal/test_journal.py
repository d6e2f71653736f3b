"""Finished audits are found again by digest, mode and version, also after a kill in the middle of a line."""

from __future__ import annotations

from pathlib import Path

from flightschool.audit.terminal.journal import Journal
from flightschool.audit.terminal.records import FolderAudit
from flightschool.records import AuditVerdict


def audit(id_: str, digest: str) -> FolderAudit:
    return FolderAudit(id=id_, path=f"/tasks/{id_}", digest=digest, verdict=AuditVerdict.SOUND)


def test_audits_are_found_again(tmp_path: Path) -> None:
    place = tmp_path / "below" / "journal"
    first = Journal(place, "run")
    first.add(audit("a", "1"))
    first.add(audit("b", "2"))
    again = Journal(place, "run")
    assert again.find("2", "b") == audit("b", "2")
    assert again.find("1", "a") == audit("a", "1")
    assert again.find("3", "a") is None, "the folder changed"
    assert Journal(place, "read").find("1", "a") is None, "only its text was to be read"


def test_a_line_cut_short_costs_that_line_only(tmp_path: Path) -> None:
    place = tmp_path / "journal"
    Journal(place, "run").add(audit("a", "1"))
    with place.open("ab") as file:
        file.write(b'{"auditor":1,"mode":"run","audit":{"id":"b"')
    again = Journal(place, "run")
    assert again.find("1", "a") is not None
    again.add(audit("c", "3"))
    assert again.find("3", "c") == audit("c", "3")
    assert Journal(place, "run").find("3", "c") == audit("c", "3")


def test_fresh_forgets(tmp_path: Path) -> None:
    place = tmp_path / "journal"
    Journal(place, "run").add(audit("a", "1"))
    assert Journal(place, "run", fresh=True).find("1", "a") is None
