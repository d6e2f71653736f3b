"""Files that go into `env build` and `env import`, written by somebody careless: one error each, with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flightschool.cli import main

TOOL = '{"responses_create_params": {"input": "x", "tools": %s}}'


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "."]) == 0
    assert main(["traces", "import", "traces/example.jsonl", "--name", "mine"]) == 0
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(["env", *words, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert "unexpected" not in error["what"]
    assert error["expected"]
    return f"{error['what']} at {error['where']}"


@pytest.mark.parametrize(
    ("option", "text", "told"),
    [
        ("--code", "raise SystemExit(3)", "SystemExit"),
        ("--checks", "a = " + "[" * 5000, "not valid TOML"),
        ("--checks", "[[", "not valid TOML"),
    ],
)
def test_what_a_build_is_given(
    workspace: Path, capsys: pytest.CaptureFixture[str], option: str, text: str, told: str
) -> None:
    path = workspace / ("odd.py" if option == "--code" else "odd.toml")
    path.write_text(text)
    said = refused(capsys, "build", "--from-traces", "mine", "--name", "shop", option, str(path))
    assert told in said
    assert str(path) in said


def test_a_name_that_no_folder_can_have(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot be named" in refused(capsys, "build", "--from-traces", "mine", "--name", "n" * 300)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 100_000, "no JSON"),
        (TOOL % "5", "tools that are none"),
        (TOOL % "[3]", "tools that are none"),
        (TOOL % '[{"name": "t", "parameters": 5}]', "tools that are none"),
    ],
)
def test_rows_of_nemo_gym(workspace: Path, capsys: pytest.CaptureFixture[str], text: str, told: str) -> None:
    path = workspace / "rows.jsonl"
    path.write_text(text + "\n")
    words = ("import", "http://127.0.0.1:9", "--format", "nemo-gym", "--tasks", str(path), "--name", "x")
    assert f"{told}" in refused(capsys, *words)


@pytest.mark.parametrize("format_name", ["verifiers", "gymnasium"])
def test_knobs_that_are_nested_too_deeply(
    workspace: Path, capsys: pytest.CaptureFixture[str], format_name: str
) -> None:
    (workspace / "knobs.toml").write_text("a = " + "[" * 5000)
    words = ("import", "x", "--format", format_name, "--knobs", "knobs.toml", "--name", "x")
    assert "cannot be read" in refused(capsys, *words)


def test_recordings_may_be_left_out_of_a_package(workspace: Path) -> None:
    words = ("env", "build", "--from-traces", "mine", "--name", "shop", "--state", "state")
    assert main([*words]) == 0
    assert (workspace / "environments/shop/episodes.jsonl").is_file()
    assert main([*words, "--no-episodes"]) == 0
    assert not (workspace / "environments/shop/episodes.jsonl").exists()
    assert main(["env", "export", "shop", "--out", "carried", "--no-episodes"]) == 0
    assert main(["env", "import", "carried", "--name", "again"]) == 0
    assert main(["env", "check", "again", "--folds", "0"]) == 0
