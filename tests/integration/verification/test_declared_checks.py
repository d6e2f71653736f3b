"""Checks that a person declares in TOML judge real episodes: `rollout`, `env check` and `audit`, whatever the kind."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests import needs

from flightschool.cli import main
from flightschool.errors import InfrastructureError
from flightschool.models import LoopbackServer, Reply, chat_reply
from flightschool.records import Json
from flightschool.sandbox import best_provider
from flightschool.store import DEFAULT_CONFIG

pytestmark = pytest.mark.integration

TOOLS = """
def get_order(state, order_id):
    return state["orders"][order_id]


def cancel_order(state, order_id):
    state["orders"][order_id]["status"] = "cancelled"
    return state["orders"][order_id]


def write_file(state, path, text):
    state["files"][path] = text
    return {"written": path}
"""
LETTER = "Order A1 is cancelled."
ANSWER = """A1 is cancelled, as asked.
Refund: 12.50 EUR on 2026-05-01.
```json
{"order": "A1", "refund": 12.5}
```
Items: pump, seal"""
PLAIN = f"""
[[check]]
id = "state"
kind = "functional"
rule = "state"
expected = {{ orders = {{ A1 = {{ id = "A1", status = "cancelled" }}, B2 = {{ id = "B2", status = "open" }} }} }}
unnamed = "ignored"

[[check]]
id = "json"
kind = "functional"
rule = "json"
pointer = "/orders/A1/status"
expected = "cancelled"

[[check]]
id = "letter"
kind = "functional"
rule = "file"
path = "/letters/A1.txt"
expected = "{LETTER}"

[[check]]
id = "called"
kind = "functional"
rule = "calls"
tool = "cancel_order"
arguments = {{ order_id = "A1" }}

[[check]]
id = "collateral"
kind = "constraint"
rule = "diff"
allowed = {{ orders = 1, files = 1 }}

[[check]]
id = "blind"
kind = "constraint"
rule = "minefields"
milestones = [{{ id = "read", tool = "get_order", arguments = {{ order_id = "A1" }} }}]
mines = [{{ id = "unread", tool = "cancel_order", unless_after = "read" }}]

[[check]]
id = "way"
kind = "process"
rule = "milestones"
milestones = [{{ id = "read", tool = "get_order" }}, {{ id = "done", tool = "cancel_order", after = ["read"] }}]

[[check]]
id = "says"
kind = "functional"
rule = "answer"
contains = ["cancelled"]

[[check]]
id = "refund"
kind = "functional"
rule = "answer_number"
value = 12.5
unit = "EUR"

[[check]]
id = "day"
kind = "functional"
rule = "answer_date"
date = "2026-05-01"

[[check]]
id = "json-answer"
kind = "functional"
rule = "answer_json"
expected = {{ order = "A1", refund = 12.5 }}

[[check]]
id = "items"
kind = "functional"
rule = "answer_set"
after = "Items:"
items = ["seal", "pump"]
"""
COMMAND = """
[[check]]
id = "test"
kind = "functional"
rule = "command"
command = ["sh", "/tests/test.sh"]
files = { "/tests/test.sh" = 'grep -q cancelled /letters/A1.txt' }
timeout_s = 20.0
"""
JUDGE = """
[[check]]
id = "polite"
kind = "functional"
rule = "judge"
criterion = "It says that the order is cancelled."
endpoint = "{endpoint}"
key_env = "{key}"
"""
PANEL = """
[[check]]
id = "board"
kind = "functional"
rule = "panel"
decision = "majority"

[[check.members]]
name = "judge"
rule = {{ rule = "judge", criterion = "Cancelled.", endpoint = "{endpoint}", key_env = "{key}" }}

[[check.members]]
name = "state"
rule = {{ rule = "json", pointer = "/orders/A1/status", expected = "cancelled" }}

[[check.members]]
name = "letter"
rule = {{ rule = "file", path = "/letters/A1.txt", expected = "{letter}" }}
"""
Command = Callable[..., dict[str, Any]]


def judged(request: dict[str, Json]) -> Reply:
    """Reads its prompt as a model would: met if the quoted answer speaks of a cancelled order."""
    prompt = request["messages"][-1]["content"]
    fence = re.findall(r"The fence is ([0-9a-f]{32})\.", prompt)[-1]
    met = "cancelled" in prompt.split(f"----- {fence}")[1]
    choice = "A" if met == ("A: the criterion is met" in prompt) else "B"
    return chat_reply(json.dumps({"fence": fence, "choice": choice, "reason": "read it"}))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    def spoken(*words: str, code: int | None = 0) -> dict[str, Any]:
        capsys.readouterr()
        given = main([*words, "--json"])
        captured = capsys.readouterr()
        assert code is None or given == code, captured.out + captured.err
        value: dict[str, Any] = json.loads(captured.out)
        return value

    return spoken


def call(name: str, answer: Json, **arguments: Json) -> list[dict[str, Json]]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    asked = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": name, "type": "function", "function": function}],
    }
    return [asked, {"role": "tool", "tool_call_id": name, "content": json.dumps(answer)}]


def episode(answer: str) -> dict[str, Json]:
    order = {"id": "A1", "status": "open"}
    return {
        "messages": [
            {"role": "system", "content": "You are the order desk."},
            {"role": "user", "content": "Cancel order A1 and write the letter /letters/A1.txt."},
            *call("get_order", order, order_id="A1"),
            *call("cancel_order", {**order, "status": "cancelled"}, order_id="A1"),
            *call("write_file", {"written": "/letters/A1.txt"}, path="/letters/A1.txt", text=LETTER),
            {"role": "assistant", "content": answer},
        ],
        "metadata": {"id": "one", "task": "cancel-A1", "success": True},
    }


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Command) -> Callable[[str], None]:
    """Builds environment ``desk2`` of one recorded episode, judged by a TOML text alone."""
    state = tmp_path / "state"
    state.mkdir()
    orders = {name: {"id": name, "status": "open"} for name in ("A1", "B2")}
    (state / "orders.json").write_text(json.dumps(orders))
    (state / "files.json").write_text("{}")
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "flightschool.toml").write_text(DEFAULT_CONFIG)
    (tmp_path / "traces.jsonl").write_text(json.dumps(episode(ANSWER)) + "\n")
    monkeypatch.chdir(tmp_path)
    run("traces", "import", "./traces.jsonl", "--name", "mine")

    def made(checks: str) -> None:
        (tmp_path / "checks.toml").write_text('drafted = "left_out"\n' + checks)
        words = ("--state", "state", "--code", "./tools.py", "--checks", "checks.toml")
        run("env", "build", "--from-traces", "mine", "--name", "desk2", *words)

    return made


def checks_of(run: Command, policy: str, code: int | None = 0) -> dict[str, Any]:
    """The one episode of a rollout: outcome, reward, and each check's verdict as review shows it."""
    told = run("rollout", "desk2", "--policy", policy, "-n", "1", code=code)
    (row,) = told["episodes"]
    shown = run("review", "show", row["id"])
    checks = {check["id"]: check for check in shown["checks"] or []}
    return {**row, "checks": checks, "disagreement": shown["disagreement"]}


@contextmanager
def sandboxed() -> Iterator[None]:
    async def try_one() -> None:
        await (await best_provider()).aclose()

    try:
        asyncio.run(try_one())
    except InfrastructureError as error:
        needs.sandbox(str(error))
    yield


def test_states_files_calls_and_answers(build: Callable[[str], None], run: Command) -> None:
    build(PLAIN)
    kept = run("env", "show", "desk2")["kept"]["fidelity"]
    assert (kept["agreement"]["successes"], kept["num_episodes"]) == ({"hits": 1, "total": 1}, 1)
    found = checks_of(run, "oracle")
    assert {name: check["passed"] for name, check in found["checks"].items() if not check["passed"]} == {}
    assert len(found["checks"]) == 12
    assert found["reward"]["outcome"] == 1.0
    assert run("env", "check", "desk2")["num_barring"] == 0
    idle = checks_of(run, "noop")
    failed = {name for name, check in idle["checks"].items() if not check["passed"]}
    assert failed == {"state", "json", "letter", "called", "way", "says", "refund", "day", "json-answer", "items"}
    assert idle["reward"]["outcome"] < 1.0


def test_build_counts_the_checks_that_are_in_force(build: Callable[[str], None], run: Command) -> None:
    """The drafted checks accept the recorded success; they are left out, and the declared one does not."""
    build('[[check]]\nid = "never"\nkind = "functional"\nrule = "answer"\ncontains = ["no such words"]\n')
    agreement = run("env", "show", "desk2")["kept"]["fidelity"]["agreement"]
    assert agreement["successes"] == {"hits": 0, "total": 1}
    assert run("env", "check", "desk2", code=None)["label_agreement"] == 0.0


@pytest.mark.parametrize(
    ("rule", "tool", "mend"),
    [
        ('rule = "minefields"\nmines = [{ id = "m", tool = "cancel_oder" }]', "cancel_oder", "'cancel_order'"),
        ('rule = "calls"\ntool = "get_order"\nbefore = "write_fil"', "write_fil", "'write_file'"),
        ('rule = "milestones"\nmilestones = [{ id = "m", tool = "zzz" }]', "zzz", "flightschool env show"),
    ],
)
def test_a_check_that_names_a_tool_that_is_not_there_is_refused(
    rule: str, tool: str, mend: str, build: Callable[[str], None], run: Command, tmp_path: Path
) -> None:
    build(PLAIN)
    (tmp_path / "bad.toml").write_text(f'[[check]]\nid = "safe"\nkind = "constraint"\n{rule}\n')
    words = ("env", "build", "--from-traces", "mine", "--name", "desk3", "--state", "state", "--code", "./tools.py")
    error = run(*words, "--checks", "bad.toml", code=2)["error"]
    assert error["what"] == f"there is no tool {tool!r}"
    assert error["where"] == "check safe"
    assert mend in error["mend"]


def test_sql_on_the_json_state_of_a_built_environment(build: Callable[[str], None], run: Command) -> None:
    build(
        '[[check]]\nid = "cancelled"\nkind = "functional"\nrule = "sql"\n'
        'query = "select id, status from orders order by id"\n'
        'expected = [["A1", "cancelled"], ["B2", "open"]]\n'
    )
    assert run("env", "check", "desk2")["label_agreement"] == 1.0
    assert checks_of(run, "oracle")["reward"]["outcome"] == 1.0
    assert checks_of(run, "noop")["reward"]["outcome"] == 0.0


def test_a_command_in_a_sandbox(build: Callable[[str], None], run: Command) -> None:
    with sandboxed():
        build(COMMAND)
        found = checks_of(run, "oracle")
        assert found["checks"]["test"]["passed"]
        assert found["reward"]["outcome"] == 1.0
        assert run("env", "check", "desk2")["num_barring"] == 0
        idle = checks_of(run, "noop")
        assert idle["reward"]["outcome"] == 0.0
        assert "exit code" in idle["checks"]["test"]["evidence"]


@pytest.mark.long
def test_a_judge_and_a_panel_over_http(
    build: Callable[[str], None], run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK2_KEY", "sk-test")
    with LoopbackServer(judged) as server:
        names = {"endpoint": server.reference("m"), "key": "DESK2_KEY", "letter": LETTER}
        build(JUDGE.format(**names) + PANEL.format(**names))
        found = checks_of(run, "oracle")
        assert found["reward"]["outcome"] == 1.0
        assert len(found["checks"]["polite"]["votes"]) == 2
        assert [vote["voter"] for vote in found["checks"]["board"]["votes"]] == ["judge", "state", "letter"]
        assert found["disagreement"] is False
        audited = run("audit", "desk2", code=None)
        (task,) = audited["tasks"]
        unfinished = [one for one in task["findings"] if "unfinished" in one["what"]]
        assert unfinished == [], "the separate process could ask the judge, too"


def test_a_panel_that_differs_goes_to_review(build: Callable[[str], None], run: Command) -> None:
    odd = PANEL.replace("{letter}", "another letter")
    with LoopbackServer(judged) as server:
        build(odd.format(endpoint=server.reference("m"), key=""))
        found = checks_of(run, "oracle")
    assert found["reward"]["outcome"] == 1.0, "two of three say yes"
    assert found["disagreement"] is True
    run_name = found["id"].partition(":")[0]
    (item,) = run("review", "list", run_name, "-n", "1")["items"]
    assert item["why"] == "disagreement"


def test_a_judge_that_is_gone_is_infrastructure_and_never_a_zero(build: Callable[[str], None], run: Command) -> None:
    with LoopbackServer(lambda request: Reply({"error": "no"}, status=401)) as server:
        build(JUDGE.format(endpoint=server.reference("m"), key=""))
        found = checks_of(run, "oracle", code=1)
    assert found["outcome"] == "infra_failure"
    assert (found["reason"], found["cause"]) == ("grader_error", "grader")
    assert found["reward"] is None


def test_what_is_wrong_in_a_declaration_is_named(build: Callable[[str], None], run: Command, tmp_path: Path) -> None:
    build(PLAIN)
    bad = '[[check]]\nid = "a"\nkind = "functional"\nrule = "answer"\ncontains = ["x"]\ntasks = ["cancel-A2"]\n'
    (tmp_path / "bad.toml").write_text(bad)
    words = ("env", "build", "--from-traces", "mine", "--name", "desk3", "--checks", "bad.toml")
    error = run(*words, code=2)["error"]
    assert error["mend"] == "did you mean 'cancel-A1'?"
    (tmp_path / "bad.toml").write_text("drafted = 'no'\n" + bad)
    assert "drafted" in run(*words, code=2)["error"]["what"]
    (tmp_path / "bad.toml").write_text("draftd = 'kept'\n" + bad)
    assert run(*words, code=2)["error"]["expected"] == "drafted, [[check]]"
    (tmp_path / "bad.toml").write_text(bad.replace("cancel-A2", "cancel-A1") * 2)
    error = run(*words, code=2)["error"]
    assert (error["what"], error["where"]) == ("two checks of one task have the id 'a'", "bad.toml: check a")
    alone = bad.replace("functional", "process").replace("cancel-A2", "cancel-A1")
    (tmp_path / "bad.toml").write_text("drafted = 'left_out'\n" + alone)
    assert run(*words, code=2)["error"]["what"] == "no functional check is left"
    error = run(*words[:-1], ".", code=2)["error"]
    assert error == {
        "what": "a folder, not a file",
        "where": ".",
        "expected": "a TOML file",
        "mend": "name the file in it",
    }
