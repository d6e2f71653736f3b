"""The seen half: flawed tasks are told by verdict and class, clean ones stay clean. The whole runs by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flightschool.audit.terminal import FolderAudit, audit_folders
from flightschool.environments.terminal import iter_tasks

pytestmark = [pytest.mark.integration, pytest.mark.long]

SAMPLE = ("noop", "leak-file", "broken")


def audits(kit: Any, folder: Path, images: Path, names: list[str]) -> dict[str, FolderAudit]:
    for name in names:
        kit.place(folder / "tasks" / name, kit.flawed.get(name) or kit.clean[name])
    found: dict[str, FolderAudit] = {}
    audit_folders(iter_tasks(folder / "tasks"), images=images, on_audit=lambda one: found.update({one.id: one}))
    return found


def wrong(kit: Any, found: dict[str, FolderAudit]) -> list[str]:
    """Tasks that were judged otherwise than their label says."""
    told = []
    for name, audit in found.items():
        label = kit.flawed.get(name) or kit.clean[name]
        shown = {one.flaw for one in audit.findings if one.severity.value == "barring"}
        if audit.verdict.value != label.verdict or (label.flaws and not label.flaws & shown):
            told.append(
                f"{name}: {audit.verdict.value} {sorted(shown)} instead of {label.verdict} {sorted(label.flaws)}"
            )
    return told


def test_a_sample(kit: Any, tmp_path: Path, images: Path) -> None:
    found = audits(kit, tmp_path, images, [*SAMPLE, "sum"])
    assert wrong(kit, found) == []
    assert found["sum"].num_repeats == 20
    assert round(found["sum"].flake_bound, 3) == 0.139
    for audit in found.values():
        for one in audit.findings:
            assert one.mend
            assert one.confirmed or one.severity.value != "barring"
    assert "/app/data/.cache/total.expected" in found["leak-file"].findings[0].script, "it reads, and knows nothing"
    assert "10571" not in found["leak-file"].findings[0].script


def test_a_sample_of_what_inputs_and_words_show(kit: Any, tmp_path: Path, images: Path) -> None:
    """Flawed and clean twins: a unit that is left open and one that is named, an answer in pieces."""
    found = audits(kit, tmp_path, images, ["unit", "any-unit", "pieces"])
    assert wrong(kit, found) == []
    [refused] = [one for one in found["unit"].findings if one.severity.value == "barring"]
    assert "80 s" in refused.script, "it replays from itself alone"


@pytest.mark.slow
def test_the_whole_seen_half(kit: Any, tmp_path: Path, images: Path) -> None:
    found = audits(kit, tmp_path, images, [*kit.flawed, *(name for name in kit.clean if name not in kit.flawed)])
    assert wrong(kit, found) == []
