"""The verbs of measuring on the tau-bench airline traces, from import to the comparison, with scripted policies.

The data are not part of the repository: FLIGHTSCHOOL_SHARED_DATA names the folder that holds tau_bench_airline/.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from flightschool.cli import main

DATA = Path(os.environ.get("FLIGHTSCHOOL_SHARED_DATA", Path(__file__).parents[4] / "shared" / "data"))
AIRLINE = DATA / "tau_bench_airline"

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not (AIRLINE / "trajectories.json").is_file(),
        reason=f"the tau-bench airline data are absent from {AIRLINE}; set FLIGHTSCHOOL_SHARED_DATA",
    ),
]


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_freeze_run_compare_accept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLIGHTSCHOOL_KEYS", str(tmp_path / "keys"))
    assert main(["init", str(tmp_path / "space")]) == 0
    monkeypatch.chdir(tmp_path / "space")
    assert main(["traces", "import", str(AIRLINE / "trajectories.json"), "--name", "airline"]) == 0
    assert main(["env", "build", "--from-traces", "airline", "--name", "airline"]) == 0
    freeze = ("eval", "freeze", "airline", "--name", "ride", "--fraction", "0.4", "--holdout", "0.1", "--seed", "1")
    code, refused = said(capsys, *freeze)
    assert (code, "no sound audit" in refused["error"]["what"]) == (2, True)
    code, frozen = said(capsys, *freeze, "--target", "success=0.2", "--override", "recordings answer some truths only")
    assert code == 0
    assert frozen["num_tasks"] > 10
    assert frozen["num_holdout"] >= 2
    code, oracle = said(capsys, "eval", "run", "ride", "--policy", "oracle")
    assert code == 0
    assert {"result", "suite", "policy", "accuracy", "latency", "risk", "strata", "infra"} <= set(oracle)
    assert set(oracle["accuracy"]) == {"mean", "low", "high", "n"}
    assert oracle["infra"]["missing"] == 0
    # nine strata of one to three tasks: the headline knows less than sixteen tasks of one kind would
    assert oracle["accuracy"]["high"] - oracle["accuracy"]["low"] > 0.4
    alone = [one for one in oracle["strata"].values() if one is not None and one["n"] == 1]
    assert alone
    assert {(one["low"], one["high"]) for one in alone} == {(None, None)}
    code, compared = said(capsys, "eval", "compare", "ride", "noop", oracle["id"])
    assert code == 0
    assert {"diff", "low", "high", "mde", "reliable", "winner"} <= set(compared)
    assert (compared["winner"], compared["low"] > 0.3) == ("candidate", True)
    code, calm = said(capsys, "eval", "upkeep", "ride", "--traces", "airline")
    assert calm["drift"] < 0.5  # the traces name no strata: they are derived as the environment's were
    assert calm["new_strata"] == []
    code, again = said(capsys, "eval", "regrade", oracle["id"])
    assert (code, again["turned"], again["lost"]) == (0, {}, {})
    code, accepted = said(capsys, "eval", "accept", "ride", "--policy", "noop", "--reason", "a test", "--target", "0.9")
    assert (code, accepted["accepted"]) == (1, False)
    assert any("recordings answer some truths only" in note for note in accepted["notes"])
