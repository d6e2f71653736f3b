"""The README's road for one's own traces: a trace file goes in, and nobody writes a line of Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import flightschool.environments.desk as desk_package
from flightschool.cli import main

pytestmark = pytest.mark.integration

RECORDED = Path(desk_package.__file__).parent / "traces" / "desk_chat.jsonl"
NUM_EPISODES = 60

CONFIG = """
[environment]
name = "my-agent"
[model]
name = "tiny"
[screening]
budget = 44
threshold = 0.05
[suite]
name = "checkride"
suite_fraction = 0.25
holdout_fraction = 0.1
trained = ["two_step"]
max_tasks_per_family = 1
max_tasks_untrained = 1
[imitation]
epochs = 1
learning_rate = 1e-4
[training]
num_steps = 1
groups_per_step = 1
group_size = 4
learning_rate = 3e-4
max_new_tokens = 40
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a file of recordings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLIGHTSCHOOL_KEYS", str(tmp_path / "keys"))
    assert main(["init", "."]) == 0
    lines = [
        line for line in RECORDED.read_text().splitlines() if json.loads(line)["metadata"]["stratum"] == "two_step"
    ]
    (tmp_path / "june.jsonl").write_text("\n".join(lines[:NUM_EPISODES]) + "\n")
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*words, "--json"]) == code
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_from_a_file_to_a_checked_environment(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported = said(capsys, "traces", "import", "june.jsonl", "--name", "june")
    assert imported["traces"]["num_episodes"] == NUM_EPISODES
    built = said(capsys, "env", "build", "--from-traces", "june", "--name", "my-agent")
    assert built["kind"] == "recordings"
    checked = said(capsys, "env", "check", "my-agent", "--folds", "2")
    assert checked["reads_reproduced"] == checked["writes_reproduced"] == 1.0
    assert checked["reference_score"] == 1.0
    assert checked["deterministic"] is checked["idempotent_reads"] is True
    assert checked["random_score"] == 0.0
    assert checked["label_agreement"] > 0.9
    assert checked["num_barring"] == 0
    assert set(checked["coverage"]) <= {"L1", "L2", "L3", "L4", "boundary"}
    assert sum(checked["coverage"].values()) == pytest.approx(1)
    assert checked["loo_reads"] < checked["reads_reproduced"]  # each task was recorded once, and there is no state
    assert checked["drift"] == []
    assert {"matched", "scaled", "ignored"} <= set(checked["wind_tunnel"])
    flown = said(capsys, "rollout", "my-agent", "--policy", "oracle", "-n", "10")
    assert [episode["reward"]["total"] > 0 for episode in flown["episodes"]] == [True] * 10
    idle = said(capsys, "rollout", "my-agent", "--policy", "noop", "-n", "10")
    assert not any(episode["reward"]["outcome"] for episode in idle["episodes"])


def test_an_expert_drafts_signs_and_rejects(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "traces", "import", "june.jsonl", "--name", "june")
    before = said(capsys, "env", "build", "--from-traces", "june", "--name", "my-agent")["digest"]
    (place / "said.txt").write_text("notify at most 3\nbe kind\n")
    drafted = said(capsys, "env", "draft-checks", "my-agent", "--statements", "said.txt")
    assert (place / "my-agent-drafts.toml").read_text().count('status = "draft"') == len(drafted["drafts"])
    assert said(capsys, "env", "show", "my-agent")["digest"] == before
    signed = said(capsys, "review", "sign", "my-agent", "statement-1", "--reason", "nobody reads more")
    assert signed["digest"] != before
    assert (
        said(capsys, "review", "reject", "my-agent", "statement-2", "--reason", "vague")["digest"] == signed["digest"]
    )
    refused = said(capsys, "review", "sign", "my-agent", "statement-2", "--reason", "again", code=2)
    assert "was rejected" in refused["error"]["what"]
    assert said(capsys, "review", "drafts", "my-agent")["num_open"] == len(drafted["drafts"]) - 2


@pytest.mark.slow
def test_from_a_file_to_a_trained_agent(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "traces", "import", "june.jsonl", "--name", "june")
    said(capsys, "env", "build", "--from-traces", "june", "--name", "my-agent")
    (place / "walk.toml").write_text(CONFIG)
    result = said(capsys, "train", "walk.toml")
    assert (place / "reports" / "walk.html").is_file()
    assert Path(result["model_after"]).is_dir()
