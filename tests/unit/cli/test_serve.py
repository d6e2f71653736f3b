"""``serve env`` and ``env import``: what is served, what is refused, what is written."""

from __future__ import annotations

import importlib
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from flightschool.audit import save_audits
from flightschool.cli.serve import _splits
from flightschool.governance import AuditLog, overrides
from flightschool.records import AuditVerdict, Suite, TaskAudit
from flightschool.store import Workspace
from flightschool.testing.miniature import MiniatureEnvironment
from flightschool.verification import CheckVerifier


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_unaudited_tasks_are_not_served_in_a_workspace(run: Any, tmp_path: Path) -> None:
    Workspace.create(tmp_path)
    refused = run("serve", "env", "desk", "--json")
    assert refused.code == 2
    assert "flightschool audit" in refused.error["mend"]
    nameless = run("serve", "env", "desk", "--tasks", "all", "--json")
    assert nameless.code == 2
    assert "reason" in nameless.error["what"]


def test_sound_tasks_outside_suites_are_served_and_no_others(tmp_path: Path) -> None:
    """Audited and sound, and not held by a suite: what others may train on."""
    miniature = MiniatureEnvironment()
    sound, held, leaking, unaudited = miniature.tasks()[:4]
    with Workspace.create(tmp_path) as space:
        verdicts = [(sound, AuditVerdict.SOUND), (held, AuditVerdict.SOUND), (leaking, AuditVerdict.LEAKING)]
        save_audits(
            space.store,
            [
                TaskAudit(
                    environment=miniature.name,
                    task=task.id,
                    task_digest=task.digest,
                    verifier_digest=CheckVerifier(miniature.reference(task.id).checks).digest,
                    verdict=verdict,
                )
                for task, verdict in verdicts
            ],
        )
        suite = Suite(
            name="s",
            environment=miniature.name,
            environment_digest=miniature.digest,
            task_digests={held.id: held.digest},
            strata=(),
        )
        space.store.put("suite", "s", suite)
    splits = _splits(miniature, Workspace(tmp_path), None, "")
    assert splits == {"train": (sound.id,), "all": (sound.id,)}
    assert unaudited.id in _splits(miniature, Workspace(tmp_path), "all", "a demonstration")["all"]
    with Workspace(tmp_path) as space:
        (passed,) = overrides(AuditLog(space.store))
    assert passed.reason == "a demonstration"


def test_other_machines_need_a_token(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLIGHTSCHOOL_TOKEN", raising=False)
    refused = run("serve", "env", "desk", "--host", "0.0.0.0", "--json")
    assert refused.code == 2
    assert "FLIGHTSCHOOL_TOKEN" in refused.error["mend"]


def test_a_package_is_written_that_holds_its_environment(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = run("serve", "env", "desk", "--write", "package", "--json").json
    folder = tmp_path / "package"
    assert {"openenv.yaml", "Dockerfile", "pyproject.toml", "server/app.py"} <= set(written["files"])
    yaml: Any = importlib.import_module("yaml")
    manifest = yaml.safe_load((folder / "openenv.yaml").read_text(encoding="utf-8"))
    assert manifest["app"] == "server.app:app"
    assert manifest["validation"]["capabilities"]["verifier"] == {"kind": "reward_channel"}
    assert "final_answer" in manifest["validation"]["capabilities"]["declared_tools"]
    assert manifest["validation"]["capabilities"]["declared_task_count"] == {"all": 576}
    application = runpy.run_path(str(folder / "server" / "app.py"))
    offer, desk = application["served"]()
    assert offer.environment.name == "desk"
    assert len(desk.tasks("all")) == 576
    monkeypatch.chdir(tmp_path)  # the application went to its own folder
    again = run("serve", "env", "desk", "--write", "package", "--json")
    assert again.code == 2
    assert "not empty" in again.error["what"]


def test_a_taskset_and_rows_are_written_without_the_sealed_side(run: Any, tmp_path: Path) -> None:
    written = run("serve", "env", "desk", "--protocol", "verifiers", "--write", "taskset", "--json").json
    package = tmp_path / "taskset" / "desk_taskset"
    assert written["files"] == [
        "README.md",
        "desk_taskset/__init__.py",
        "desk_taskset/tasks.jsonl",
        "desk_taskset/taskset.py",
        "pyproject.toml",
    ]
    compile((package / "taskset.py").read_text(encoding="utf-8"), "taskset.py", "exec")
    told = (package / "tasks.jsonl").read_text(encoding="utf-8")
    assert told.count("\n") == 576
    assert "oracle" not in told
    assert "checks" not in told
    run("serve", "env", "desk", "--protocol", "nemo-gym", "--write", "rows.jsonl", "--json")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len({row["task_id"] for row in rows}) == 576
    assert {"get_asset", "final_answer"} - {t["name"] for t in rows[0]["responses_create_params"]["tools"]} == {
        "final_answer"
    }


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--protocol", "smoke"), "no protocol"),
        (("--protocol", "verifiers"), "loads a package"),
        (("--protocol", "nemo-gym", "--processes", "2"), "one process"),
    ],
)
def test_protocols_that_cannot_be_served(run: Any, arguments: tuple[str, ...], what: str) -> None:
    refused = run("serve", "env", "desk", *arguments, "--json")
    assert refused.code == 2
    assert what in refused.error["what"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("http://127.0.0.1:9", "--name", "x", "--format", "dance"), "no format"),
        (("nonsense", "--name", "x"), "does not show what it is"),
        (("http://127.0.0.1:9", "--name", "x", "--threshold", "0"), "doing nothing"),
        (("http://127.0.0.1:9", "--name", "x", "--reward", "median"), "reward rule"),
        (("http://127.0.0.1:9", "--name", "x", "--token-env", "NOBODY_SETS_THIS"), "NOBODY_SETS_THIS"),
    ],
)
def test_imports_that_cannot_be(run: Any, tmp_path: Path, arguments: tuple[str, ...], what: str) -> None:
    Workspace.create(tmp_path)
    refused = run("env", "import", *arguments, "--json")
    assert refused.code == 2
    assert what in refused.error["what"]
    assert run("env", "list", "--json").json["environments"] == []


def test_a_server_that_does_not_answer_is_told_as_such(run: Any, tmp_path: Path) -> None:
    Workspace.create(tmp_path)
    refused = run("env", "import", "http://127.0.0.1:9", "--name", "x", "--json")
    assert refused.code == 1
    assert "not answered" in refused.error["what"]
