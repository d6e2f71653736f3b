# ruff: noqa: E501 - the texts of small tasks
"""The verb on folders: evidence that replays from itself alone, resuming, and folders that are made to hurt."""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from flightschool.cli import main
from flightschool.cli.references import workspace_if_any
from flightschool.governance import AuditLog, overrides

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture(autouse=True)
def in_a_folder(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verb's cache is shared by the tests; finished audits are kept by the folders' own paths."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(images.parent / "cache"))
    monkeypatch.chdir(tmp_path)


def told(arguments: list[str]) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of the command line."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = main([*arguments, "--json"])
    return code, json.loads(said.getvalue())


def test_evidence_replays_from_itself_alone_and_a_second_run_goes_on(kit: Any, tmp_path: Path) -> None:
    kit.write(tmp_path / "tasks/deep/presence", kit.flawed["presence"].files)
    kit.write(tmp_path / "tasks/broken-settings", {"task.toml": "= nonsense", "instruction.md": "x\n"})
    code, first = told(["audit", "./tasks", "--repeats", "2"])
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
    code, replayed = told(["rollout", "./tasks/deep/presence", "--policy", f"script:{script}", "-n", "1"])
    assert replayed["episodes"][0]["reward"]["total"] == 1.0
    code, again = told(["audit", "./tasks", "--repeats", "2"])
    assert code == 1
    assert again["tasks"][1] == first["tasks"][1], "kept, times included"
    (tmp_path / "tasks/deep/presence/instruction.md").write_text("Another text.\n")
    code, changed = told(["audit", "./tasks", "--static"])
    assert changed["tasks"][1]["digest"] != first["tasks"][1]["digest"], "finished audits are found by digest"


def test_only_what_passed_the_gate_is_listed_for_trainers(kit: Any, tmp_path: Path) -> None:
    """The list that other trainers read: sound folders with their digests; a waiver needs a name, a reason and a log."""
    kit.write(tmp_path / "tasks/presence", kit.flawed["presence"].files)
    kit.write(tmp_path / "tasks/sum", kit.clean["sum"].files)
    words = ["audit", "./tasks", "--repeats", "2", "--admit", "list.json"]
    code, found = told(words)
    assert code == 1, "one of them is not sound"
    listed = json.loads((tmp_path / "list.json").read_text())
    digests = {row["id"]: row["digest"] for row in found["tasks"]}
    assert [(one["id"], one["digest"]) for one in listed["tasks"]] == [("sum", digests["sum"])]
    assert (found["admitted"]["num_tasks"], found["admitted"]["refused"], listed["override"]) == (1, None, None)
    assert told([*words, "--waive", "presence", "--reason", "a look"])[0] == 2, "there is no log here"

    assert main(["init", "plant", "--json"]) == 0
    os.chdir("plant")
    words[1] = "../tasks"
    assert told([*words, "--waive", "other", "--reason", "a look"])[0] == 2
    code, found = told([*words, "--waive", "presence", "--reason", "a look", "--report", "page.html"])
    _stands_everywhere(found, Path("page.html").read_text())
    listed = json.loads(Path("list.json").read_text())
    assert {one["id"]: one["verdict"] for one in listed["tasks"]} == {"presence": "exploitable", "sum": "sound"}
    assert (listed["override"]["reason"], listed["override"]["tasks"]) == ("a look", ["presence"])
    space = workspace_if_any()
    assert space is not None
    with space:
        (written,) = overrides(AuditLog(space.store))
    assert (written.gate, written.reason) == ("audit", "a look")
    assert "presence (exploitable)" in written.subject
    code, found = told([*words[:4], "--report", "page.html"])
    _stands_everywhere(found, Path("page.html").read_text())
    Path("list.json").unlink()
    kit.write(tmp_path / "other/presence", kit.flawed["presence"].files)
    code, found = told(["audit", "../other", "--repeats", "2", "--admit", "list.json"])
    assert "1 task(s) are not sound: presence (exploitable)" in found["admitted"]["refused"]["what"]
    assert not Path("list.json").exists()
    (tmp_path / "other/presence/instruction.md").write_text("Another text.\n")
    (changed,) = told(["audit", "../other", "--static"])[1]["tasks"]
    assert (found["tasks"][0]["waived"]["reason"], changed["waived"]) == ("a look", None), "by content, not by place"


def _stands_everywhere(found: Any, page: str) -> None:
    """A waiver: beside its task and no other, in the summary, and on the page."""
    waived = {row["id"]: row["waived"] for row in found["tasks"]}
    assert waived["sum"] is None
    assert waived["presence"]["reason"] == "a look"
    assert waived["presence"]["name"]
    assert found["summary"]["waivers"] == [{**waived["presence"], "tasks": ["presence"]}]
    assert all(waived["presence"][key] in page for key in ("name", "reason", "at"))


IN_UTC = '[ "$(cat /app/total.txt)" = 105 ] && [ "$(date +%Z)" = UTC ]'
OF_THIS_YEAR = '[ "$(cat /app/total.txt)" = 105 ] && [ $(date +%s) -lt {} ]'


def test_refused_right_work_replays_under_the_condition_that_it_was_graded_under(kit: Any, tmp_path: Path) -> None:
    """The reference, packed into one program: taken as ever, refused under the condition that the finding names."""
    tests = {"place": IN_UTC, "clock": OF_THIS_YEAR.format(int(time.time()) + 200 * 86400), "broken": "false"}
    for name, condition in tests.items():
        labelled = kit.task("", "", kit.sum_instruction, kit.sum_solution, kit.judge(condition))
        kit.write(tmp_path / "tasks" / name, labelled.files)
    _, found = told(["audit", "./tasks", "--repeats", "2", "--report", "page.html"])
    page = (tmp_path / "page.html").read_text()
    seen: dict[str, str] = {}
    for row in found["tasks"]:
        barring = [one for one in row["findings"] if one["severity"] == "barring"]
        assert all(one["evidence"]["script"] for one in barring), "no evidence is empty"
        evidence = barring[0]["evidence"]
        (tmp_path / "evidence.sh").write_text(evidence["script"])
        words = ["rollout", f"./tasks/{row['id']}", "--policy", "script:evidence.sh", "-n", "1"]
        under = ["--grading-condition", evidence["condition"]] if evidence["condition"] else []
        assert " ".join(["--policy script:evidence.sh", *under, "-n 1"]) in page
        (again,) = told([*words, *under])[1]["episodes"]
        assert again["reward"]["total"] == 0.0
        if under:
            (plain,) = told(words)[1]["episodes"]
            assert plain["reward"]["total"] == 1.0
        seen[row["id"]] = evidence["condition"]
    assert seen.pop("place") in ("time-zone-tokyo", "time-zone-los-angeles")
    assert seen == {"broken": "", "clock": "later"}


HURTS = {
    "hangs": "#!/bin/bash\nwhile :; do sleep 1; done\n",
    "forks": "#!/bin/bash\nf() { f | f & }; f; sleep 1; mkdir -p /logs/verifier; echo 0 > /logs/verifier/reward.txt\n",
    "fills": "#!/bin/bash\nhead -c 2G /dev/zero > /app/full; mkdir -p /logs/verifier; echo 0 > /logs/verifier/reward.txt\n",
    "says-nothing": "#!/bin/bash\ntrue\n",
}


def test_a_verifier_that_hurts_is_told_and_the_pool_goes_on(kit: Any, tmp_path: Path) -> None:
    toml = "[agent]\ntimeout_sec = 4\n[verifier]\ntimeout_sec = 2\n[environment]\nstorage_mb = 64\n"
    for name, text in HURTS.items():
        files = kit.task("", "", kit.sum_instruction, kit.sum_solution, text, toml=toml).files
        kit.write(tmp_path / "tasks" / name, files)
    kit.write(tmp_path / "tasks/without-tests", {k: v for k, v in kit.clean["sum"].files.items() if "tests" not in k})
    pipe = kit.write(tmp_path / "tasks/with-a-pipe", kit.clean["sum"].files)
    os.mkfifo(pipe / "environment/pipe")
    unreadable = kit.write(tmp_path / "tasks/unreadable", kit.clean["sum"].files)
    (unreadable / "instruction.md").write_bytes(b"\xff\xfe\x00broken")
    looped = kit.write(tmp_path / "tasks/looped", kit.clean["sum"].files)
    (looped / "tests/test.sh").unlink()
    (looped / "tests/test.sh").symlink_to("test.sh")
    kit.write(tmp_path / "tasks/zz-presence", kit.flawed["presence"].files)
    code, found = told(["audit", "./tasks", "--repeats", "2"])
    assert code == 1
    verdicts = {row["id"]: row["verdict"] for row in found["tasks"]}
    assert verdicts.pop("zz-presence") == "exploitable"
    piped = next(row for row in found["tasks"] if row["id"] == "with-a-pipe")
    assert verdicts.pop("with-a-pipe") == "unaudited"
    assert "FIFO" in piped["unaudited_because"]
    assert verdicts.pop("without-tests") in ("unaudited", "broken-oracle")
    for name in ("unreadable", "looped"):
        assert verdicts.pop(name) == "unaudited"
        assert next(row for row in found["tasks"] if row["id"] == name)["unaudited_because"]
    assert set(verdicts.values()) <= {"broken-oracle", "unaudited"}, verdicts
    hanging = next(row for row in found["tasks"] if row["id"] == "hangs")
    assert "did not end within 2 s" in json.dumps(hanging["findings"])


def test_only_read_is_never_sound_and_runs_nothing(kit: Any, tmp_path: Path) -> None:
    kit.write(tmp_path / "sum", kit.clean["sum"].files)
    code, found = told(["audit", "./sum", "--static"])
    assert code == 1
    assert [(row["id"], row["verdict"], row["num_episodes"]) for row in found["tasks"]] == [("sum", "unaudited", 0)]
