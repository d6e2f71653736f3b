"""``audit`` at the address of an OpenEnv server: what passes without work is told, and replays by its actions alone."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flightschool.cli import main
from flightschool.records import CallCheck, CheckKind, CheckSpec, Reference
from flightschool.testing.miniature import MiniatureEnvironment

pytestmark = pytest.mark.integration


class Loose(MiniatureEnvironment):
    """One read is called work."""

    def reference(self, task_id: str) -> Reference:
        loose = CheckSpec(id="any", kind=CheckKind.FUNCTIONAL, rule=CallCheck(tool="get_price"))
        return msgspec.structs.replace(super().reference(task_id), checks=(loose,))


def told(*words: str) -> tuple[int, dict[str, Any]]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = main([*words, "--json"])
    return code, json.loads(said.getvalue())


def test_a_loose_reward_behind_a_server_is_exploitable(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    url = serve(Loose()).url
    code, found = told("audit", url, "--repeats", "2")
    assert code == 1, found
    assert {row["path"] for row in found["tasks"]} == {url}
    row = next(one for one in found["tasks"] if one["verdict"] == "exploitable")
    shown = next(one for one in row["findings"] if one["confirmed"] and one["evidence"]["actions"])
    (tmp_path / "evidence.json").write_text(json.dumps({"tasks": {row["id"]: shown["evidence"]["actions"]}}))
    words = ("rollout", url, "--policy", "script:evidence.json", "--task", row["id"], "-n", "1")
    (episode,) = told(*words)[1]["episodes"]
    assert episode["reward"]["total"] == 1.0, "no solution, no work, full reward: as the finding says"


def test_a_server_that_shows_no_solution_is_attacked_and_never_acquitted(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code, found = told("audit", serve(MiniatureEnvironment()).url, "--repeats", "2")
    assert code == 1, found
    assert set(found["summary"]["verdicts"]) == {"unaudited"}
    assert all(any("no oracle" in one["evidence"]["observed"] for one in row["findings"]) for row in found["tasks"])
    assert not list(tmp_path.rglob("*.jsonl")), "an audit that ended leaves nothing to go on from"
