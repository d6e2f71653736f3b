"""Inspect itself, in an environment of its own: it reads our logs, and runs our suite unchanged.

``flightschool bench evaluation`` installs Inspect into the user's cache; FLIGHTSCHOOL_INSPECT names another Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flightschool.bench.evaluation import peer_python
from flightschool.cli import main
from flightschool.evaluation.exchange import own
from flightschool.store import Workspace

PYTHON = Path(os.environ.get("FLIGHTSCHOOL_INSPECT", peer_python()))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.is_file(), reason="Inspect is not installed: flightschool bench evaluation --quick"),
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
import json, sys
sys.path += sys.argv[3:]
from inspect_ai import eval
from inspect_ai.model import ModelOutput, ModelUsage, get_model

def done(*_):
    output = ModelOutput.from_content("mockllm/model", "Done.")
    output.usage = ModelUsage(input_tokens=50, output_tokens=2, total_tokens=52)
    return output

(log,) = eval(
    sys.argv[1], model=get_model("mockllm/model", custom_outputs=done), log_dir=sys.argv[2], display="none",
    task_args={"suite": "ride", "repeats": 2},
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
        from flightschool.evaluation import load_run

        theirs, own_run = load_run(space.store, taken["id"]), load_run(space.store, ours["id"])
    assert [i.success for i in theirs.items] == [i.success for i in own_run.items]
    assert [i.seed for i in theirs.items] == [i.seed for i in own_run.items]  # the same latencies met both: a pair
    assert flown["accuracy"] == sum(bool(i.success) for i in own_run.items) / len(own_run.items)
    compared = say("eval", "compare", "ride", ours["id"], taken["id"])
    assert compared["diff"] == 0.0
