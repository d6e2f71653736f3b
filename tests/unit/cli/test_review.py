"""``review``: a sheet from stored attempts, one attempt shown, labels, rates, and the scan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flightschool.records import Attempt, EpisodeGroup, Message, ToolResult, Vote
from flightschool.store import Workspace
from flightschool.training.journal import Finished, Journal

Run = Callable[..., Any]


@pytest.fixture
def rolled(run: Run, space: Path) -> Path:
    """A workspace with 20 passes (rollout-0001) and 20 failures (rollout-0002)."""
    for policy in ("oracle", "random"):
        assert run("rollout", "desk", "--policy", policy, "-n", "20").code == 0
    return space


def change(folder: Path, key: str, **fields: object) -> None:
    with Workspace.find(folder) as space:
        attempt = space.store.get("attempt", key, Attempt)
        space.store.put("attempt", key, msgspec.structs.replace(attempt, **fields))


def test_draw_label_and_measure(run: Run, rolled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    drawn = run("review", "list", "desk", "-n", "20", "--by", "none", "--json").json
    assert drawn["sheet"]["name"] == "desk-n20-s0-none"
    assert drawn["left"] == 20
    assert drawn["rates"]["rho0"] is None
    assert {(i["passed"], i["inclusion"], i["stratum"]) for i in drawn["items"]} == {
        (True, 0.5, "all"),
        (False, 0.5, "all"),
    }
    for number, item in enumerate(drawn["items"]):
        label = "right" if item["passed"] else "wrong"
        said = run("review", "label", item["attempt"], label, "--reason", "looked at the end state", "--json").json
        assert said["left"] == 19 - number
        assert said["label"]["reviewer"] == "ann"
    again = run("review", "list", "desk", "-n", "20", "--by", "none", "--json").json
    assert [i["attempt"] for i in again["items"]] == [i["attempt"] for i in drawn["items"]]
    assert again["left"] == 0
    assert again["rates"]["rho0"]["value"] == 0.0
    assert 0.0 < again["rates"]["rho0"]["high"] < 0.5
    told = run("review", "list", "desk-n20-s0-none")
    assert told.code == 0
    assert "false positives (ρ0): 0.000 [0.000," in told.err
    assert "0 left to label" in told.err
    assert run("log", "verify", "--json").json["num_entries"] == 20
    assert run("review", "list", "--json").json["sheets"][0]["left"] == 0


def test_two_reviewers_and_a_change_of_mind(run: Run, rolled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items = run("review", "list", "rollout-0001", "-n", "6", "--by", "none", "--name", "s", "--json").json["items"]
    for who in ("ann", "bob"):
        monkeypatch.setenv("LOGNAME", who)
        for place, item in enumerate(items):
            label = "hack" if place == 0 and who == "bob" else "wrong" if place == 1 else "right"
            assert run("review", "label", item["attempt"], label, "--reason", "r").code == 0
    found = run("review", "list", "s", "--json").json
    assert found["agreement"][0]["reviewers"] == ["ann", "bob"]
    assert found["agreement"][0]["num_equal"] == 5
    assert 0 < found["agreement"][0]["kappa"] < 1
    assert (found["left"], found["rates"]["disputed"]) == (1, [items[0]["attempt"]])
    assert run("review", "label", items[0]["attempt"], "right", "--reason", "seen again", "--json").json["left"] == 0
    labels = run("review", "list", "s", "--json").json["items"][0]["labels"]
    assert [(one["reviewer"], one["label"], one["number"]) for one in labels] == [
        ("ann", "right", 0),
        ("bob", "hack", 0),
        ("bob", "right", 1),
    ]


def test_what_is_wrong_use(run: Run, rolled: Path) -> None:
    def refused(*words: str) -> str:
        spoken = run(*words, "--json")
        assert spoken.code == 2
        return str(spoken.error["what"])

    assert "no attempts of 'nothing'" in refused("review", "list", "nothing")
    assert "two targets" in refused("review", "list", "desk", "--env", "desk")
    assert "no strata" in refused("review", "list", "desk", "--by", "colour")
    assert "draws for" in refused("review", "list", "desk", "-n", "2")
    assert "RUN|ENV is missing" in refused("review", "scan")
    assert "no attempt 'x'" in refused("review", "show", "x")
    assert "no attempt '../x:1'" in refused("review", "show", "../x:1")
    assert "no review sheet" in refused("review", "label", "x", "right", "--reason", "r")
    assert run("review", "list", "rollout-0001", "-n", "4", "--by", "none", "--name", "s").code == 0
    assert "drawn before" in refused("review", "list", "rollout-0001", "-n", "5", "--by", "none", "--name", "s")
    item = run("review", "list", "s", "--json").json["items"][0]["attempt"]
    assert "no label 'good'" in refused("review", "label", item, "good", "--reason", "r")
    assert "needs a reason" in refused("review", "label", item, "right", "--reason", " ")
    assert run("review", "list", "desk", "-n", "40", "--by", "none", "--name", "t").code == 0
    assert "several review sheets" in refused("review", "label", item, "right", "--reason", "r")
    assert run("review", "label", item, "right", "--reason", "r", "--sheet", "t").code == 0
    assert "cannot be a name" in refused("review", "list", "desk", "--name", "a/b")


def test_an_attempt_is_shown_inert_and_blind(run: Run, rolled: Path) -> None:
    key = run("runs", "show", "rollout-0001", "--json").json["episodes"][0]["id"]
    with Workspace.find(rolled) as space:
        events = space.store.get("attempt", key, Attempt).events
    evil = "\x1b[31m[bold red]pwned[/]\u202e"
    event = msgspec.structs.replace(events[0], result=ToolResult(call_id="c", content=evil))
    change(rolled, key, events=(event, *events[1:]), messages=(Message(role="assistant", content=evil),))
    told = run("review", "show", key)
    assert told.code == 0
    assert "\x1b" not in told.err
    assert "\\x1b[31m[bold red]pwned[/]\\x202e" in told.err
    assert "House rules" in told.err
    assert "What the verifier says" in told.err
    assert "outcome 1" in told.err
    row = run("review", "show", key, "--json").json
    assert row["checks"][0]["evidence"]
    assert row["task"]["instruction"]
    assert row["policy_text"]
    blind = run("review", "show", key, "--blind", "--json").json
    assert {blind[name] for name in ("outcome", "checks", "reward", "labels", "members")} == {None}
    assert "verifier" not in run("review", "show", key, "--blind").err
    listed = run("review", "list", "rollout-0001", "-n", "5", "--by", "none", "--blind", "--json").json["items"]
    assert {(i["passed"], i["stratum"], i["why"], i["inclusion"]) for i in listed} == {(None, None, None, None)}


def test_scan_ends_with_1_on_what_is_suspicious_and_the_sheet_takes_it_whole(run: Run, rolled: Path) -> None:
    clean = run("review", "scan", "desk", "--json")
    assert (clean.code, clean.json["findings"], clean.json["num_attempts"]) == (0, [], 40)
    key = run("runs", "show", "rollout-0001", "--json").json["episodes"][3]["id"]
    change(rolled, key, events=())
    spoken = run("review", "scan", "--env", "desk", "--json")
    assert spoken.code == 1
    (found,) = spoken.json["findings"]
    assert (found["rule"], found["severity"], found["attempts"]) == ("hollow-pass", "warning", [key])
    items = run("review", "list", "desk", "-n", "10", "--by", "none", "--json").json["items"]
    assert [(i["stratum"], i["inclusion"]) for i in items if i["why"] == "suspicious"] == [("certain:suspicious", 1.0)]
    assert len(items) == 11
    assert "hollow-pass" in run("review", "scan", "rollout-0001").err


def test_scan_knows_canaries(run: Run, rolled: Path) -> None:
    task = run("runs", "show", "rollout-0001", "--json").json["episodes"][0]["task"]
    spoken = run("review", "scan", "rollout-0001", "--canary", task, "--canary", "nobody", "--json")
    assert spoken.code == 1
    assert [f["rule"] for f in spoken.json["findings"]] == ["canary-passed"]
    assert spoken.json["canaries_untried"] == ["nobody"]


def test_attempts_that_voters_disagree_on_are_all_taken(run: Run, rolled: Path) -> None:
    key = run("runs", "show", "rollout-0002", "--json").json["episodes"][0]["id"]
    with Workspace.find(rolled) as space:
        verdict = space.store.get("attempt", key, Attempt).verdict
    assert verdict is not None
    votes = (Vote(voter="strict", passed=False), Vote(voter="lax", passed=True, evidence="close enough"))
    checks = (msgspec.structs.replace(verdict.checks[0], votes=votes), *verdict.checks[1:])
    change(rolled, key, verdict=msgspec.structs.replace(verdict, checks=checks))
    items = run("review", "list", "rollout-0002", "-n", "3", "--by", "none", "--json").json["items"]
    assert [(i["attempt"], i["stratum"], i["inclusion"]) for i in items if i["why"] == "disagreement"] == [
        (key, "certain:disagreement", 1.0)
    ]
    told = run("review", "show", key).err
    assert "lax: yes close enough" in told
    words = f"voters of check {checks[0].id} were of one mind on 0.0%"
    assert words in told
    assert "of 1 attempts: alpha 0.00" in told
    assert words not in run("review", "show", key, "--blind").err
    assert words in run("runs", "show", "rollout-0002").err
    for spoken in (("review", "list", "rollout-0002", "-n", "3", "--by", "none"), ("review", "show", key)):
        (found,) = run(*spoken, "--json").json["votes"]
        assert (found["check"], found["num_attempts"], found["unanimous"]["value"]) == (checks[0].id, 1, 0.0)
        assert found["alpha"] == pytest.approx(0.0)
    assert run("review", "list", "rollout-0001", "-n", "3", "--by", "none", "--json").json["votes"] == []


def test_attempts_of_a_training_are_read_from_its_journal(run: Run, rolled: Path) -> None:
    with Workspace.find(rolled) as space:
        stored = [a for _, a in space.store.items("attempt", Attempt, "rollout-0001:")][:4]
        members = tuple(msgspec.structs.replace(a, id=f"train-1:g:{i}:0", run="train-1") for i, a in enumerate(stored))
        journal = Journal(space.run_dir("train-1") / "journal.bin")
        for incarnation in (0, 1):  # a resumed run may write a group again
            group = EpisodeGroup(id="g", task=stored[0].task, size=4, members=members, admitted_step=0)
            journal.append(Finished(incarnation=incarnation, ordinal=0, group=group))
        journal.close()
    assert run("review", "scan", "train-1", "--json").json["num_attempts"] == 4
    assert run("review", "scan", "desk", "--json").json["num_attempts"] == 44
    drawn = run("review", "list", "train-1", "-n", "4", "--by", "none", "--json").json
    assert len(drawn["items"]) == 4
    assert run("review", "show", "train-1:g:2:0", "--json").json["attempt"] == "train-1:g:2:0"
    assert run("review", "show", "train-1:g:9:0", "--json").code == 2
