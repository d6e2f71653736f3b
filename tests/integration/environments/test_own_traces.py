"""The README's road for one's own traces: a trace file goes in, and nobody writes a line of Python."""

from __future__ import annotations

import json
import re
import shlex
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
name = "shop"
traces = "orders.jsonl"
[model]
name = "tiny"
[screening]
budget = 96
[suite]
name = "checkride"
suite_fraction = 0.25
holdout_fraction = 0.1
trained = ["cancel"]
max_tasks_per_family = 2
[imitation]
epochs = 20
learning_rate = 3e-4
[training]
num_steps = 2
groups_per_step = 2
group_size = 4
learning_rate = 3e-4
max_new_tokens = 40
"""

ASKED = (
    "Please cancel order {}.", "Stop order {} now.", "I no longer want {}.", "Drop the order {} for me.",
    "Call off {} today.", "We must undo order {}.", "Kindly void {}.", "Take {} back.", "Remove my order {}.",
    "End order {} at once.", "Nobody needs {} any more.", "Withdraw order {} please.",
)  # fmt: skip


def cancelling(number: int) -> dict[str, Any]:
    """One recorded episode of a small shop: six orders in each of twelve wordings."""
    order, family = f"{'ABCDEFGH'[3 * number % 8]}{11 + number}", number // 6
    function = {"name": "cancel_order", "arguments": json.dumps({"order": order})}
    answer = {"order": order, "state": "cancelled"}
    return {
        "messages": [
            {"role": "system", "content": "Cancel orders."},
            {"role": "user", "content": ASKED[family].format(order)},
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "c", "content": json.dumps(answer)},
            {"role": "assistant", "content": "Done."},
        ],
        "metadata": {"task": f"t{number}", "family": f"f{family}", "stratum": "cancel", "success": True},
    }


@pytest.fixture
def place(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a file of recordings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLIGHTSCHOOL_KEYS", str(tmp_path_factory.mktemp("keys")))
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
    (place / "orders.jsonl").write_text("".join(json.dumps(cancelling(n)) + "\n" for n in range(72)))
    (place / "walk.toml").write_text(CONFIG)
    result = said(capsys, "train", "walk.toml")
    assert result["success_before"] == 0.0
    assert result["success_after"] > 0.5
    assert (place / "reports" / "walk.html").is_file()


def walk() -> list[list[str]]:
    """The commands of the README's section, in order."""
    text = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Your own agent")[2].partition("\n## ")[0]
    lines = [line for block in re.findall(r"```console\n(.*?)```", section, re.DOTALL) for line in block.splitlines()]
    return [shlex.split(line.removeprefix("$ ")) for line in lines]


@pytest.mark.long
def test_the_readme_goes_from_a_file_to_a_trained_agent(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every command of the walk, as it stands there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLIGHTSCHOOL_KEYS", str(tmp_path_factory.mktemp("keys")))
    monkeypatch.setenv("FLIGHTSCHOOL_CACHE", str(tmp_path / "no-cache"))  # no model but the one that ships
    told: dict[str, dict[str, Any]] = {}
    for line in walk():
        if line[0] == "cd":
            monkeypatch.chdir(line[1])
            continue
        words = [word.replace("RUN", told["train"]["run"]) if line[1] == "rollout" else word for word in line]
        told[" ".join(words[1:3]) if words[1] in ("env", "traces") else words[1]] = said(capsys, *words[1:])
    assert list(told) == ["init", "traces import", "env build", "env check", "env draft-checks", "train", "rollout"]
    assert (Path(told["env build"]["package"]) / "env.toml").is_file()
    assert told["env check"]["reads_reproduced"] == told["env check"]["writes_reproduced"] == 1.0
    trained = told["train"]
    assert trained["num_demonstrations"] > 0  # the recordings, whatever the set and the environment are called
    assert trained["success_before"] == 0.0
    assert trained["gain_low"] > 0.0  # twelve tasks: the interval is wide, and lies above zero
    assert Path("reports/train.html").is_file()
    assert len(told["rollout"]["episodes"]) == 8
    assert told["rollout"]["policy"] == f"run:{trained['run']}"
