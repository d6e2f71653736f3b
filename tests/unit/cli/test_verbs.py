"""What the verbs do, as a user sees it: in a workspace, on the built-in desk, with scripted policies."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from flightschool.cli import doctor
from flightschool.cli.jobs import find_job, note_job
from flightschool.cli.rollout import spread
from flightschool.cli.train import rooted
from flightschool.environments import load_environment
from flightschool.errors import NotFoundError
from flightschool.records import Task
from flightschool.reports import ReportData
from flightschool.stations import JobSettings, run_name
from flightschool.store import Workspace

Run = Callable[..., Any]

CHAT = {
    "messages": [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "What is the state of pump P-1?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "get_asset", "arguments": '{"asset": "P-1"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"asset": "P-1", "state": "ok"}'},
        {"role": "assistant", "content": "It is ok."},
    ],
    "metadata": {"success": True},
}


def test_a_job_is_found_by_the_run_that_it_makes(tmp_path: Path) -> None:
    settings = JobSettings()
    with Workspace.create(tmp_path / "w") as space:
        run_in = load_environment(settings.environment.name, space)
        commands = ("flightschool quickstart --seed 0",)
        first = note_job(space, settings, job="quickstart", model=tmp_path, report="report.html", commands=commands)
        other = settings.model_copy(update={"seed": 1})
        note_job(space, other, job="quickstart", model=tmp_path, report="report.html", commands=commands)
        assert find_job(space, run_name("quickstart", settings, run_in, tmp_path)) == first
        with pytest.raises(NotFoundError, match="no job of this workspace"):
            find_job(space, "quickstart-00000000")


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    path = tmp_path / "traces.jsonl"
    path.write_text(json.dumps(CHAT) + "\n", encoding="utf-8")
    return path


def test_init_makes_a_workspace_once(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    spoken = run("init", str(folder), "--json")
    assert spoken.code == 0
    assert {"flightschool.toml", "train.toml", "README.md", "tools.py"} <= {Path(f).name for f in spoken.json["files"]}
    assert all(Path(name).is_file() for name in spoken.json["files"])
    before = sorted(path.name for path in folder.iterdir())
    again = run("init", str(folder), "--json")
    assert again.code == 2
    assert again.error["mend"]
    assert sorted(path.name for path in folder.iterdir()) == before


def test_the_example_of_a_new_workspace_walks_the_road_to_a_rollout(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("init", str(tmp_path / "mine")).code == 0
    monkeypatch.chdir(tmp_path / "mine")
    assert run("traces", "import", "traces/example.jsonl", "--name", "mine").code == 0
    built = ("--from-traces", "mine", "--name", "my-agent", "--state", "state", "--code", "./tools.py")
    assert run("env", "build", *built).code == 0
    assert (tmp_path / "mine" / "environments" / "my-agent" / "episodes.jsonl").is_file()
    rolled = run("rollout", "my-agent", "--policy", "oracle", "-n", "2", "--json")
    assert [episode["reward"]["total"] for episode in rolled.json["episodes"]] == pytest.approx([1.0, 1.0], abs=0.1)
    bare = ("--from-traces", "mine", "--name", "bare", "--state", "state", "--code", "./tools.py", "--no-episodes")
    assert run("env", "build", *bare).code == 0
    assert not (tmp_path / "mine" / "environments" / "bare" / "episodes.jsonl").exists()


def test_paths_of_a_configuration_are_relative_to_its_file(tmp_path: Path) -> None:
    settings = JobSettings.model_validate(
        {
            "environment": {"traces": "t.jsonl", "state": "state", "code": "./tools.py"},
            "model": {"name": "./model"},
            "faults": {"training": "./rain.toml"},
            "harness": {"command": "python3 ./agent.py"},
            "engine": {"kind": "vllm", "url": "http://127.0.0.1:8000", "publish_to": "weights"},
        }
    )
    found = rooted(settings, tmp_path)
    assert found.environment.traces == str(tmp_path / "t.jsonl")
    assert found.environment.state == tmp_path / "state"
    assert found.environment.code == str(tmp_path / "tools.py")
    assert found.model.name == str(tmp_path / "model")
    assert (found.faults.training, found.faults.evaluation) == (str(tmp_path / "rain.toml"), "noisy")
    assert found.harness.command == ("python3", "./agent.py")
    assert found.harness.directory == tmp_path  # where the program is started: its words are its own affair
    assert found.engine.publish_to == tmp_path / "weights"
    elsewhere = JobSettings.model_validate({"harness": {"command": "./run", "directory": "agents"}})
    assert rooted(elsewhere, tmp_path).harness.directory == tmp_path / "agents"
    named = JobSettings.model_validate({"environment": {"traces": "shipped", "code": "my_agent.tools"}})
    assert rooted(named, tmp_path) == named


def test_a_device_is_looked_for_before_the_model_is(run: Run, space: Path) -> None:
    table = '[model]\nname = "no-such-model"\n'
    (space / "t.toml").write_text(table + '[training]\ndevice = "cuda:77"\n', encoding="utf-8")
    spoken = run("train", "t.toml", "--json")
    assert (spoken.code, spoken.error["where"]) == (2, "training.device")
    (space / "t.toml").write_text(table + '[faults]\ntraining = "hurricane"\n', encoding="utf-8")
    assert run("train", "t.toml", "--json").error["where"] == "faults.training"


def test_train_takes_a_configuration_or_a_run(run: Run, space: Path) -> None:
    assert run("train", "--json").error["what"] == "nothing to train"
    assert run("train", "train.toml", "--resume", "x", "--json").code == 2
    (space / "wrong.toml").write_text("[training]\nnum_stps = 3\n", encoding="utf-8")
    spoken = run("train", "wrong.toml", "--json")
    assert spoken.code == 2
    assert spoken.error["mend"] == "did you mean 'num_steps'?"


def test_doctor_names_what_is_not_built_and_what_is_not_installed(
    run: Run, space: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_of(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(doctor, "version", none_of)
    found = {check["name"]: check for check in run("doctor", "--json").json["checks"]}
    assert found["python"]["state"] == "ok"
    assert found["other engines"]["state"] == "note"
    assert "Ray is not built yet" in found["other engines"]["found"]
    assert found["engine hf"]["state"] == "note"
    assert found["engine hf"]["mend"] == "pip install 'flightschool[hf]'"
    monkeypatch.undo()
    assert doctor._extra("grammar", "pytest", "grammar", "x").found.startswith("pytest ")
    assert str(space) in found["workspace"]["found"]


def test_traces_come_in_and_go_out(run: Run, space: Path, traces: Path) -> None:
    spoken = run("traces", "import", str(traces), "--name", "june", "--json")
    assert spoken.code == 0
    assert spoken.json["traces"]["num_episodes"] == 1
    assert spoken.json["traces"]["tools"][0]["name"] == "get_asset"
    assert run("traces", "show", "june", "--json").json["traces"] == spoken.json["traces"]
    assert [one["name"] for one in run("traces", "list", "--json").json["traces"]] == ["june"]
    out = space / "out.json"
    assert run("traces", "export", "june", "--format", "otlp", "--out", str(out)).code == 0
    again = run("traces", "import", str(out), "--name", "again", "--json")
    assert again.json["traces"]["num_calls"] == 1


def test_broken_traces_are_one_error_and_leave_nothing(run: Run, space: Path, traces: Path) -> None:
    traces.write_text(json.dumps(CHAT) + "\n{broken\n", encoding="utf-8")
    spoken = run("traces", "import", str(traces), "--name", "june", "--json")
    assert spoken.code == 2
    assert "2" in spoken.error["where"]
    assert run("traces", "list", "--json").json["traces"] == []
    missing = run("traces", "import", "nowhere.jsonl", "--name", "june", "--json")
    assert missing.code == 2
    assert missing.error["where"] == "nowhere.jsonl"
    unknown = run("traces", "show", "jun", "--json")
    assert unknown.code == 2
    named_as_path = run("traces", "import", str(traces), "--name", "a/b", "--json")
    assert named_as_path.error["where"] == "--name"


def test_rollout_has_exactly_the_keys_of_the_contract(run: Run, space: Path) -> None:
    spoken = run("rollout", "desk", "--policy", "oracle", "-n", "6", "--seed", "3", "--json")
    assert spoken.code == 0
    assert set(spoken.json) == {"schema", "env", "policy", "seed", "episodes", "summary"}
    assert len(spoken.json["episodes"]) == 6
    for episode in spoken.json["episodes"]:
        assert set(episode) == {
            "id", "task", "outcome", "reason", "cause", "reward", "violations", "num_tool_calls", "num_tokens",
            "virtual_ms", "wall_s", "digest",
        }  # fmt: skip
        assert set(episode["reward"]) == {"outcome", "process", "latency", "gate", "total"}
        assert episode["reward"]["outcome"] == 1.0
    assert spoken.json["summary"]["success"] == 1.0


def test_rollouts_are_kept_shown_and_replayed(run: Run, space: Path) -> None:
    first = run("rollout", "desk", "--policy", "random", "-n", "4", "--perturb", "storm", "--json")
    again = run("rollout", "desk", "--policy", "random", "-n", "4", "--perturb", "storm", "--json")
    digests = [episode["digest"] for episode in first.json["episodes"]]
    assert digests == [episode["digest"] for episode in again.json["episodes"]]
    listed = run("runs", "list", "--json").json["rollouts"]
    assert [one["id"] for one in listed] == ["rollout-0001", "rollout-0002"]
    assert listed[0]["noise"] == "storm"
    shown = run("runs", "show", "rollout-0002", "--json").json["episodes"]
    assert [episode["digest"] for episode in shown] == digests
    for episode in shown:
        replayed = run("runs", "replay", episode["id"], "--json")
        assert replayed.code == 0
        assert replayed.json["identical"] is True
        assert replayed.json["replayed_digest"] == episode["digest"]
    unknown = run("runs", "replay", "rollout-0009:x", "--json")
    assert unknown.code == 2


def test_replay_in_an_environment_with_options(run: Run, space: Path) -> None:
    spoken = run("rollout", "desk?seed=5", "--policy", "oracle", "-n", "1", "--json")
    replayed = run("runs", "replay", spoken.json["episodes"][0]["id"], "--json")
    assert replayed.json["identical"] is True


def test_rollout_runs_without_a_workspace(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("rollout", "desk", "--policy", "noop", "-n", "2", "--json").code == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("rollout", "dsk", "--policy", "noop"),
        ("rollout", "desk", "--policy", "nop"),
        ("rollout", "desk", "--policy", "noop", "--perturb", "strom"),
        ("rollout", "desk", "--policy", "model:./nowhere"),
        ("rollout", "desk", "--policy", "run:nothing"),
        ("rollout", "./nowhere.py", "--policy", "noop"),
        ("eval", "run", "nothing", "--policy", "noop"),
        ("train", "nowhere.toml"),
        ("train", "--resume", "nothing"),
        ("runs", "report", "nothing"),
        ("models", "get", "smolm2"),
        ("models", "check", "./nowhere"),
        ("screen", "desk", "--policy", "noop"),
        ("env", "build", "--from-traces", "nothing", "--name", "e"),
    ],
    ids=" ".join,
)
def test_bad_input_is_one_error_with_a_mend(words: tuple[str, ...], run: Run, space: Path) -> None:
    spoken = run(*words, "--json")
    assert spoken.code == 2
    assert spoken.error["mend"]


def test_audit_keeps_verdicts_and_the_exit_code_tells(run: Run, space: Path) -> None:
    tasks = [
        episode["task"]
        for episode in run("rollout", "desk", "--policy", "oracle", "-n", "2", "--json").json["episodes"]
    ]
    spoken = run("audit", "desk", "--task", tasks[0], "--task", tasks[1], "--json")
    verdicts = [found["verdict"] for found in spoken.json["tasks"]]
    assert [found["task"] for found in spoken.json["tasks"]] == tasks
    assert spoken.code == (0 if set(verdicts) == {"sound"} else 1)
    assert sum(spoken.json["counts"].values()) == 2
    with Workspace.find() as opened:
        assert len(opened.store.keys("audit")) == 2


def test_freeze_measure_and_compare(run: Run, space: Path) -> None:
    ask = ("eval", "freeze", "desk", "--name", "ride", "--strata", "stratum", "--per-family", "1", "--json")
    refused = run(*ask)
    assert (refused.code, "no sound audit" in refused.error["what"]) == (2, True)
    assert "flightschool audit desk" in refused.error["mend"]
    frozen = run(*ask, "--override", "a test of the verb")
    assert frozen.code == 0
    assert frozen.json["sealed"]["override"] == "a test of the verb"
    assert frozen.json["holdout"] == "ride-holdout"
    assert abs(sum(share["weight"] for share in frozen.json["suite"]["strata"]) - 1) < 1e-9
    measured = run("eval", "run", "ride", "--policy", "oracle", "--json")
    assert measured.code == 0
    assert measured.json["id"] == "eval-0001"
    better = run("eval", "compare", "ride", "noop", "eval-0001", "--json")
    assert {"diff", "low", "high", "mde", "reliable", "winner"} <= set(better.json)
    assert better.json["diff"] > 0.9
    assert better.json["winner"] == "candidate"
    worse = run("eval", "compare", "ride", "eval-0001", "noop", "--json")
    assert worse.code == 1
    assert worse.json["winner"] == "baseline"
    assert {"suite", "policy", "accuracy", "latency", "risk", "strata", "infra", "lineage"} <= set(measured.json)
    assert measured.json["latency"]["p50"]["value"] <= measured.json["latency"]["p95"]["value"]
    assert measured.json["accuracy"]["mean"] == 1.0
    assert measured.json["lineage"]["statement"].startswith("not trained")
    sealed = run("eval", "run", "ride-holdout", "--policy", "noop", "--json")
    assert sealed.code == 2
    assert "eval accept" in sealed.error["mend"]
    assert run("eval", "freeze", "desk", "--name", "ride", "--seed", "9", "--per-family", "1", "--json").code == 2
    assert run("log", "verify", "--json").json["ok"] is True


def test_the_sealed_part_opens_for_acceptance_alone(run: Run, space: Path) -> None:
    whole = run("env", "show", "desk", "--json").json["digest"]
    ask = ("eval", "freeze", "desk", "--name", "ride", "--per-family", "1", "--looks", "2")
    frozen = run(*ask, "--override", "a test of the verb", "--json").json
    left = frozen["sealed"]["environment_digest"]
    assert left != whole
    assert run("rollout", "desk", "--policy", "noop", "-n", "1", "--json").code == 0  # what is left goes on
    accept = ("eval", "accept", "ride", "--policy", "oracle", "--reason", "release 4", "--json")
    opened = run(*accept, "--target", "0.2")
    assert (opened.code, opened.json["accepted"], opened.json["look"], opened.json["looks"]) == (0, True, 1, 2)
    assert opened.json["accuracy"]["value"] == 1.0
    assert "not against the operator" in opened.json["statement"]
    failed = run(*[word if word != "oracle" else "noop" for word in accept], "--target", "0.5")
    assert (failed.code, failed.json["accepted"], failed.json["look"]) == (1, False, 2)
    spent = run(*accept)
    assert (spent.code, "budget is spent" in spent.error["what"]) == (2, True)
    entries = [entry.action for entry in _log()]
    assert entries.count("open holdout") == entries.count("holdout result") == 2
    other_role = run(*accept, "--role", "training")
    assert (other_role.code, "not held by role" in other_role.error["what"]) == (2, True)


def test_reliability_and_validity(run: Run, space: Path) -> None:
    run("eval", "freeze", "desk", "--name", "ride", "--per-family", "1", "--holdout", "0")
    for policy in ("oracle", "random"):
        assert run("eval", "run", "ride", "--policy", policy, "--repeats", "2", "--json").code == 0
    found = run("eval", "reliability", "eval-0001", "eval-0002", "--json")
    assert found.json["ranking"]["order"][0] == "oracle"
    assert found.json["systems"][0]["icc"]["degenerate"] is True  # the oracle always succeeds: 0/0
    assert found.code in (0, 1)
    strata = run("eval", "list", "--json").json["suites"][0]["strata"]
    rows = [
        {"version": version, "stratum": share["name"], "successes": hits, "total": 100}
        for share in strata
        for version, hits in (("oracle", 95), ("random", 3))
    ]
    Path("outcomes.json").write_text(json.dumps(rows), encoding="utf-8")
    related = run("eval", "validity", "ride", "--deployment", "./outcomes.json", "--json")
    assert related.json["num_cells"] == len(rows)
    assert related.json["pearson"]["value"] > 0.9
    missing = run("eval", "validity", "ride", "--deployment", "./nowhere.json", "--json")
    assert missing.code == 2
    tended = run("eval", "upkeep", "ride", "--json")
    assert (tended.json["num_runs"], tended.json["num_policies"], tended.json["flaky"]) == (2, 2, [])
    assert tended.code == (1 if tended.json["proposals"] else 0)


def _log() -> list[Any]:
    with Workspace.find() as opened:
        return _entries(opened)


def test_screening_wants_an_audit_and_takes_an_override(run: Run, space: Path) -> None:
    run("eval", "freeze", "desk", "--name", "ride", "--per-family", "1", "--holdout", "0")
    refused = run("screen", "desk", "--policy", "random", "--budget", "16", "--json")
    assert refused.code == 2
    assert "flightschool audit" in refused.error["mend"]
    spoken = run(
        "screen",
        "desk",
        "--policy",
        "noop",
        "--budget",
        "16",
        "--threshold",
        "0.9",
        "--override",
        "a test of the verb",
        "--json",
    )
    assert spoken.code == 1
    assert spoken.json["funnel"]["admitted"] == 0
    assert spoken.json["funnel"]["num_rollouts"] <= 16
    with Workspace.find() as opened:
        assert "override" in [entry.action for entry in _entries(opened)]
    name = run("rollout", "desk", "--policy", "noop", "-n", "1", "--json").json["summary"]["run"]
    shown = run("runs", "show", name, "--json")
    (waived,) = shown.json["overrides"]
    assert (waived["gate"], waived["reason"]) == ("audit", "a test of the verb")
    assert "a test of the verb" in run("runs", "show", name).err


@pytest.mark.long
def test_what_reviews_found_corrects_the_accuracy_of_an_evaluation(
    run: Run, space: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    for policy in ("oracle", "random"):
        run("rollout", "desk", "--policy", policy, "-n", "20")
    items = run("review", "list", "desk", "-n", "24", "--by", "none", "--json").json["items"]
    for number, item in enumerate(items):
        honest = "right" if item["passed"] else "wrong"
        said = "hack" if item["passed"] and number < 6 else honest
        run("review", "label", item["attempt"], said, "--reason", "looked")
    rates = run("review", "list", "desk-n24-s0-none", "--json").json["rates"]
    assert rates["right"]["value"] < rates["pass_rate"] == 0.5
    run("eval", "freeze", "desk", "--name", "ride", "--per-family", "1", "--holdout", "0")
    measured = run("eval", "run", "ride", "--policy", "oracle", "--json").json
    assert measured["verifier_error"]["rho0"]["value"] == pytest.approx(rates["rho0"]["value"])
    assert measured["accuracy"]["mean"] == 1.0
    assert measured["accuracy_corrected"]["low"] < measured["accuracy_corrected"]["mean"] <= 1.0
    drawn = run("review", "list", measured["id"], "-n", "6", "--by", "none", "--json").json
    assert drawn["accuracy"] is None
    for number, item in enumerate(drawn["items"]):
        run("review", "label", item["attempt"], "wrong" if number == 0 else "right", "--reason", "looked")
    accuracy = run("review", "list", drawn["sheet"]["name"], "--json").json["accuracy"]
    assert accuracy["raw"] == 1.0
    assert accuracy["corrected"]["value"] == pytest.approx(5 / 6)
    assert accuracy["corrected"]["low"] < 5 / 6 < accuracy["corrected"]["high"]


def _entries(opened: Workspace) -> list[Any]:
    from flightschool.governance import AuditLog

    return list(AuditLog(opened.store).entries())


def test_changed_log_is_found(run: Run, space: Path) -> None:
    import msgspec

    run("eval", "freeze", "desk", "--name", "ride", "--per-family", "1", "--holdout", "0")
    with Workspace.find() as opened:
        key = opened.store.keys("log_entry")[0]
        entry = _entries(opened)[0]
        opened.store.put("log_entry", key, msgspec.structs.replace(entry, actor="someone else"))
    spoken = run("log", "verify", "--json")
    assert spoken.code == 1
    assert spoken.json["ok"] is False
    assert "entry 0" in spoken.json["broken"]["what"]


def test_report_is_written_from_what_was_kept(run: Run, space: Path) -> None:
    with Workspace.find() as opened:
        opened.store.put("report", "r1", ReportData(title="A run", run="r1"))
    spoken = run("runs", "report", "r1", "--out", "deep/r1.html", "--json")
    assert spoken.code == 0
    assert "A run" in Path(spoken.json["report"]).read_text(encoding="utf-8")


def test_env_list_show_check(run: Run, space: Path) -> None:
    assert run("env", "list", "--json").json["built_in"] == ["desk"]
    shown = run("env", "show", "desk", "--json")
    assert len(shown.json["strata"]) >= 5
    assert len(shown.json["tools"]) >= 14
    checked = run("env", "check", "desk", "-n", "3", "--json")
    assert checked.code == 0
    assert checked.json["num_examined"] == 3


def test_spread_takes_strata_in_turn_and_repeats() -> None:
    tasks = [
        Task(id=f"{stratum}{number}", family="f", stratum=stratum, instruction="", initial_state="")
        for stratum in "ab"
        for number in range(2)
    ]
    chosen = spread(tasks, 6, seed=1)
    assert [task.stratum for task in chosen] == list("ababab")
    assert {task.id for task in chosen[:4]} == {task.id for task in tasks}
    assert chosen[:2] == chosen[4:]
    assert spread(tasks, 6, seed=1) == chosen
