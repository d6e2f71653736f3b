"""The contract of every verb: help with an example, ``--json``, exit codes, one error with its mend."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flightschool.cli import command_tree, output
from flightschool.errors import InfrastructureError

Run = Callable[..., Any]


def verbs(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, below in getattr(command, "commands", {}).items():
        if getattr(below, "commands", None):
            yield from verbs(below, (*path, name))
        else:
            yield (*path, name), below


VERBS = dict(verbs(command_tree()))


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_every_verb_helps_with_an_example(words: tuple[str, ...], run: Run) -> None:
    spoken = run(*words, "--help")
    assert spoken.code == 0
    text = re.sub(r"\s+", " ", spoken.out)
    assert f"Example: flightschool {' '.join(words)}" in text
    assert "--json" in text
    assert not re.search("[\U0001f000-\U0001faff]", text), "a name was read as an emoji"


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_examples_in_help_use_options_that_exist(words: tuple[str, ...]) -> None:
    command = VERBS[words]
    options = {name for parameter in command.params for name in parameter.opts}
    assert set(re.findall(r"(?<= )--?[a-z-]+", command.epilog)) <= options


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_unknown_option_is_one_error_with_the_nearest_name(words: tuple[str, ...], run: Run) -> None:
    spoken = run(*words, "--jsn", "--json")
    assert spoken.code == 2
    assert spoken.error["what"] == "unknown option '--jsn'"
    assert spoken.error["where"] == "flightschool " + " ".join(words)
    assert spoken.error["mend"] == "did you mean '--json'?"


def test_unknown_verbs_name_the_nearest(run: Run) -> None:
    error = run("--json", "rolout", "desk").error
    assert error["what"] == "unknown verb 'rolout'"
    assert error["mend"] == "did you mean 'rollout'?"
    below = run("traces", "imprt", "--json")
    assert below.code == 2
    assert below.error["where"] == "flightschool traces"
    assert below.error["mend"] == "did you mean 'import'?"


def test_missing_argument_and_option_are_named(run: Run) -> None:
    missing = run("rollout", "--policy", "noop", "--json")
    assert missing.code == 2
    assert missing.error["what"] == "E is missing"
    option = run("rollout", "desk", "--json")
    assert option.code == 2
    assert option.error["what"] == "--policy is missing"


def test_wrong_value_says_where(run: Run) -> None:
    spoken = run("rollout", "desk", "--policy", "noop", "-n", "0", "--json")
    assert spoken.code == 2
    assert spoken.error["where"] == "flightschool rollout --num"
    assert "greater than or equal to 1" in spoken.error["what"]
    assert run("rollout", "desk", "--policy", "noop", "-n", "many", "--json").code == 2


def test_no_verb_shows_help_and_is_wrong_use(run: Run) -> None:
    assert run().code == 2
    assert run("--json").error["what"] == "no verb was given"
    assert run("traces", "--json").error["where"] == "flightschool traces"


def test_version(run: Run) -> None:
    assert run("--version").out.startswith("flightschool ")


def test_without_json_the_error_stands_on_stderr_alone(run: Run) -> None:
    spoken = run("rollout", "desk", "--polcy", "noop")
    assert spoken.code == 2
    assert spoken.out == ""
    assert spoken.err.splitlines()[0] == "error: unknown option '--polcy'"
    assert "mend: did you mean '--policy'?" in spoken.err


def test_outside_a_workspace_is_exit_2_with_the_mend(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spoken = run("runs", "list", "--json")
    assert spoken.code == 2
    assert "flightschool init" in spoken.error["mend"]


def test_workspace_of_another_version_is_refused(run: Run, space: Path) -> None:
    (space / "flightschool.toml").write_text("schema_version = 99\n", encoding="utf-8")
    spoken = run("runs", "list", "--json")
    assert spoken.code == 2
    assert "another version" in spoken.error["what"]


def test_defect_goes_to_a_file_and_is_one_line(run: Run, space: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError("a defect\nwith a second line")

    monkeypatch.setattr("flightschool.cli.doctor.examine", broken)
    spoken = run("doctor", "--json")
    assert spoken.code == 1
    assert spoken.error["what"] == "unexpected ZeroDivisionError: a defect"
    written = Path(spoken.error["where"])
    assert written.parent == space / ".flightschool"
    assert "in broken" in written.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("error", "code"),
    [(InfrastructureError("the engine died", mend="start again"), 1), (KeyboardInterrupt(), 130)],
    ids=["infrastructure", "interrupt"],
)
def test_exit_codes_of_breakdowns(
    error: BaseException, code: int, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken() -> None:
        raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("flightschool.cli.doctor.examine", broken)
    spoken = run("doctor")
    assert spoken.code == code
    assert "Traceback" not in spoken.err


def test_libraries_that_print_do_not_spoil_the_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def chatty() -> list[object]:
        sys.stdout.write("downloading shards: 100%\n")
        return []

    monkeypatch.setattr("flightschool.cli.doctor.examine", chatty)
    spoken = run("doctor", "--json")
    assert spoken.json == {"schema": 1, "ok": True, "checks": []}
    assert "downloading" in spoken.err


def test_json_holds_no_nan_and_terminals_get_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    with output.session(json_mode=True):
        output.finish({"a": float("nan"), "b": [float("inf"), 1.5]})
    assert capsys.readouterr().out == '{"schema": 1, "a": null, "b": [null, 1.5]}\n'
    assert output.plain("ok \x1b[31mred\x1b]0;title\x07") == "ok \\x1b[31mred\\x1b]0;title\\x07"
    with output.session(json_mode=False):
        output.say("[bold]not markup[/bold] \x1b[2J")
    assert "[bold]not markup[/bold] \\x1b[2J" in capsys.readouterr().err


def test_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m flightschool.cli env list --json | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1)


@pytest.mark.parametrize("module", ["flightschool", "flightschool.cli"])
def test_the_package_runs_as_a_module(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()[0], done.stderr) == (0, "flightschool", "")
