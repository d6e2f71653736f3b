"""The verbs of measuring on the tau-bench airline traces, from import to the comparison, with scripted policies.

The data are not part of the repository: FLIGHTSCHOOL_SHARED_DATA names the folder that holds tau_bench_airline/.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests import needs

from flightschool.cli import main

AIRLINE = needs.SHARED_DATA / "tau_bench_airline"

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    needs.shared_data("tau_bench_airline/trajectories.json"),
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
    assert calm["drift"] < 0.1  # strata are derived under the suite's names, though sealing made some of them small
    assert not any("drifted" in proposal for proposal in calm["proposals"])
    assert calm["new_strata"] == []
    code, again = said(capsys, "eval", "regrade", oracle["id"])
    assert (code, again["turned"], again["lost"]) == (0, {}, {})
    code, accepted = said(capsys, "eval", "accept", "ride", "--policy", "noop", "--reason", "a test", "--target", "0.9")
    assert (code, accepted["accepted"]) == (1, False)
    assert any("recordings answer some truths only" in note for note in accepted["notes"])


def test_scores_are_held_against_outcomes_of_deployment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three policies in nine strata. What deployment is said to have seen follows the scores, or has nothing to do with
    them; the suite holds nine tenths of the families, since cells of one or two tasks bear no claim."""
    assert main(["init", str(tmp_path / "space")]) == 0
    monkeypatch.chdir(tmp_path / "space")
    assert main(["traces", "import", str(AIRLINE / "trajectories.json"), "--name", "airline"]) == 0
    built = ("env", "build", "--from-traces", "airline", "--name", "airline", "--state", str(_state(tmp_path)))
    assert main([*built]) == 0
    for name, fraction in (("wide", "0.9"), ("narrow", "0.3")):
        code, _ = said(
            capsys, "eval", "freeze", "airline", "--name", name, "--fraction", fraction, "--holdout", "0", "--seed", "1"
        )
        assert code == 0
    runs = {}
    for suite in ("wide", "narrow"):
        for policy in ("oracle", "noop", "random"):
            code, runs[suite, policy] = said(capsys, "eval", "run", suite, "--policy", policy, "--repeats", "2")
            assert code == 0
    related, unrelated = tmp_path / "related.csv", tmp_path / "unrelated.json"
    rows = [(p, name, one) for (s, p), run in runs.items() if s == "wide" for name, one in run["strata"].items()]
    chance = [(37 * place) % 200 for place in range(len(rows))]  # as spread out as the others, in an order of its own
    lines = [f"{policy},{name},{round(20 + 150 * one['mean'])},200" for policy, name, one in rows]
    related.write_text("\n".join(["version,stratum,successes,total", *lines]))
    unrelated.write_text(
        json.dumps(
            [
                {"version": policy, "stratum": name, "successes": luck, "total": 200}
                for (policy, name, _), luck in zip(rows, chance, strict=True)
            ]
        )
    )
    code, found = said(capsys, "eval", "validity", "wide", "--deployment", str(related))
    assert (code, found["claimed"], found["num_versions"], found["num_cells"]) == (0, True, 3, 27)
    assert found["pearson"]["low"] > 0.9
    assert found["corrected"] >= found["pearson"]["value"] - 1e-9
    assert min(found["reliability_suite"], found["reliability_deployment"]) >= 0.5
    oracle = next(one for one in found["transported"] if one["version"] == "oracle")
    assert oracle["residual"] < -0.1  # it does less well out there than here: .1 + .75 of its score
    assert abs(oracle["observed"] - 0.1 - 0.75 * oracle["predicted"]) < 0.02
    code, none = said(capsys, "eval", "validity", "wide", "--deployment", str(unrelated))
    assert (code, none["claimed"]) == (1, False)
    assert none["pearson"]["low"] < 0 < none["pearson"]["high"]
    code, thin = said(capsys, "eval", "validity", "narrow", "--deployment", str(related))
    assert (code, thin["claimed"], thin["corrected"]) == (1, False, None)  # however well it correlates
    assert thin["pearson"]["value"] > 0.8
    assert any("the suite's cells are not reliable" in note for note in thin["notes"])


def _state(folder: Path) -> Path:
    place = folder / "state"
    place.mkdir()
    for name in ("flights", "reservations", "users"):
        shutil.copy(AIRLINE / f"{name}.json", place)
    return place
