"""The verbs of measuring end to end on the desk: what is frozen, flown, judged again, carried on, and refused."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flightschool.evaluation import EvaluationRun, SuiteDesign
from flightschool.models import ANTHROPIC, OPENAI, LoopbackServer, Reply, chat_reply, message_reply
from flightschool.records import Attempt, Outcome, Suite
from flightschool.store import Workspace

Run = Callable[..., Any]

FREEZE = ("eval", "freeze", "desk", "--name", "ride", "--per-family", "1", "--holdout", "0")


@pytest.fixture
def ride(run: Run, space: Path) -> Path:
    """A frozen suite of the desk, with targets."""
    frozen = run(*FREEZE, "--target", "success=0.5", "--target", "violations=0.2", "--max-calls", "40", "--json")
    assert frozen.code == 0
    assert frozen.json["design"]["targets"] == {"success": 0.5, "violations": 0.2}
    assert frozen.json["design"]["rules"]["limits"]["max_calls"] == 40
    return space


def test_a_run_has_the_keys_of_the_contract_and_is_held_against_its_targets(run: Run, ride: Path) -> None:
    good = run("eval", "run", "ride", "--policy", "oracle", "--json")
    assert good.code == 0
    told = good.json
    assert {"result", "suite", "policy", "accuracy", "latency", "risk", "strata", "infra"} <= set(told)
    assert set(told["accuracy"]) == {"mean", "low", "high", "n"}
    assert {"p50", "p95", "wall_p50", "wall_p95", "mean"} <= set(told["latency"])
    assert {"violations", "denied", "cost_usd", "enforced"} <= set(told["risk"])
    assert {row["name"]: row["state"] for row in told["targets"]}["success"] == "met"
    assert told["infra"]["rule"] == {"max_retries": 2, "most_missing": 0.02}
    with Workspace.find() as opened:
        freezes = [e.digest for e in _entries(opened) if e.action in ("freeze suite", "design suite")]
        heads = [e.digest for e in _entries(opened)]
    assert told["log_head"] in heads
    assert heads.index(told["log_head"]) >= max(map(heads.index, freezes))  # the log proves the order
    bad = run("eval", "run", "ride", "--policy", "noop", "--json")
    assert bad.code == 1  # a target is missed
    assert {row["name"]: row["state"] for row in bad.json["targets"]}["success"] == "missed"


def test_clean_and_perturbed_stand_side_by_side(run: Run, ride: Path) -> None:
    spoken = run("eval", "run", "ride", "--policy", "oracle", "--perturb", "storm", "--clean", "--json")
    assert (spoken.json["noise"], spoken.json["clean"]["noise"]) == ("storm", "clean")
    assert spoken.json["clean"]["accuracy"]["mean"] == 1.0
    assert spoken.json["accuracy"]["mean"] <= 1.0
    told = run("eval", "run", "ride", "--policy", "oracle", "--perturb", "storm", "--clean")
    assert "clean" in told.err


def test_cost_enforcement_and_budget(run: Run, ride: Path) -> None:
    priced = run("eval", "run", "ride", "--policy", "oracle", "--price-in", "1", "--price-out", "2", "--json")
    assert priced.json["risk"]["total_cost_usd"] == 0.0  # a script samples no tokens
    half = run("eval", "run", "ride", "--policy", "oracle", "--price-in", "1", "--json")
    assert (half.code, half.error["where"]) == (2, "--price-in, --price-out")
    free = run("eval", "run", "ride", "--policy", "random", "--no-enforcement", "--json")
    assert free.json["risk"]["enforced"] is False


def test_models_behind_both_formats_are_measured_and_compared(run: Run, ride: Path) -> None:
    def said(request: dict[str, Any]) -> Reply:
        return message_reply("Done.") if "system" in request else chat_reply("Done.")

    with LoopbackServer(said) as server:
        names = [server.reference("m", dialect) for dialect in (OPENAI, ANTHROPIC)]
        first, second = (run("eval", "run", "ride", "--policy", name, "--json") for name in names)
        compared = run("eval", "compare", "ride", first.json["id"], second.json["id"], "--json")
    assert (first.code, second.code) == (1, 1)  # saying so is not enough: the targets are missed
    assert [one.json["policy"] for one in (first, second)] == names
    assert first.json["accuracy"] == second.json["accuracy"]
    assert second.json["infra"]["missing"] == 0
    assert (compared.json["diff"], compared.json["winner"]) == (0.0, None)


def test_a_server_that_gives_garbage_gives_no_grades(run: Run, ride: Path) -> None:
    """No 0, no result: an error that says so, and the attempts tell why."""
    with LoopbackServer(lambda _: Reply({"error": "no such key"}, status=401)) as server:
        lost = run("eval", "run", "ride", "--policy", server.reference(), "--json")
    assert (lost.code, lost.error["what"]) == (2, "no item of the run was graded")
    with Workspace.find() as opened:
        attempts = [attempt for _, attempt in opened.store.items("attempt", Attempt)]
    assert {(one.outcome, one.reward) for one in attempts} == {(Outcome.INFRA_FAILURE, None)}
    assert "HTTP 401" in attempts[0].detail


def test_stored_attempts_are_judged_again(run: Run, ride: Path) -> None:
    run("eval", "run", "ride", "--policy", "oracle", "--keep-states")
    again = run("eval", "regrade", "eval-0001", "--json")
    assert again.code == 0
    assert (again.json["turned"], again.json["lost"], again.json["of"]) == ({}, {}, "eval-0001")
    assert again.json["accuracy"]["mean"] == 1.0
    assert run("eval", "regrade", "eval-0077", "--json").code == 2


def test_the_next_version_its_changelog_and_the_border(run: Run, ride: Path) -> None:
    run("eval", "run", "ride", "--policy", "noop")
    words = list(FREEZE)
    words[words.index("ride")] = "ride-2"
    follow = run(
        *words,
        "--max-calls",
        "40",
        "--seed",
        "3",
        "--follows",
        "ride",
        "--because",
        "two families were added",
        "--json",
    )
    assert follow.code == 0
    assert (follow.json["design"]["version"], follow.json["design"]["follows"]) == (2, "ride")
    assert follow.json["design"]["anchors"] > 0
    run("eval", "run", "ride-2", "--policy", "oracle")
    border = run("eval", "compare", "ride-2", "eval-0001", "eval-0002", "--json")
    assert border.code == 2
    assert "scores across this border are not comparable" in border.error["what"]
    assert "eval equate" in border.error["mend"]
    carried = run("eval", "equate", "eval-0001", "eval-0002", "--json")
    assert carried.json["diff"] == 1.0
    assert carried.json["equated"]["onto"] == "ride"
    assert run("eval", "equate", "eval-0002", "eval-0001", "--json").code == 2
    log = run("eval", "changelog", "ride-2", "--json").json["versions"]
    assert [row["version"] for row in log] == [1, 2]
    assert log[1]["because"] == "two families were added"
    shown = run("eval", "history", "ride-2", "--out", "h.html", "--json")
    assert [len(version["scores"]) for version in shown.json["versions"]] == [1, 1]
    assert "not comparable" in Path("h.html").read_text(encoding="utf-8")


def test_out_and_in_again(run: Run, ride: Path) -> None:
    run("eval", "run", "ride", "--policy", "oracle")
    for format_, out in (("inspect", "r.eval"), ("harbor", "job"), ("csv", "r.csv"), ("card", "card.md")):
        assert run("eval", "export", "eval-0001", "--format", format_, "--out", out, "--json").code == 0, format_
    taken = run("eval", "export", "eval-0001", "--format", "csv", "--out", "r.csv", "--json")
    assert (taken.code, taken.error["what"]) == (2, "it exists")
    assert run("eval", "export", "eval-0001", "--format", "xml", "--out", "r.xml", "--json").code == 2
    with Path("r.csv").open(newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) > 5
    for path in ("./r.eval", "./job"):
        known = run("eval", "import", path, "--json")  # measured here, kept here: taken in twice it is refused
        assert (known.code, "kept here already" in known.error["what"]) == (2, True)
    with Workspace.find() as opened:
        opened.store.delete("evaluation", "eval-0001")
    back = run("eval", "import", "./job", "--json")  # the record is gone, and the log knows what it was
    assert (back.code, back.json["id"]) == (0, "eval-0001")
    assert run("eval", "compare", "ride", "eval-0001", "eval-0001", "--json").code in (0, 1)
    missing = run("eval", "import", "./nowhere.eval", "--json")
    assert missing.code == 2


def test_a_log_that_was_cut_short_knows_no_suite_and_no_result(run: Run, ride: Path) -> None:
    run("eval", "run", "ride", "--policy", "oracle")
    run("eval", "run", "ride", "--policy", "noop")
    with Workspace.find() as opened:
        keys = sorted(opened.store.keys("log_entry"))
        opened.store.delete("log_entry", keys[-1])  # the last result
    cut = run("eval", "compare", "ride", "eval-0001", "eval-0002", "--json")
    assert (cut.code, "never measured" in cut.error["what"]) == (2, True)
    with Workspace.find() as opened:
        for key in keys[:-1]:
            opened.store.delete("log_entry", key)
    gone = run("eval", "run", "ride", "--policy", "oracle", "--json")
    assert (gone.code, "not the one that the audit log saw" in gone.error["what"]) == (2, True)


def test_one_edited_byte_of_suite_design_grader_or_result_is_refused(run: Run, ride: Path) -> None:
    run("eval", "run", "ride", "--policy", "oracle")
    run("eval", "run", "ride", "--policy", "noop")

    def edited(kind: str, key: str, type_: Any, change: Callable[[Any], Any]) -> tuple[Any, Any]:
        with Workspace.find() as opened:
            kept = opened.store.get(kind, key, type_)
            opened.store.put(kind, key, change(kept))
        measured = run("eval", "run", "ride", "--policy", "oracle", "--json")
        compared = run("eval", "compare", "ride", "eval-0002", "eval-0001", "--json")
        with Workspace.find() as opened:
            opened.store.put(kind, key, kept)
        return measured, compared

    def seed(suite: Suite) -> Suite:
        return msgspec.structs.replace(suite, seed=suite.seed + 1)

    def weights(design: SuiteDesign) -> SuiteDesign:
        part = next(iter(design.components))
        return msgspec.structs.replace(design, components={**design.components, part: "sha256:0"})

    def score(kept: EvaluationRun) -> EvaluationRun:
        first, *others = kept.items
        return msgspec.structs.replace(kept, items=(msgspec.structs.replace(first, success=True), *others))

    for measured, compared in (
        edited("suite", "ride", Suite, seed),
        edited("suite-design", "ride", SuiteDesign, weights),
    ):
        assert (measured.code, compared.code) == (2, 2)
        assert measured.error["mend"]
    measured, compared = edited("evaluation", "eval-0002", EvaluationRun, score)
    assert (measured.code, compared.code) == (0, 2)
    assert "its record was changed" in compared.error["what"]
    restored = run("eval", "compare", "ride", "eval-0002", "eval-0001", "--json")

    assert (restored.code, restored.json["winner"], restored.json["doubts"]) == (0, "candidate", [])


def test_the_best_of_many_needs_more_evidence(run: Run, ride: Path) -> None:
    one = run("eval", "compare", "ride", "noop", "oracle", "--json").json
    best = run("eval", "compare", "ride", "eval-0001", "eval-0002", "--candidates", "20", "--json").json
    assert best["diff"] == one["diff"]
    assert best["mde"] >= one["mde"]


def test_a_clear_comparison_ends_early_and_an_open_one_does_not(run: Run, ride: Path) -> None:
    clear = run("eval", "compare", "ride", "noop", "oracle", "--early", "--look-every", "4", "--json")
    assert clear.code == 0
    told = clear.json
    assert (told["winner"], told["reliable"]) == ("candidate", True)
    early = told["early"]
    assert early["ended_early"]
    assert early["num_tasks"] < early["of"]
    assert early["num_tasks"] == 4 * early["num_looks"]
    assert 0 < early["low"] <= 1.0
    assert [look["num_tasks"] for look in early["looks"]] == list(range(4, early["num_tasks"] + 1, 4))
    # the whole suite shows what was said of it
    whole = run("eval", "compare", "ride", "noop", "oracle", "--json").json
    assert early["low"] <= whole["diff"] <= early["high"]
    assert whole["early"] is None
    same = run("eval", "compare", "ride", "noop", "noop", "--early", "--json").json
    assert (same["winner"], same["early"]["ended_early"]) == (None, False)
    assert same["early"]["num_tasks"] == same["early"]["of"]
    assert (same["early"]["low"], same["early"]["high"]) == (0.0, 0.0)
    known = run("eval", "compare", "ride", "eval-0001", "oracle", "--early", "--json")
    assert (known.code, "measured already" in known.error["what"]) == (2, True)
    with Workspace.find() as opened:  # no score, but not forgotten
        logged = [e for e in _entries(opened) if e.action == "compare early"]
        assert [e.subject for e in logged] == ["early-0001", "early-0002"]
        assert logged[0].detail["digest"] == early["digest"]
        assert set(opened.store.keys("evaluation")) == {"eval-0001", "eval-0002"}


def test_exposure_counts_who_met_which_task(run: Run, ride: Path) -> None:
    run("eval", "run", "ride", "--policy", "noop", "--repeats", "2")
    run("eval", "regrade", "eval-0001")  # nothing is flown
    early = run("eval", "compare", "ride", "noop", "oracle", "--early", "--look-every", "4", "--json").json["early"]
    told = run("eval", "exposure", "ride", "--json").json
    assert (told["candidates"], told["looks"]) == (["noop", "oracle"], 0)
    seen = [one for one in told["items"] if "oracle" in one["candidates"]]
    assert len(seen) == early["num_tasks"]
    assert {one["shown"] for one in seen} == {4}  # twice, and once by each in the comparison
    assert seen[0]["candidates"] == {"noop": 3, "oracle": 1}
    assert {one["shown"] for one in told["items"] if one not in seen} == {2}
    assert told["items"] == sorted(told["items"], key=lambda one: -one["shown"])
    assert run("eval", "exposure", "nowhere", "--json").code == 2


def test_upkeep_sees_traffic_drift_in_newly_imported_traces(run: Run, ride: Path) -> None:
    from flightschool.traces import RecordedEpisode, TaskHint, TraceSet, save_traces

    run("eval", "run", "ride", "--policy", "oracle")
    calm = run("eval", "upkeep", "ride", "--json").json
    assert calm["drift"] is None
    episodes = tuple(
        RecordedEpisode(id=f"e{n}", source="t", messages=(), calls=(), hint=TaskHint(stratum="unheard of"))
        for n in range(10)
    )
    with Workspace.find() as opened:
        save_traces(opened.store, "july", TraceSet(format="test", episodes=episodes))
    drifted = run("eval", "upkeep", "ride", "--traces", "july", "--json")
    assert drifted.code == 1
    assert (drifted.json["drift"], drifted.json["new_strata"]) == (1.0, ["unheard of"])
    assert any("cannot speak for new strata" in one for one in drifted.json["proposals"])


def test_labels_of_people_beside_an_evaluation(run: Run, ride: Path) -> None:
    run("eval", "run", "ride", "--policy", "random", "--repeats", "2")
    bare = run("eval", "judged", "eval-0001", "--json")
    assert bare.code == 0
    assert bare.json["alpha"] is None
    assert (bare.json["verifier_error"], "error" in bare.json) == (None, False)
    assert "nobody has looked" in bare.json["notes"][0]


@pytest.mark.parametrize(
    ("weights", "what"),
    [
        ('{"lookup": 1.0}', "no weight for stratum"),
        ('{"lookup": 0.6, "two_step": 0.6}', "the shares sum to 1.2"),
        ("not json", "not weights"),
        ("[" * 100_000, "not weights"),
    ],
)
def test_weights_that_do_not_fit(run: Run, space: Path, weights: str, what: str) -> None:
    (space / "w.json").write_text(weights, encoding="utf-8")
    refused = run(*FREEZE, "--weights", "w.json", "--json")
    assert refused.code == 2
    assert what in refused.error["what"]


def test_a_suite_from_another_workspace_is_not_believed(
    run: Run, ride: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Workspace.find() as opened:
        suite = opened.store.get("suite", "ride", Suite)
    assert run("init", str(tmp_path / "other")).code == 0
    monkeypatch.chdir(tmp_path / "other")
    with Workspace.find() as opened:
        opened.store.put("suite", "ride", suite)
    foreign = run("eval", "run", "ride", "--policy", "noop", "--json")
    assert foreign.code == 2
    assert "not the one that the audit log saw frozen" in foreign.error["what"]


def _entries(opened: Workspace) -> list[Any]:
    from flightschool.governance import AuditLog

    return list(AuditLog(opened.store).entries())
