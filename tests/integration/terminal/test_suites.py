"""Suites over task folders: frozen by their files, flown in fresh sandboxes, graded elsewhere, refused once touched."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import needs

from flightschool.environments.terminal import TerminalFolders, lay_out_folders, pack_folders, take_folders_away
from flightschool.errors import FlightschoolError, InputError
from flightschool.models import LoopbackServer, Reply, chat_reply
from flightschool.records import Attempt, Outcome
from flightschool.store import Workspace

pytestmark = pytest.mark.integration

Tell = Callable[..., tuple[int, dict[str, Any]]]

WORDS = {
    "apple": "Apples ripen late this year; note in the file that bears their name",
    "birch": "A white trunk stands by the gate, so label what grows there with",
    "cedar": "Carpenters ordered scented planks and ask you to book lot",
    "daisy": "Children counted petals on the lawn all morning and arrived at",
    "elder": "Grandmother boils dark berries into syrup; record batch",
    "fern": "Between wet stones unroll green spirals, of which you register",
    "grape": "Harvest begins on the southern slope with barrel",
    "hazel": "Squirrels hide nuts beneath our shed and we tally hoard",
}
"""Family → how its tasks begin: no two are worded alike."""


def word_task(kit: Any, word: str, number: int, category: str) -> dict[str, str]:
    """Write one word: the oracle knows it, who does nothing fails, and the tests see nothing else."""
    place = f"/app/{word}"
    files: dict[str, str] = kit.harbor(
        "FROM debian:12\nWORKDIR /app\nCOPY given .\n",
        kit.judge(f'[ "$(cat {place} 2>/dev/null)" = "{word} {number}" ]'),
        f"echo {word} {number} > {place}\n",
        environment__given=f"{word}\n",
        instruction_DOT_md=f"{WORDS[word]} number {number}. Write '{word} {number}' to {place}.\n",
        task_DOT_toml=kit.toml + f'[metadata]\ncategory = "{category}"\n',
    )
    return files


def calling(name: str, arguments: dict[str, Any]) -> Reply:
    """A chat completion that asks for one call."""
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "", "tool_calls": [call]},
        "finish_reason": "tool_calls",
    }
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return Reply({"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage})


@pytest.fixture
def folders(tmp_path: Path, kit: Any, sandboxes: str) -> Path:
    """Eight families of two tasks in two strata."""
    needs.sandbox(sandboxes)
    for place, word in enumerate(WORDS):
        for number in (1, 2):
            files = word_task(kit, word, number, "even" if place % 2 else "odd")
            kit.write(tmp_path / "tasks" / f"{word}-{number}", files)
    return tmp_path / "tasks"


@pytest.fixture
def space(tmp_path: Path, folders: Path, tell: Tell, monkeypatch: pytest.MonkeyPatch) -> Path:
    del folders
    monkeypatch.setenv("FLIGHTSCHOOL_KEYS", str(tmp_path / "keys"))
    code, _ = tell(["init", str(tmp_path / "space")], tmp_path)
    assert code == 0
    return tmp_path / "space"


@pytest.fixture
def frozen(space: Path, folders: Path, tell: Tell) -> dict[str, Any]:
    words = ["eval", "freeze", str(folders), "--name", "ride", "--fraction", "0.75", "--target", "success=0.5"]
    code, told = tell(words, space)
    assert code == 0, told
    return told


def test_families_and_strata_come_from_folders(folders: Path, frozen: dict[str, Any]) -> None:
    world = TerminalFolders(folders)
    assert {task.family for task in world.tasks()} == set(WORDS)
    assert world.strata == {"odd": 0.5, "even": 0.5}
    measured = set(frozen["suite"]["task_digests"])
    families = {task.partition("-")[0] for task in measured}
    assert measured == {f"{word}-{number}" for word in families for number in (1, 2)}  # whole families
    assert len(families) == 6
    assert frozen["num_pool"] == 16 - len(measured)
    assert frozen["holdout"] is None  # nothing leaves a user's folders unless it is asked for


def test_oracle_noop_and_a_model_are_measured_and_compared(
    space: Path, frozen: dict[str, Any], tell: Tell, folders: Path
) -> None:
    del folders
    code, oracle = tell(["eval", "run", "ride", "--policy", "oracle", "--repeats", "2", "--keep-states"], space)
    assert code == 0, oracle
    assert {"result", "suite", "policy", "accuracy", "latency", "risk", "strata", "infra"} <= set(oracle)
    assert oracle["accuracy"]["mean"] == 1.0
    assert oracle["accuracy"]["low"] < 1.0
    assert oracle["infra"]["missing"] == 0
    assert set(oracle["strata"]) == {"odd", "even"}
    code, noop = tell(["eval", "run", "ride", "--policy", "noop", "--repeats", "2"], space)
    assert (code, noop["accuracy"]["mean"]) == (1, 0.0)  # a target is missed
    code, found = tell(["eval", "compare", "ride", noop["id"], oracle["id"]], space)
    assert (code, found["diff"], found["winner"], found["reliable"]) == (0, 1.0, "candidate", True)
    code, again = tell(["eval", "regrade", oracle["id"]], space)
    assert (code, again["turned"], again["lost"], again["accuracy"]["mean"]) == (0, {}, {}, 1.0)
    code, lost = tell(["eval", "regrade", noop["id"]], space)  # without end states there is nothing to judge
    assert code == 1
    assert len(lost["lost"]) == 2 * len(frozen["suite"]["task_digests"])
    code, told = tell(["eval", "reliability", noop["id"], oracle["id"]], space)
    assert (code, told["winner"]) == (0, "oracle")


def test_every_attempt_has_a_fresh_sandbox_and_the_program_of_a_user_acts_in_it(
    space: Path, frozen: dict[str, Any], tell: Tell, tmp_path: Path
) -> None:
    program = tmp_path / "act.sh"
    program.write_text(
        "#!/bin/bash\n[ -e /app/been-here ] && exit 0\ntouch /app/been-here\nword=$(cat /app/given)\n"
        'for n in 1 2; do echo "$word $n" > /app/$word; ls /app > /tmp/seen; done\n'
    )
    code, told = tell(["eval", "run", "ride", "--policy", f"script:{program}", "--repeats", "2"], space)
    assert told["accuracy"]["mean"] == 0.5, told  # right where the number is 2; no second attempt saw the first
    del code, frozen


@pytest.mark.usefixtures("frozen")
def test_a_model_acts_through_a_shell(space: Path, tell: Tell) -> None:
    def said(request: dict[str, Any]) -> Reply:
        last = request["messages"][-1]
        if last["role"] == "tool":
            return chat_reply("Done.")
        asked = next(m["content"] for m in request["messages"] if m["role"] == "user")
        word, number = asked.partition("Write '")[2].partition("'")[0].split()
        return calling("shell", {"command": f"echo {word} {number} > {word}"})

    with LoopbackServer(said) as server:
        code, told = tell(["eval", "run", "ride", "--policy", server.reference()], space)
    assert (code, told["accuracy"]["mean"]) == (0, 1.0), told
    assert told["risk"]["denied"]["mean"] == 0.0
    with Workspace.find(space) as opened:
        kept = next(attempt for _, attempt in opened.store.items("attempt", Attempt, f"{told['id']}:"))
    assert [event.call.name for event in kept.events] == ["shell", "file_written"]
    assert json.loads(kept.events[0].result.content)["exit_code"] == 0
    assert [message.role for message in kept.messages] == ["system", "user", "assistant", "tool", "assistant"]


def test_a_server_that_gives_garbage_gives_no_grades(space: Path, frozen: dict[str, Any], tell: Tell) -> None:
    del frozen
    with LoopbackServer(lambda _: Reply({"error": "no"}, status=401)) as server:
        code, told = tell(["eval", "run", "ride", "--policy", server.reference()], space)
    assert (code, told["error"]["what"]) == (2, "no item of the run was graded")
    with Workspace.find(space) as opened:
        outcomes = {attempt.outcome for _, attempt in opened.store.items("attempt", Attempt)}
    assert outcomes == {Outcome.INFRA_FAILURE}


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("instruction.md", "prompt"),
        ("tests/test.sh", "verifier"),
        ("solution/solve.sh", "truth"),
        ("environment/given", "state"),
        ("task.toml", "permissions"),
    ],
)
def test_one_edited_byte_is_refused_by_the_name_of_its_part(
    space: Path, folders: Path, frozen: dict[str, Any], tell: Tell, path: str, named: str
) -> None:
    task = next(iter(frozen["suite"]["task_digests"]))
    place = folders / task / path
    place.write_bytes(place.read_bytes() + b"\n")
    code, told = tell(["eval", "run", "ride", "--policy", "noop"], space)
    assert code == 2
    assert told["error"]["what"] == f"changed since the freeze: {named} of {task}"


def test_a_task_that_is_gone_or_broken_is_named(space: Path, folders: Path, frozen: dict[str, Any], tell: Tell) -> None:
    first, second = list(frozen["suite"]["task_digests"])[:2]
    (folders / second / "task.toml").write_text("[")
    code, told = tell(["eval", "run", "ride", "--policy", "noop"], space)
    assert (code, second in told["error"]["what"]) == (2, True)
    shutil.rmtree(folders / first)
    shutil.rmtree(folders / second)
    code, told = tell(["eval", "run", "ride", "--policy", "noop"], space)
    assert (code, f"prompt of {first}" in told["error"]["what"]) == (2, True)


def test_what_only_tools_have_is_refused(space: Path, frozen: dict[str, Any], tell: Tell) -> None:
    del frozen
    code, told = tell(["eval", "run", "ride", "--policy", "noop", "--perturb", "storm"], space)
    assert (code, told["error"]["where"]) == (2, "--perturb")
    code, told = tell(["eval", "run", "ride", "--policy", "noop", "--no-enforcement"], space)
    assert (code, told["error"]["where"]) == (2, "--no-enforcement")


def test_a_sealed_share_leaves_the_folders_and_is_opened_for_acceptance_alone(
    space: Path, folders: Path, tell: Tell
) -> None:
    words = ["eval", "freeze", str(folders), "--name", "ride", "--fraction", "0.5", "--holdout", "0.25"]
    code, told = tell(words, space)
    assert (code, "no sound audit" in told["error"]["what"]) == (2, True)
    assert len(list(folders.iterdir())) == 16
    code, told = tell([*words, "--override", "a test"], space)
    assert code == 0, told
    assert told["num_holdout"] == 16 - len(list(folders.iterdir())) > 0
    gone = {f"{word}-{n}" for word in WORDS for n in (1, 2)} - {place.name for place in folders.iterdir()}
    held = [f"{WORDS[name.partition('-')[0]]} number {name[-1]}".encode() for name in gone]
    files = [path.read_bytes() for path in space.rglob("*") if path.is_file()]
    assert not [text for text in held if any(text in data for data in files)]
    code, run = tell(["eval", "run", "ride", "--policy", "oracle"], space)
    assert (code, run["accuracy"]["mean"]) == (0, 1.0)
    accept = ["eval", "accept", "ride", "--policy", "oracle", "--reason", "a test", "--target", "0.2"]
    code, accepted = tell(accept, space)
    assert (code, accepted["accepted"], accepted["accuracy"]["value"]) == (0, True, 1.0), accepted
    assert len(list(folders.iterdir())) == 16 - told["num_holdout"]
    code, refused = tell(["eval", "run", "ride-holdout", "--policy", "oracle"], space)
    assert (code, refused["error"]["what"]) == (2, "'ride-holdout' is sealed")


def test_packed_folders_come_out_as_they_went_in(folders: Path, tmp_path: Path) -> None:
    whole = TerminalFolders(folders)
    (folders / "apple-1" / "environment" / "link").symlink_to("given")
    whole = TerminalFolders(folders)
    packed = pack_folders(whole, ["apple-1", "apple-2"])
    opened = lay_out_folders(packed, tmp_path / "again")
    assert (opened.digest, opened.name) == (whole.digest, whole.name)
    assert {task.id: task.digest for task in opened.tasks()} == {
        task.id: task.digest for task in whole.tasks() if task.family == "apple"
    }
    (folders / "apple-2" / "instruction.md").write_text("another\n")
    with pytest.raises(InputError, match="another one than was packed"):
        take_folders_away(packed)
    assert (folders / "apple-1").is_dir()  # nothing was removed
    shutil.rmtree(folders / "apple-2")
    take_folders_away(packed)
    assert not (folders / "apple-1").exists()
    assert TerminalFolders(folders).digest == whole.without(["apple-1", "apple-2"])


def test_a_folder_that_cannot_be_read_keeps_all_from_being_frozen(folders: Path) -> None:
    (folders / "fern-1" / "task.toml").write_text("[")
    with pytest.raises(FlightschoolError, match="1 of 16 task folders cannot be read, the first is 'fern-1'"):
        TerminalFolders(folders)
