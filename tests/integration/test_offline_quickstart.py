"""The main job without any download, through the command line: killed half-way, run again, looked at."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flightschool.evaluation import EvaluationRun, load_run
from flightschool.governance import AuditLog
from flightschool.records import Attempt
from flightschool.store import Workspace
from flightschool.training import read_run
from flightschool.training.folders import RunFolder
from flightschool.training.journal import Finished, read_journal

pytestmark = [pytest.mark.integration, pytest.mark.long]

NUM_STEPS = 3
PATIENCE_S = 600.0
FIGURES = {
    "success_before",
    "success_after",
    "success_at_start",
    "num_demonstrations",
    "gain_low",
    "gain_high",
    "perturbed_before",
    "perturbed_after",
    "greedy_before",
    "greedy_after",
    "violations_before",
    "violations_after",
    "wall_s",
}
PLACES = {"run", "suite", "model_before", "model_after", "report"}
LOADS = re.compile(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//|@import|url\(\s*["']?(?:https?:)?//""", re.IGNORECASE)
"""What makes a browser fetch something from elsewhere."""


def start(workspace: Path) -> subprocess.Popen[str]:
    words = ["--json", "quickstart", "--offline", "--workspace", str(workspace), "--steps", str(NUM_STEPS)]
    return command(*words, cwd=workspace.parent)


def command(*words: str, cwd: Path) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "FLIGHTSCHOOL_CACHE": str(cwd / "no-cache"),
        "PIP_NO_INDEX": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "flightschool.cli", *words],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, complaint = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, complaint
    result: dict[str, Any] = json.loads(out)
    return result


def run_folder(workspace: Path) -> RunFolder | None:
    folders = [path.parent for path in (workspace / ".flightschool" / "runs").glob("quickstart-*/run.json")]
    return RunFolder(folders[0]) if folders else None


def wait_for_a_finished_group(process: subprocess.Popen[str], workspace: Path) -> None:
    """Until training is under way: an episode group was written to the journal."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        folder = run_folder(workspace)
        if folder is not None and folder.journal.exists() and finished_groups(folder):
            return
        time.sleep(0.05)
    process.kill()
    raise AssertionError(f"training never began: {process.communicate()[1]}")


def finished_groups(folder: RunFolder) -> list[str]:
    return [entry.group.id for entry in read_journal(folder.journal) if isinstance(entry, Finished)]


@pytest.fixture(scope="module")
def killed_then_finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[str]]:
    """Workspace, what the second call printed, and the groups that the first had finished."""
    workspace = tmp_path_factory.mktemp("offline") / "quickstart"
    first = start(workspace)
    wait_for_a_finished_group(first, workspace)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    folder = run_folder(workspace)
    assert folder is not None
    assert not folder.result.exists()
    before = finished_groups(folder)
    return workspace, finish(start(workspace)), before


def test_the_job_goes_on_after_a_kill_and_ends_well(
    killed_then_finished: tuple[Path, dict[str, Any], list[str]],
) -> None:
    workspace, printed, before = killed_then_finished
    kept = json.loads((workspace / "quickstart.json").read_text())
    assert kept.keys() >= (FIGURES | PLACES)
    assert {key: printed[key] for key in FIGURES | PLACES} == {key: kept[key] for key in FIGURES | PLACES}
    assert all(0.0 <= kept[key] <= 1.0 for key in ("success_before", "success_after", "perturbed_after"))
    assert kept["gain_low"] <= kept["success_after"] - kept["success_before"] <= kept["gain_high"]
    assert (Path(kept["model_after"]) / "model.safetensors").is_file()
    folder = run_folder(workspace)
    assert folder is not None
    groups = finished_groups(folder)
    assert set(before) <= set(groups)
    assert len(groups) == len(set(groups))
    cached = {path.name for path in (workspace.parent / "no-cache").glob("*")}
    assert cached <= {"native"}, "nothing was fetched: only kernels and launcher, compiled here, may lie there"


def test_the_report_needs_no_network(killed_then_finished: tuple[Path, dict[str, Any], list[str]]) -> None:
    report = Path(killed_then_finished[1]["report"]).read_text(encoding="utf-8")
    markup = re.sub(r"<script\b.*?</script>", "", report, flags=re.DOTALL)  # plotly's own code names its home page
    assert "<html" in report
    assert "Scan of the attempts" in report
    assert "Share of the variance of advantages within groups" in report
    assert not LOADS.search(markup)
    assert not re.search(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)\s*=\s*[\"']?(?:https?:)?//", report)


def test_an_attempt_of_the_measurement_is_replayed_byte_for_byte(
    killed_then_finished: tuple[Path, dict[str, Any], list[str]],
) -> None:
    workspace, printed, _ = killed_then_finished
    with Workspace.find(workspace) as space:
        measured = space.store.get("evaluation", f"{printed['run']}-after-perturbed", EvaluationRun)
        attempts = [attempt for _, attempt in space.store.items("attempt", Attempt, f"{measured.id}:")]
    longest = max(attempts, key=lambda attempt: len(attempt.events))
    told = finish(command("--json", "runs", "replay", longest.id, cwd=workspace))
    assert (told["id"], told["identical"]) == (longest.id, True)


def test_the_run_cites_the_log_that_holds_the_freeze_and_the_check_of_lineage(
    killed_then_finished: tuple[Path, dict[str, Any], list[str]],
) -> None:
    workspace, printed, _ = killed_then_finished
    folder = run_folder(workspace)
    assert folder is not None
    with Workspace.find(workspace) as space:
        entries = list(AuditLog(space.store).entries())
        measured = load_run(space.store, f"{printed['run']}-after-clean")  # as the log saw it
    places = {entry.digest: entry.index for entry in entries}
    cited = places[read_run(folder.root).log_head]
    freezes = [entry.index for entry in entries if entry.action == "freeze suite"]
    checks = [entry for entry in entries if entry.action == "lineage check"]
    assert freezes
    assert max(freezes) < checks[0].index <= cited
    assert all("none is kin" in line for line in checks[0].detail["compared"])
    assert places[measured.log_head] >= cited


def test_the_same_job_again_changes_nothing(killed_then_finished: tuple[Path, dict[str, Any], list[str]]) -> None:
    workspace, printed, _ = killed_then_finished
    again = finish(start(workspace))
    figures = (FIGURES | PLACES) - {"wall_s"}
    assert {key: again[key] for key in figures} == {key: printed[key] for key in figures}
