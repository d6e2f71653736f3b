"""Tasks with one flaw each that one attack shows, and what is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.audit.labelled import Labelled, by_pytest

from flightschool.audit.terminal import FlawFinding, FolderAudit, audit_folders
from flightschool.environments.terminal import iter_tasks

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture
def audited(kit: Any, tmp_path: Path, images: Path) -> Any:
    """Audits one task."""

    def run(labelled: Labelled) -> FolderAudit:
        kit.place(tmp_path / "tasks/one", labelled)
        found: list[FolderAudit] = []
        audit_folders(iter_tasks(tmp_path / "tasks"), images=images, repeats=3, on_audit=found.append)
        return found[0]

    return run


def barring(audit: FolderAudit, flaw: str) -> FlawFinding:
    """The finding of a class that bars."""
    (found,) = [one for one in audit.findings if one.flaw == flaw and one.severity.value == "barring"]
    return found


def test_a_plugin_beside_the_work_decides_where_settings_and_hooks_are_shut_out(audited: Any) -> None:
    """``-c /dev/null --noconftest`` keeps settings out; a package beside the work is found all the same."""
    audit = audited(by_pytest("exploitable", "pytest-hook", "cd /app && PYTHONPATH=/tests/lib python3"))
    found = barring(audit, "pytest-hook")
    assert "plugin" in found.what
    assert "pytest11" in found.script
