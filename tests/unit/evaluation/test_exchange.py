"""Formats of others: what leaves comes back as it was or not at all, and what others wrote is taken in with care."""

from __future__ import annotations

import csv
import json
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.suites import whole_suite

from flightschool.errors import GateError, InputError, TraceError
from flightschool.evaluation import EvaluationRun, RunRules, compare, evaluate, held_against, summarise
from flightschool.evaluation.exchange import (
    COLUMNS,
    model_card,
    read_harbor_job,
    read_inspect_log,
    write_csv,
    write_harbor_job,
    write_inspect_log,
    write_parquet,
)
from flightschool.lineage import canary
from flightschool.records import Attempt, Suite
from flightschool.rollouts import OraclePolicy
from flightschool.testing.miniature import MiniatureEnvironment
from flightschool.traces import import_traces
from flightschool.verification import OutcomeReward

ENVIRONMENT = MiniatureEnvironment()


def suite() -> Suite:
    return whole_suite(ENVIRONMENT, "ride")


@pytest.fixture(scope="module")
def flown() -> tuple[EvaluationRun, dict[str, Attempt]]:
    attempts: dict[str, Attempt] = {}
    run = evaluate(
        suite(),
        ENVIRONMENT,
        OraclePolicy(ENVIRONMENT),
        composition=OutcomeReward(),
        run="eval-0001",
        repeats=2,
        on_attempt=lambda attempt: attempts.update({attempt.id: attempt}),
        rules=RunRules(max_retries=1),
    )
    return run, attempts


Flown = tuple[EvaluationRun, dict[str, Attempt]]


def with_gap(flown: Flown) -> EvaluationRun:
    """The run, its first item without a grade."""
    run, _ = flown
    from flightschool.records import EndReason, Outcome

    missing = msgspec.structs.replace(
        run.items[0], success=None, outcome=Outcome.INFRA_FAILURE, reason=EndReason.ENGINE_ERROR
    )
    return msgspec.structs.replace(run, items=(missing, *run.items[1:]))


# ------------------------------------------------------------------------------------------------ Inspect


def log_of(flown: Flown, path: Path, run: EvaluationRun | None = None) -> Path:
    write_inspect_log(run or flown[0], ENVIRONMENT, flown[1].__getitem__, path)
    return path


def members(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        return {name: json.loads(archive.read(name)) for name in archive.namelist()}


def test_an_inspect_log_has_the_members_and_fields_that_its_reader_asks_for(flown: Flown, tmp_path: Path) -> None:
    run, _ = flown
    found = members(log_of(flown, tmp_path / "r.eval", with_gap(flown)))
    header = found["header.json"]
    assert header["version"] == 2
    assert (header["status"], header["eval"]["task"], header["eval"]["model"]) == ("success", "ride", "oracle")
    num_tasks = len(ENVIRONMENT.tasks())
    assert header["eval"]["dataset"]["samples"] == num_tasks
    assert header["eval"]["config"]["epochs"] == 2
    assert header["results"]["completed_samples"] == header["results"]["total_samples"] - 1 == 2 * num_tasks - 1
    samples = {name: sample for name, sample in found.items() if name.startswith("samples/")}
    assert len(samples) == 2 * num_tasks
    assert {name.rpartition("_epoch_")[2] for name in samples} == {"1.json", "2.json"}
    gap = next(s for s in samples.values() if s["id"] == run.items[0].task and s["epoch"] == 1)
    assert "scores" not in gap
    assert "no grade" in gap["error"]["message"]
    assert {s["scores"]["success"]["value"] for s in samples.values() if s is not gap} == {"C"}
    assert all(s["metadata"]["canary"] == canary(run.suite_digest) for s in samples.values())
    assert len(found["summaries.json"]) == 2 * num_tasks


def test_our_own_log_comes_back_and_is_a_trace_too(flown: Flown, tmp_path: Path) -> None:
    path = log_of(flown, tmp_path / "r.eval")
    assert read_inspect_log(path, "eval-0009").run == flown[0]
    assert len(import_traces(path).episodes) == len(flown[0].items)


def test_an_edited_or_shortened_log_is_refused(flown: Flown, tmp_path: Path) -> None:
    path = log_of(flown, tmp_path / "r.eval")
    found = members(path)
    name = next(name for name in found if name.startswith("samples/"))
    found[name]["metadata"]["flightschool"]["item"]["success"] = False

    def written(entries: dict[str, Any]) -> Path:
        out = tmp_path / "edited.eval"
        with zipfile.ZipFile(out, "w") as archive:
            for key, value in entries.items():
                archive.writestr(key, json.dumps(value))
        return out

    with pytest.raises(GateError, match="not those that were exported"):
        read_inspect_log(written(found), "x")
    del found[name]
    with pytest.raises(GateError, match="not those that were exported"):
        read_inspect_log(written(found), "x")
    cut = tmp_path / "cut.eval"
    cut.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(TraceError, match="cannot be read"):
        read_inspect_log(cut, "x")


def test_one_changed_byte_of_a_log_is_an_error_or_changes_nothing(flown: Flown, tmp_path: Path) -> None:
    path = log_of(flown, tmp_path / "r.eval")
    whole = path.read_bytes()
    refused = 0
    for at in range(4, len(whole), max(1, len(whole) // 150)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        try:
            assert read_inspect_log(path, "x").run == flown[0]  # a date of the archive, say
        except (GateError, InputError, TraceError):
            refused += 1
    assert refused > 100


def test_an_edited_attempt_does_not_leave(flown: Flown, tmp_path: Path) -> None:
    run, attempts = flown
    edited = {key: msgspec.structs.replace(one, messages=one.messages[:-1]) for key, one in attempts.items()}
    with pytest.raises(GateError, match="its record was changed"):
        write_inspect_log(run, ENVIRONMENT, edited.__getitem__, tmp_path / "r.eval")


def foreign(target: str, grades: list[Any], path: Path, **more: Any) -> Path:
    samples = [
        {
            "id": number,
            "epoch": 1,
            "input": f"What is {number} + {number}?",
            "target": target,
            "messages": [{"role": "user", "content": "?"}],
            "scores": {"match": {"value": grade}},
        }
        | ({"error": {"message": "lost"}} if grade is None else {})
        for number, grade in enumerate(grades)
    ]
    log = {"eval": {"task": "sums", "model": "m/1"} | more, "samples": samples}
    path.write_text(json.dumps(log), encoding="utf-8")
    return path


def test_logs_of_other_tasks_and_what_inspect_leaves_to_chance(tmp_path: Path) -> None:
    one = read_inspect_log(foreign("4", ["C", "I", None, 1.0, 0.5, True], tmp_path / "a.json"), "eval-0001").run
    assert [item.success for item in one.items] == [True, False, None, True, False, True]
    assert (one.suite, one.policy, one.num_missing) == ("sums", "m/1", 1)
    other = read_inspect_log(foreign("5", ["C"] * 6, tmp_path / "b.json"), "eval-0002").run
    assert one.suite_digest != other.suite_digest  # the truths were changed: no pair
    with pytest.raises(GateError, match="differ in suite_digest"):
        compare(one, other)


@pytest.mark.parametrize("grade", ["?", 3.5, [1]])
def test_a_score_that_is_no_grade_is_told(grade: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the score of sample 0 is"):
        read_inspect_log(foreign("4", [grade], tmp_path / "a.json"), "x")


def test_a_log_of_our_task_module_needs_its_suite(tmp_path: Path) -> None:
    path = foreign(
        "4", ["C"], tmp_path / "a.json", metadata={"flightschool": {"suite_digest": "sha256:x", "suite": "r"}}
    )
    with pytest.raises(GateError, match="was made with suite 'r'"):
        read_inspect_log(path, "x", suite=suite(), environment=ENVIRONMENT)


# ------------------------------------------------------------------------------------------------ Harbor


def test_a_harbor_job_has_what_its_models_ask_for_and_comes_back(flown: Flown, tmp_path: Path) -> None:
    run = with_gap(flown)
    folder = tmp_path / "job"
    assert write_harbor_job(run, suite().task_digests, folder) == len(run.items)
    job = json.loads((folder / "result.json").read_text())
    assert job["n_total_trials"] == len(run.items)
    assert job["stats"]["n_errored_trials"] == 1
    trials = [json.loads(path.read_text()) for path in sorted(folder.glob("*/result.json"))]
    needed = {"task_name", "trial_name", "trial_uri", "task_id", "task_checksum", "config", "agent_info"}
    assert all(needed <= set(trial) for trial in trials)
    lost = [trial for trial in trials if trial["verifier_result"] is None]
    assert [trial["exception_info"]["exception_type"] for trial in lost] == ["APIConnectionError"]
    assert {trial["verifier_result"]["rewards"]["reward"] for trial in trials if trial not in lost} == {1.0}
    assert read_harbor_job(folder, "x") == run
    with pytest.raises(InputError, match="exists"):
        write_harbor_job(run, {}, folder)


def test_an_edited_harbor_job_of_ours_is_refused(flown: Flown, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    write_harbor_job(flown[0], suite().task_digests, folder)
    first = sorted(folder.glob("*/result.json"))[0]
    trial = json.loads(first.read_text())
    trial["agent_result"]["metadata"]["flightschool"]["success"] = False
    first.write_text(json.dumps(trial))
    with pytest.raises(GateError):
        read_harbor_job(folder, "x")
    first.unlink()
    with pytest.raises(GateError):
        read_harbor_job(folder, "x")
    (folder / "result.json").unlink()
    with pytest.raises(GateError, match="whose own result"):
        read_harbor_job(folder, "x")


def foreign_job(folder: Path, rows: list[tuple[str, str, float | None]], agent: str = "codex") -> Path:
    for number, (task, checksum, reward) in enumerate(rows):
        trial = {
            "task_name": task,
            "trial_name": f"{task}__{number}",
            "task_checksum": checksum,
            "source": "bench",
            "agent_info": {"name": agent, "version": "1", "model_info": {"name": "m"}},
            "verifier_result": None if reward is None else {"rewards": {"reward": reward}},
            "reward_valid": reward is not None,
            "agent_execution": {"started_at": "2026-01-01T00:00:00Z", "finished_at": "2026-01-01T00:00:02Z"},
        }
        place = folder / f"{task}__{number}"
        place.mkdir(parents=True)
        (place / "result.json").write_text(json.dumps(trial))
    return folder


def test_jobs_of_others_are_evaluations(tmp_path: Path) -> None:
    rows = [(f"t{n}", f"c{n}", reward) for n in range(6) for reward in (1.0, 0.0 if n else None)]
    run = read_harbor_job(foreign_job(tmp_path / "a", rows), "eval-0001")
    assert (run.suite, run.policy, run.repeats, run.num_missing) == ("bench", "codex (m)", 2, 1)
    assert run.items[0].wall_ms == 2000.0
    changed = read_harbor_job(foreign_job(tmp_path / "b", [(t, f"{c}x", r) for t, c, r in rows]), "eval-0002")
    with pytest.raises(GateError, match="suite_digest"):
        compare(run, changed)


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([], "no trials"),
        ([("t", "a", 1.0), ("t", "b", 1.0)], "two checksums"),
    ],
)
def test_jobs_that_are_none(rows: list[tuple[str, str, float | None]], what: str, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    with pytest.raises(InputError, match=what):
        read_harbor_job(foreign_job(tmp_path / "job", rows), "x")


def test_a_job_cut_short_is_told(tmp_path: Path) -> None:
    folder = foreign_job(tmp_path / "job", [("t", "a", 1.0)])
    path = next(folder.glob("*/result.json"))
    path.write_text(path.read_text()[:30])
    with pytest.raises(InputError, match="a trial cannot be read"):
        read_harbor_job(folder, "x")


# ------------------------------------------------------------------------------------------------ tables and cards


def test_a_table_has_a_row_an_attempt_and_an_empty_cell_for_no_grade(flown: Flown, tmp_path: Path) -> None:
    run = with_gap(flown)
    evil = msgspec.structs.replace(run.items[1], task="=HYPERLINK(1)")
    run = msgspec.structs.replace(run, items=(run.items[0], evil, *run.items[2:]))
    assert write_csv(run, tmp_path / "t.csv") == len(run.items)
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert [row["success"] for row in rows[:3]] == ["", "1", "1"]
    assert rows[1]["task"] == "'=HYPERLINK(1)"
    assert {row["suite_digest"] for row in rows} == {run.suite_digest}


def test_parquet_asks_for_its_library_by_name(flown: Flown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="pyarrow") as refused:
        write_parquet(flown[0], tmp_path / "t.parquet")
    assert "parquet" in refused.value.mend
    assert not (tmp_path / "t.parquet").exists()


def test_a_model_card_shows_intervals_and_what_they_do_not_say(flown: Flown) -> None:
    run = msgspec.structs.replace(with_gap(flown), suite="a|b", lineage="trained in *r1*", enforced=False)
    summary = summarise(run)
    text = model_card(run, summary, targets=held_against({"success": 0.2}, run, summary))
    assert "| success, weighted by traffic | 1 |" in text
    assert "trained in \\*r1\\*" in text
    assert "1 of" in text
    assert "have no grade" in text
    assert "let through" in text
    assert "target success >= 0.2: **met**" in text
    assert run.digest in text
