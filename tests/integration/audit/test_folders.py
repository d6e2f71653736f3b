# ruff: noqa: E501 - the texts of small tasks
"""The verb on folders: evidence that replays from itself alone, resuming, and folders that are made to hurt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def needs_sandboxes(sandboxes: str) -> None:
    if sandboxes:
        pytest.skip(sandboxes)


def told(arguments: list[str], cwd: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of the command line, run as a program of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "flightschool.cli", *arguments, "--json"],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(cwd / "cache")},
    )
    return done.returncode, json.loads(done.stdout)


def test_evidence_replays_from_itself_alone_and_a_second_run_goes_on(kit: Any, tmp_path: Path) -> None:
    kit.write(tmp_path / "tasks/deep/presence", kit.flawed["presence"].files)
    kit.write(tmp_path / "tasks/broken-settings", {"task.toml": "= nonsense", "instruction.md": "x\n"})
    code, first = told(["audit", "./tasks", "--repeats", "3"], tmp_path)
    assert code == 1
    assert {row["id"]: row["verdict"] for row in first["tasks"]} == {
        "broken-settings": "unaudited",
        "deep/presence": "exploitable",
    }
    assert "cannot be read" in first["tasks"][0]["unaudited_because"]
    (finding,) = [one for one in first["tasks"][1]["findings"] if one["class"] == "presence-only"]
    assert finding["confirmed"]
    assert set(finding["evidence"]) >= {"script", "observed"}
    script = tmp_path / "evidence.sh"
    script.write_text(finding["evidence"]["script"])
    code, replayed = told(["rollout", "./tasks/deep/presence", "--policy", f"script:{script}", "-n", "1"], tmp_path)
    assert replayed["episodes"][0]["reward"]["total"] == 1.0
    code, again = told(["audit", "./tasks", "--repeats", "3"], tmp_path)
    assert code == 1
    assert again["tasks"][1] == first["tasks"][1], "kept, times included"
    (tmp_path / "tasks/deep/presence/instruction.md").write_text("Another text.\n")
    code, changed = told(["audit", "./tasks", "--repeats", "3"], tmp_path)
    assert changed["tasks"][1]["digest"] != first["tasks"][1]["digest"]


HURTS = {
    "hangs": "#!/bin/bash\nwhile :; do sleep 1; done\n",
    "forks": "#!/bin/bash\nf() { f | f & }; f; sleep 1; mkdir -p /logs/verifier; echo 0 > /logs/verifier/reward.txt\n",
    "fills": "#!/bin/bash\nhead -c 2G /dev/zero > /app/full; mkdir -p /logs/verifier; echo 0 > /logs/verifier/reward.txt\n",
    "says-nothing": "#!/bin/bash\ntrue\n",
}


def test_a_verifier_that_hurts_is_told_and_the_pool_goes_on(kit: Any, tmp_path: Path) -> None:
    toml = "[agent]\ntimeout_sec = 5\n[verifier]\ntimeout_sec = 3\n[environment]\nstorage_mb = 64\n"
    for name, text in HURTS.items():
        files = kit.task("", "", kit.sum_instruction, kit.sum_solution, text, toml=toml).files
        kit.write(tmp_path / "tasks" / name, files)
    kit.write(tmp_path / "tasks/without-tests", {k: v for k, v in kit.clean["sum"].files.items() if "tests" not in k})
    kit.write(tmp_path / "tasks/zz-presence", kit.flawed["presence"].files)
    code, found = told(["audit", "./tasks", "--repeats", "2"], tmp_path)
    assert code == 1
    verdicts = {row["id"]: row["verdict"] for row in found["tasks"]}
    assert verdicts.pop("zz-presence") == "exploitable"
    assert verdicts.pop("without-tests") in ("unaudited", "broken-oracle")
    assert set(verdicts.values()) <= {"broken-oracle", "unaudited"}, verdicts
    hanging = next(row for row in found["tasks"] if row["id"] == "hangs")
    assert "did not end within 3 s" in json.dumps(hanging["findings"])


def test_only_read_is_never_sound_and_runs_nothing(kit: Any, tmp_path: Path) -> None:
    kit.write(tmp_path / "sum", kit.clean["sum"].files)
    code, found = told(["audit", "./sum", "--static"], tmp_path)
    assert code == 1
    assert [(row["id"], row["verdict"], row["num_episodes"]) for row in found["tasks"]] == [("sum", "unaudited", 0)]
