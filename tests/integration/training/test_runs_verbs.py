"""``runs show`` and ``runs export`` of a real (torch-free) training: from a figure to its episodes, and out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.integration.training.zygote import Zygote

from flightschool.cli import main
from flightschool.training.checking import faults

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with one finished training."""
    root = tmp_path_factory.mktemp("workspace")
    assert main(["init", str(root / "agent")]) == 0
    zygote = Zygote("fake")
    run_dir = root / "agent" / ".flightschool" / "runs" / "train-1"
    outcome = zygote.outcome(run_dir, zygote.start(run_dir, num_tasks=12, fault="flaky"))
    zygote.close()
    assert outcome["stopped"] == "source dry", outcome
    return root / "agent"


@pytest.fixture
def told(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:  # Any: a callable with a default
    monkeypatch.chdir(workspace)

    def run(*words: str, expected: int = 0) -> Any:  # Any: one JSON object
        capsys.readouterr()
        assert main([*words, "--json"]) == expected
        return json.loads(capsys.readouterr().out)

    return run


def test_a_figure_leads_to_its_episodes_and_their_messages(told: Any) -> None:
    shown = told("runs", "show", "train-1")
    assert [incident["kind"] for incident in shown["incidents"]] == ["retry"]
    step = shown["steps"][-1]
    behind = told("runs", "show", "train-1", "--step", str(step["step"]))
    assert behind["groups"] == step["groups"]
    rewards = [episode["reward"] for episode in behind["episodes"]]
    assert sum(rewards) / len(rewards) == pytest.approx(step["reward_total"])
    one = behind["episodes"][0]
    assert told("runs", "show", "train-1", "--episode", one["id"])["task"] == one["task"]
    assert "no step 99" in told("runs", "show", "train-1", "--step", "99", expected=2)["error"]["what"]
    assert "no episode" in told("runs", "show", "train-1", "--episode", "x", expected=2)["error"]["what"]


def test_an_episode_is_named_whole_on_a_narrow_terminal_and_found_by_that_name(
    told: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = str(told("runs", "show", "train-1")["steps"][-1]["step"])
    one = told("runs", "show", "train-1", "--step", step)["episodes"][0]
    monkeypatch.setattr("flightschool.cli.output.WIDTH_OF_LOGS", 80)
    assert main(["runs", "show", "train-1", "--step", step]) == 0
    name = one["id"].removeprefix("train-1:")
    assert f"\n {name} " in capsys.readouterr().err
    assert told("runs", "show", "train-1", "--episode", name)["id"] == one["id"]


def test_what_is_exported_is_whole(told: Any, tmp_path: Path) -> None:
    found = told("runs", "export", "train-1", "--out", str(tmp_path / "out"))
    assert found["groups"] >= 12
    assert found["num_trained_tokens"] > 0
    assert faults(tmp_path / "out", max_staleness=1, num_tasks=12) == []
    assert "exists" in told("runs", "export", "train-1", "--out", str(tmp_path / "out"), expected=2)["error"]["what"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["train-1"], "nothing to export"),
        (["nobody", "--out", "x"], "no training run"),
        (["train-1@2", "--out", "x"], "names weights of a step"),
        (["train-1@two", "--model", "x"], "names weights of a step"),
        (["train-1@999", "--model", "x"], "keeps no weights of step 999"),
    ],
)
def test_what_cannot_be_exported_is_said(told: Any, words: list[str], what: str) -> None:
    error = told("runs", "export", *words, expected=2)["error"]
    assert what in error["what"]
    assert error["mend"]
    assert not Path("x").exists()


def test_damaged_lines_are_told_and_the_rest_is_shown(told: Any, workspace: Path, tmp_path: Path) -> None:
    run_dir = workspace / ".flightschool" / "runs" / "train-1"
    names = ("metrics.jsonl", "incidents.jsonl", "credits.jsonl")
    whole = {name: (run_dir / name).read_bytes() for name in names}
    steps = told("runs", "show", "train-1")["steps"]
    try:
        for name, data in whole.items():  # a torn line that was glued to its successor, then one that was cut short
            (run_dir / name).write_bytes(b'{"incarnation":0,"v{"incarnation":0}\n' + data + b'{"incarn')
        shown = told("runs", "show", "train-1")
        assert shown["steps"] == steps
        assert [incident["kind"] for incident in shown["incidents"]] == ["retry"]
        assert len(shown["unreadable"]) == 2
        assert "line 1 of" in shown["unreadable"][0]
        exported = told("runs", "export", "train-1", "--out", str(tmp_path / "a"))
        assert len(exported["unreadable"]) == 1
        assert faults(tmp_path / "a", max_staleness=1, num_tasks=12) == []
        (run_dir / "credits.jsonl").write_bytes(b'{"incarnation":0,"v{"incarnation":0}\n')
        error = told("runs", "export", "train-1", "--out", str(tmp_path / "b"), expected=2)["error"]
        assert "which trained, are missing" in error["what"]
        assert "line 1 of" in error["expected"]
        assert error["mend"]
    finally:
        for name, data in whole.items():
            (run_dir / name).write_bytes(data)


def test_a_run_without_a_whole_checkpoint_is_listed_and_refused(told: Any, workspace: Path, tmp_path: Path) -> None:
    runs = workspace / ".flightschool" / "runs"
    broken = runs / "train-2"
    shutil.copytree(runs / "train-1", broken)
    try:
        (broken / "result.json").unlink()
        shutil.rmtree(broken / "model")
        shutil.rmtree(broken / "checkpoints", ignore_errors=True)
        (broken / "checkpoints" / "step-000002").mkdir(parents=True)
        (broken / "checkpoints" / "step-000002" / "manifest.json").write_text('{"run":"fake","inc')
        states = {run["id"]: run["state"] for run in told("runs", "list")["trainings"]}
        assert states == {"train-1": "finished", "train-2": "damaged"}
        for words in (("--out", str(tmp_path / "a")), ("--model", str(tmp_path / "b"))):
            error = told("runs", "export", "train-2", *words, expected=2)["error"]
            assert "step-000002 is damaged: manifest.json" in error["what"]
            assert all(error.values())
    finally:
        shutil.rmtree(broken)
