"""``audit``: one shape for environments and folders, and bad use is one error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flightschool.audit import require_sound
from flightschool.cli.audit_rows import audit_row
from flightschool.environments.opening import open_environment
from flightschool.environments.terminal import write_sample_tasks
from flightschool.store import Workspace

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
        ("audit", "desk", "--fix", "./fixed"),
        ("audit", "./empty"),
        ("audit", "./file.txt"),
        ("audit", "./empty", "--task", "a"),
        ("audit", "desk", "--admit", "./list.json"),
        ("audit", "./empty", "--static", "--admit", "./list.json"),
        ("audit", "./empty", "--reason", "no list is asked for"),
        ("audit", "desk", "--repeats", "5", "--flake-rate", "0.1"),
        ("audit", "desk", "--flake-rate", "0"),
    ],
)
def test_wrong_use_is_one_error_with_a_mend(words: tuple[str, ...], run: Any, space: Path) -> None:
    (space / "empty").mkdir()
    (space / "file.txt").write_text("x")
    spoken = run(*words, "--json")
    assert spoken.code == 2
    assert spoken.error["mend"]


def test_a_flake_rate_says_how_often_references_are_played(run: Any, space: Path) -> None:
    name = run("rollout", "desk", "--policy", "oracle", "-n", "1", "--json").json["episodes"][0]["task"]
    (row,) = run("audit", "desk", "--task", name, "--flake-rate", "0.3", "--json").json["tasks"]
    assert row["repeats"]["num"] == 9
    assert row["repeats"]["flake_rate_below"] < 0.3


def test_an_environment_that_only_was_read_is_never_sound(run: Any, space: Path) -> None:
    spoken = run("audit", "desk", "--static", "--json")
    assert spoken.code == 1
    assert set(spoken.json["summary"]["verdicts"]) <= {"unaudited", "leaking"}


LOOSE = """
from flightschool.records import CheckKind, CheckSpec, CallCheck
import msgspec
from flightschool.testing.miniature import MiniatureEnvironment


def build_environment():
    environment = MiniatureEnvironment()
    loose = CheckSpec(id="any", kind=CheckKind.FUNCTIONAL, rule=CallCheck(tool="get_price"))
    for task in environment.tasks():
        known = environment.reference(task.id)
        environment._references[task.id] = msgspec.structs.replace(known, checks=(loose,))
    return environment
"""


def test_who_waived_a_task_stands_on_every_later_audit_of_it(run: Any, space: Path) -> None:
    (space / "loose.py").write_text(LOOSE)
    words = ("audit", "./loose.py", "--repeats", "3", "--report", "page.html")
    before = run(*words, "--json").json
    assert [row["waived"] for row in before["tasks"]] == [None] * len(before["tasks"])
    assert before["summary"]["waivers"] == []
    bad = next(row["id"] for row in before["tasks"] if row["verdict"] == "exploitable")
    with Workspace.find(space) as opened:
        world = open_environment("./loose.py", opened)
        require_sound(opened.store, world, [world.task(bad)], actor="Vera", reason="<b>known</b>")
    after = run(*words, "--json").json
    (waiver,) = after["summary"]["waivers"]
    assert (waiver["name"], waiver["reason"]) == ("Vera", "<b>known</b>")
    assert bad in waiver["tasks"]
    assert next(row["waived"] for row in after["tasks"] if row["id"] == bad)["at"] == waiver["at"]
    page = (space / "page.html").read_text()
    assert "Vera" in page
    assert "&lt;b&gt;known" in page
    assert "<b>known" not in page
    assert "waived by Vera" in run(*words).err


def test_the_evidence_of_a_finding_is_a_script_that_replays_alone(run: Any, space: Path) -> None:
    """From ``audit --json`` into a file, and that file into ``rollout``: full reward again for no work."""
    (space / "loose.py").write_text(LOOSE)
    audited = run("audit", "./loose.py", "--repeats", "3", "--json")
    assert audited.code == 1
    row = next(one for one in audited.json["tasks"] if one["verdict"] == "exploitable")
    assert row["repeats"]["num"] == 3
    found = next(one for one in row["findings"] if one["class"] == "mutants" and one["confirmed"])
    assert found["mend"]
    (space / "evidence.json").write_text(json.dumps({"tasks": {row["id"]: found["evidence"]["actions"]}}))
    words = ("rollout", "./loose.py", "--policy", "script:evidence.json", "--task", row["id"], "-n", "1", "--json")
    (episode,) = run(*words).json["episodes"]
    assert episode["task"] == row["id"]
    assert episode["reward"]["outcome"] == 1.0


def _unreadable_pool(space: Path) -> None:
    for name in ("a", "b"):
        (space / "tasks" / name).mkdir(parents=True)
        (space / "tasks" / name / "instruction.md").write_text("x\n")
        (space / "tasks" / name / "task.toml").write_text("= nonsense")


def test_a_folder_that_cannot_be_read_is_not_admitted(run: Any, space: Path) -> None:
    _unreadable_pool(space)
    spoken = run("audit", "./tasks", "--admit", "list.json", "--waive", "b", "--reason", "a look", "--json")
    assert spoken.code == 2
    assert spoken.error["what"].startswith("task 'b' is waived, and it cannot be read: ")
    assert spoken.error["where"].endswith("tasks/b")
    assert "leave out --waive b" in spoken.error["mend"]
    assert not (space / "list.json").exists()


def test_the_wall_is_the_clock_on_it(run: Any, space: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _unreadable_pool(space)
    monkeypatch.setattr("flightschool.cli.audit_rows.audit_row", lambda audit: {**audit_row(audit), "wall_s": 100.0})
    summary = run("audit", "./tasks", "--static", "--json").json["summary"]
    assert summary["task_s"] == 200.0, "as if both had run side by side"
    assert 0 < summary["wall_s"] < 100


def test_a_server_is_an_environment_and_no_folder(run: Any, space: Path) -> None:
    spoken = run("audit", "http://127.0.0.1:9", "--json")
    assert spoken.code == 2, "the audit cannot begin: nothing was examined that could fall short"
    assert spoken.error["where"] == "http://127.0.0.1:9"
    assert "folder" not in spoken.error["what"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x = 1\n", "no function build_environment"),
        ("build_environment = 1\n", "no function build_environment"),
        ("def (\n", "SyntaxError"),
        ("import nobody_has_this_module\n", "ModuleNotFoundError"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("raise SystemExit(3)\n", "SystemExit"),
        ("def build_environment():\n    raise SystemExit(3)\n", "SystemExit"),
        ("def build_environment():\n    return {}['a']\n", "KeyError"),
        ("def build_environment():\n    return 7\n", "gave a int"),
        (
            "from flightschool.testing.miniature import MiniatureEnvironment\n"
            "class Odd(MiniatureEnvironment):\n"
            "    def tasks(self):\n        return 1 / 0\n"
            "def build_environment():\n    return Odd()\n",
            "ZeroDivisionError",
        ),
    ],
)
def test_a_module_that_gives_no_environment_is_one_error(text: str, what: str, run: Any, space: Path) -> None:
    (space / "odd.py").write_text(text)
    spoken = run("audit", "./odd.py", "--json")
    assert (spoken.code, spoken.error["where"]) == (2, "./odd.py"), spoken.error
    assert what in spoken.error["what"]
    assert spoken.error["expected"]
    assert spoken.error["mend"]


def test_what_an_error_tells_to_run_can_be_pasted(run: Any, space: Path) -> None:
    place = space / "it's"
    place.mkdir()
    (place / "odd.py").write_text("1 / 0\n")
    mend = run("audit", "./it's/odd.py", "--json").error["mend"]
    command = mend.removeprefix("run: ").removesuffix(" and mend what it says").replace("python", sys.executable, 1)
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize("option", ["--report", "--admit"])
def test_a_file_that_cannot_be_written_is_told_before_the_work(option: str, run: Any, space: Path) -> None:
    (space / "file").write_text("x")
    (space / "empty").mkdir()  # that it holds no task would be told next
    for place in ("./file/below.out", "./empty"):
        spoken = run("audit", "./empty", option, place, "--json")
        assert (spoken.code, spoken.error["where"]) == (2, f"{option} {place.removeprefix('./')}")
        assert spoken.error["mend"]
    assert not run("audit", "desk", "--report", "./file/x", "--json").json.get("tasks")
    run("audit", "./empty", option, "./new/page.out", "--json")
    assert not (space / "new/page.out").exists(), "looking leaves nothing behind"


def test_folders_named_together_have_ids_of_their_own(run: Any, space: Path) -> None:
    for parent in ("pool", "p2"):
        write_sample_tasks(space / parent, 1)
    spoken = run("audit", "./pool", "./p2", "./pool/000000", "--static", "--json")
    rows = {row["id"]: row["path"] for row in spoken.json["tasks"]}
    assert rows == {"pool/000000": "pool/000000", "p2/000000": "p2/000000"}
    assert spoken.json["summary"]["num_tasks"] == 2
    families = spoken.json["summary"]["families"]
    assert all(set(family["members"]) <= set(rows) for family in families)
