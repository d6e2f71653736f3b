"""``audit``: one shape for environments and folders, and bad use is one error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

FIELDS = {"class", "severity", "confirmed", "evidence", "mend"}


def test_environments_speak_the_contract(run: Any, space: Path) -> None:
    tasks = [one["task"] for one in run("rollout", "desk", "--policy", "oracle", "-n", "1", "--json").json["episodes"]]
    spoken = run("audit", "desk", "--task", tasks[0], "--json")
    (row,) = spoken.json["tasks"]
    assert (row["id"], row["path"]) == (tasks[0], "desk")
    assert spoken.json["summary"]["num_tasks"] == 1
    assert spoken.code == (0 if row["verdict"] == "sound" else 1)
    assert all(set(found) >= FIELDS for found in row["findings"])


@pytest.mark.parametrize(
    "words",
    [
        ("audit", "./not-there"),
        ("audit", "desk", "./tasks"),
        ("audit", "desk", "--static"),
        ("audit", "desk", "--fix", "./fixed"),
        ("audit", "./empty"),
        ("audit", "./file.txt"),
        ("audit", "./empty", "--task", "a"),
    ],
)
def test_wrong_use_is_one_error_with_a_mend(words: tuple[str, ...], run: Any, space: Path) -> None:
    (space / "empty").mkdir()
    (space / "file.txt").write_text("x")
    spoken = run(*words, "--json")
    assert spoken.code == 2
    assert spoken.error["mend"]
