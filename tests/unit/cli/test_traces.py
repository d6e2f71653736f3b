"""``traces`` on the command line: redaction by default, losses said, nothing from a trace drives the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flightschool.governance import AuditLog
from flightschool.store import Workspace
from flightschool.traces import load_traces

Run = Callable[..., Any]
MAIL = "ada@example.org"
EVIL = "\x1b[31m[bold red]gone[/bold red]\x07"


def line(name: str, answer: str, tool: str = "get_user", **metadata: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": tool, "arguments": json.dumps({"mail": MAIL})}}
    return {
        "messages": [
            {"role": "user", "content": f"I am {MAIL}"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": answer},
        ],
        "metadata": {"id": name, **metadata},
    }


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "runs.jsonl"
    lines = [line("a", json.dumps({"mail": MAIL})), line("b", f"Error: {EVIL}", success=False)]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    return path


def test_what_is_kept_is_redacted_and_says_so(run: Run, space: Path, recorded: Path) -> None:
    spoken = run("traces", "import", str(recorded), "--name", "june", "--json")
    assert spoken.code == 0
    assert spoken.json["redaction"]["num_distinct"] == {"email": 1}
    with Workspace.find() as workspace:
        episodes = load_traces(workspace.store, "june").episodes
    assert MAIL not in repr(episodes)
    assert episodes[0].calls[0].arguments == episodes[0].calls[0].value
    (record,) = run("traces", "list", "--json").json["traces"]
    assert (record["redacted"], record["replaced"]) == (True, {"email": 5})


def test_originals_need_saying_and_are_logged(run: Run, space: Path, recorded: Path) -> None:
    assert run("traces", "import", str(recorded), "--name", "raw", "--no-redact").code == 0
    with Workspace.find() as workspace:
        assert MAIL in repr(load_traces(workspace.store, "raw"))
        entries = list(AuditLog(workspace.store).entries())
    assert [(entry.action, entry.subject) for entry in entries] == [("traces imported without redaction", "raw")]
    assert run("traces", "list", "--json").json["traces"][0]["redacted"] is False


def test_options_that_contradict_one_another(run: Run, space: Path, recorded: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("Ada Lovelace\n")
    both = run("traces", "import", str(recorded), "--name", "x", "--no-redact", "--names", str(names), "--json")
    assert (both.code, both.error["where"]) == (2, "--no-redact")
    half = run("traces", "import", str(recorded), "--name", "x", "--state", str(tmp_path), "--json")
    assert (half.code, half.error["where"]) == (2, "--state")


def test_state_is_redacted_alike(run: Run, space: Path, recorded: Path, tmp_path: Path) -> None:
    state, out = tmp_path / "state", tmp_path / "clean"
    state.mkdir()
    (state / "users.json").write_text(json.dumps({"u": {"mail": MAIL}}))
    given = ("--state", str(state), "--state-out", str(out))
    assert run("traces", "import", str(recorded), "--name", "june", *given).code == 0
    with Workspace.find() as workspace:
        token = load_traces(workspace.store, "june").episodes[0].calls[0].arguments["mail"]
    assert json.loads((out / "users.json").read_text()) == {"u": {"mail": token}}


def test_text_from_traces_is_shown_inert(run: Run, space: Path, recorded: Path) -> None:
    text = recorded.read_text()
    recorded.write_text(text + json.dumps(line(f"e{EVIL}", "x", tool=f"t{EVIL}", stratum=EVIL)) + "\n")
    assert run("traces", "import", str(recorded), "--name", "june").code == 0
    shown = run("traces", "show", "june")
    assert shown.code == 0
    assert "\x1b" not in shown.err
    assert "\x07" not in shown.err
    assert "[bold red]gone" in shown.err  # as it was written, not as markup
    one = run("traces", "show", "june", "--tool", f"t{EVIL}")
    assert one.code == 0
    assert "\x1b" not in one.err


def test_one_tool_in_full(run: Run, space: Path, recorded: Path) -> None:
    run("traces", "import", str(recorded), "--name", "june")
    tool = run("traces", "show", "june", "--tool", "get_user", "--json").json["tool"]
    assert (tool["num_calls"], tool["num_errors"]) == (2, 1)
    assert tool["result"]["required"] == ["mail"]
    missing = run("traces", "show", "june", "--tool", "nothing", "--json")
    assert (missing.code, "get_user" in missing.error["expected"]) == (2, True)


def test_strict_and_losses(run: Run, space: Path, tmp_path: Path) -> None:
    document = {
        "schema_version": "ATIF-v1.8",
        "trajectory_id": "t",
        "steps": [
            {"source": "user", "message": "x"},
            {"source": "agent", "message": "y", "metrics": {"logprobs": [0.0]}},
        ],
        "subagent_trajectories": [{"schema_version": "ATIF-v1.8", "steps": [{"source": "user", "message": "z"}]}],
    }
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document))
    strict = run("traces", "import", str(path), "--name", "s", "--strict", "--json")
    assert strict.code == 2
    assert "log-probabilities" in strict.error["what"]
    assert run("traces", "list", "--json").json["traces"] == []
    assert run("traces", "import", str(path), "--name", "s").code == 0
    lost = run("traces", "export", "s", "--format", "openai-chat", "--out", str(tmp_path / "o.jsonl"), "--json")
    assert lost.json["losses"] == {"sub-agents and branches": 1}
    kept = run("traces", "export", "s", "--format", "atif", "--out", str(tmp_path / "o.json"), "--json")
    assert kept.json["losses"] == {}
