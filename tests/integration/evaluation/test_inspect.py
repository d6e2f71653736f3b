"""Inspect itself, in an environment of its own: it reads our logs, and runs our suite unchanged, by its own command
line, against a model server on the loopback.

``flightschool bench evaluation`` installs Inspect into the user's cache; FLIGHTSCHOOL_INSPECT names another Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import needs

from flightschool.bench.evaluation import peer_python
from flightschool.cli import main
from flightschool.environments import load_environment
from flightschool.evaluation import load_run
from flightschool.evaluation.exchange import own
from flightschool.models import LoopbackServer, Reply
from flightschool.records import Message
from flightschool.rollouts import scripted_turns
from flightschool.store import Workspace

ROOT = Path(__file__).parents[3]
PYTHON = Path(os.environ.get("FLIGHTSCHOOL_INSPECT", peer_python()))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON.is_file(),
        reason=needs.reason(
            "Inspect", "`flightschool bench evaluation --quick` installs it; or set FLIGHTSCHOOL_INSPECT"
        ),
    ),
]

READ = """
import json, sys
from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries
log = read_eval_log(sys.argv[1])
summaries = read_eval_log_sample_summaries(sys.argv[1])
print(json.dumps({
    "status": log.status, "task": log.eval.task, "model": log.eval.model, "epochs": log.eval.config.epochs,
    "samples": len(log.samples), "summaries": len(summaries),
    "grades": [s.scores["success"].value for s in log.samples],
    "calls": [len([m for m in s.messages if m.role == "tool"]) for s in log.samples],
    "canary": log.eval.metadata["canary"],
    "accuracy": log.results.scores[0].metrics["accuracy"].value,
}))
"""

FLY = """
import json, os, sys
sys.path += sys.argv[3:]
from inspect_ai import eval
from inspect_ai.model import ModelOutput, ModelUsage, get_model

def done(*_):
    output = ModelOutput.from_content("mockllm/model", "Done.")
    output.usage = ModelUsage(input_tokens=50, output_tokens=2, total_tokens=52)
    return output

(log,) = eval(
    sys.argv[1], model=get_model("mockllm/model", custom_outputs=done), log_dir=sys.argv[2], display="none",
    task_args={"suite": "ride", "repeats": 2, "workspace": os.getcwd()},
)
print(json.dumps({"status": log.status, "error": str(log.error), "location": log.location,
                  "accuracy": log.results.scores[0].metrics["accuracy"].value}))
"""


def asked(script: str, *words: str) -> dict[str, Any]:
    done = subprocess.run([str(PYTHON), "-c", script, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


Say = Callable[..., dict[str, Any]]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """A workspace with a frozen suite of the desk, and a mouth."""
    monkeypatch.setenv("FLIGHTSCHOOL_KEYS", str(tmp_path / "keys"))
    assert main(["init", str(tmp_path / "space")]) == 0
    monkeypatch.chdir(tmp_path / "space")
    assert main(["eval", "freeze", "desk", "--name", "ride", "--per-family", "1", "--holdout", "0"]) == 0

    def spoken(*words: str) -> dict[str, Any]:
        capsys.readouterr()
        main([*words, "--json"])
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return spoken


def test_inspect_reads_what_we_write(say: Say) -> None:
    run = say("eval", "run", "ride", "--policy", "oracle", "--repeats", "2")
    say("eval", "export", run["id"], "--format", "inspect", "--out", "r.eval")
    found = asked(READ, "r.eval")
    assert (found["status"], found["task"], found["model"], found["epochs"]) == ("success", "ride", "oracle", 2)
    assert found["samples"] == found["summaries"] == run["summary"]["num_items"]
    assert set(found["grades"]) == {"C"}
    assert min(found["calls"]) >= 1
    assert found["accuracy"] == 1.0
    assert found["canary"].startswith("flightschool-suite-canary")


def test_inspect_runs_our_suite_and_its_log_is_judged_again(say: Say) -> None:
    ours = say("eval", "run", "ride", "--policy", "noop", "--repeats", "2")
    module = Path(own.__file__).with_name("inspect_task.py")
    more = [sysconfig.get_path("purelib"), str(Path(own.__file__).parents[3])]
    flown = asked(FLY, f"{module}@flightschool_suite", "logs", *more)
    assert flown["status"] == "success", flown["error"]
    taken = say("eval", "import", flown["location"].removeprefix("file://"), "--suite", "ride")
    assert taken["num_missing"] == 0
    with Workspace.find() as space:
        theirs, own_run = load_run(space.store, taken["id"]), load_run(space.store, ours["id"])
    assert [i.success for i in theirs.items] == [i.success for i in own_run.items]
    assert [i.seed for i in theirs.items] == [i.seed for i in own_run.items]  # the same latencies met both: a pair
    assert flown["accuracy"] == sum(bool(i.success) for i in own_run.items) / len(own_run.items)
    compared = say("eval", "compare", "ride", ours["id"], taken["id"])
    assert compared["diff"] == 0.0


class HalfPilot:
    """A model server that plays the reference on every second task, and says that it is done on the others."""

    def __init__(self) -> None:
        desk = load_environment("desk")
        self.turns = {
            task.instruction: scripted_turns(desk.reference(task.id).oracle, desk.reference(task.id).oracle_answer)
            for number, task in enumerate(desk.tasks())
            if number % 2
        }

    def __call__(self, request: dict[str, Any]) -> Reply:
        roles = [message["role"] for message in request["messages"]]
        last = len(roles) - 1 - roles[::-1].index("user")  # behind the worked example
        asked = request["messages"][last]["content"]
        asked = asked if isinstance(asked, str) else "".join(part["text"] for part in asked)
        turn = roles[last:].count("assistant")
        said = [*self.turns.get(asked, ()), Message(role="assistant", content="Done.")][turn]
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
            for c in said.tool_calls
        ]
        message = {"role": "assistant", "content": said.content, **({"tool_calls": calls} if calls else {})}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        body = {"id": "c", "object": "chat.completion", "created": 0, "model": request["model"], "usage": usage}
        return Reply({**body, "choices": [choice]})


def joined(site: Path) -> Path:
    """Stands for an environment in which both packages are installed, with the entry points of our project file."""
    more = [sysconfig.get_path("purelib"), str(Path(own.__file__).parents[3])]
    told = site / "flightschool_points-0.dist-info"
    told.mkdir(parents=True)
    (site / "sitecustomize.py").write_text(f"import sys\nsys.path += {more!r}\n", encoding="utf-8")
    points = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    lines = [f"{name} = {value}" for name, value in points["inspect_ai"].items()]
    (told / "entry_points.txt").write_text("\n".join(["[inspect_ai]", *lines]), encoding="utf-8")
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: flightschool-points\nVersion: 0\n", encoding="utf-8")
    return site


def inspected(site: Path, named: str, base_url: str, *words: str) -> Path:
    """``inspect eval`` as from a shell in the workspace; the log that it wrote."""
    done = subprocess.run(
        [
            str(PYTHON.with_name("inspect")),
            *("eval", named, "-T", "suite=ride", "--model", "openai/pilot", "-M", "responses_api=false"),
            *("--log-dir", "logs", "--display", "none", "--max-connections", "4", *words),
        ],
        env={
            **os.environ,
            "PWD": str(Path.cwd()),  # as a shell would
            "PYTHONPATH": str(site),
            "OPENAI_BASE_URL": base_url,
            "OPENAI_API_KEY": "none",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
    (log,) = Path("logs").glob("*.eval")
    return log


@pytest.mark.parametrize("named", ["flightschool/flightschool_suite", "FILE@flightschool_suite"])
def test_the_published_command_line_measures_as_we_do(say: Say, tmp_path: Path, named: str) -> None:
    """``inspect eval flightschool/flightschool_suite`` and ``eval run --policy openai:…`` give the same grades."""
    module = Path(own.__file__).with_name("inspect_task.py")
    with LoopbackServer(HalfPilot()) as server:
        reference = server.reference("pilot")
        ours = say("eval", "run", "ride", "--policy", reference)
        base_url = reference.removeprefix("openai:").partition("#")[0]
        log = inspected(joined(tmp_path / "site"), named.replace("FILE", str(module)), base_url)
    taken = say("eval", "import", f"./{log}", "--suite", "ride")
    assert taken["num_missing"] == 0
    with Workspace.find() as space:
        theirs, own_run = load_run(space.store, taken["id"]), load_run(space.store, ours["id"])
    assert theirs.policy == "inspect:openai/pilot"
    grades = [item.success for item in own_run.items]
    assert [item.success for item in theirs.items] == grades
    assert len(set(grades)) == 2
    assert [item.num_calls for item in theirs.items] == [item.num_calls for item in own_run.items]
    compared = say("eval", "compare", "ride", ours["id"], taken["id"])
    assert (compared["diff"], compared["mcnemar"]["gained"], compared["mcnemar"]["lost"]) == (0.0, 0, 0)


def test_a_model_that_cannot_be_reached_gives_no_grade_there_either(say: Say, tmp_path: Path) -> None:
    """Errors of a provider's client are nobody's failure: samples with errors, missing once they are taken in."""
    with LoopbackServer(lambda _: Reply({"error": {"message": "no such model"}}, status=404)) as server:
        base_url = server.reference().removeprefix("openai:").partition("#")[0]
        log = inspected(
            joined(tmp_path / "site"), "flightschool/flightschool_suite", base_url, "--no-fail-on-error", "--limit", "3"
        )
    taken = say("eval", "import", f"./{log}", "--suite", "ride")
    assert taken["num_missing"] == 3
    with Workspace.find() as space:
        theirs = load_run(space.store, taken["id"])
    assert {(item.success, str(item.reason)) for item in theirs.items} == {(None, "engine_error")}
