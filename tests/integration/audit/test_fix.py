# ruff: noqa: E501 - the texts of small tasks
"""``audit --fix``: for each rewrite a flawed task, the class that the audit shows, and that the audit of the copy clears it."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flightschool.cli import main

pytestmark = [pytest.mark.integration, pytest.mark.long]

SKIPS = """\
import json, os, pytest

def test_length():
    if not os.path.exists("/app/large.json"):
        pytest.skip("there is nothing to test")
    assert len(json.load(open("/app/large.json"))) == 3

def test_values():
    if not os.path.exists("/app/large.json"):
        pytest.skip("there is nothing to test")
    rows = json.load(open("/app/large.json"))
    assert {(r["name"], r["amount"]) for r in rows} == {("bee", 20), ("cat", 31), ("dog", 44)}
"""
RUNS_PYTEST = """\
#!/bin/bash
mkdir -p /logs/verifier
cd /tests
export PYTHONPATH=/tests/lib
python3 -P -m pytest -p no:cacheprovider -q /tests/test_rows.py --rootdir /tests -c /dev/null --noconftest
if [ $? -eq 0 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


class Case(NamedTuple):
    """A task of the seen half, and what becomes of it."""

    task: str
    flaw: str
    """Told of the original, and not of the copy."""
    rule: str
    verdict: str = "sound"
    """Of the copy."""


CASES: Mapping[str, Case] = {
    "a failure that gets lost": Case("swallowed", "swallowed-failure", "propagate-status"),
    "no verdict": Case("no-verdict", "ungraded-escape", "end-with-verdict"),
    "a grader in the image": Case("grader-shipped", "grader-in-reach", "judge-from-tests"),
    "an input that is read again": Case("reread", "reread-input", "judge-from-tests"),
    "a guard for show": Case("guard", "decorative-guard", "give-account"),
    "a PATH of the task's own": Case("trojan", "path-trojan", "pin-starts", "refuses-correct-work"),
    "modules beside the work": Case("shadow", "interpreter-startup", "pin-starts"),
    "pytest beside the work": Case("pytest-beside-the-work", "interpreter-startup", "pin-starts"),
    "an answer in the image": Case("leak-file", "answer-in-view", "remove-from-image"),
    "a repository with the answer": Case("leak-history", "future-history", "forget-history"),
    "tests that are skipped": Case("skips", "early-exit", "require-executed"),
}
SAMPLE = ("a failure that gets lost",)
"""Run in CI; all others by name (``-m slow``)."""


def told(*words: str) -> tuple[int, dict[str, Any]]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = main([*words, "--json"])
    return code, json.loads(said.getvalue())


def labelled(kit: Any, name: str) -> Any:
    if name != "skips":
        return kit.flawed[name]
    made = kit.clean["pytest"]
    files = {**made.files, "tests/test_rows.py": SKIPS}
    files["tests/test.sh"] = RUNS_PYTEST
    return made.__class__(verdict="exploitable", files=files, brings_pytest=True)


def fixed(case: Case, kit: Any, tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The row of the original, and what is told of its copy."""
    kit.place(tmp_path / "tasks/one", labelled(kit, case.task))
    code, found = told("audit", "./tasks", "--fix", "./fixed", "--repeats", "2")
    assert code == 1
    (row,) = found["tasks"]
    return row, row["mended"]


def check(name: str, kit: Any, tmp_path: Path) -> None:
    case = CASES[name]
    row, copy = fixed(case, kit, tmp_path)
    assert row["verdict"] not in ("sound", "unaudited")
    assert case.flaw in {one["class"] for one in row["findings"]}
    assert copy.get("path"), copy
    assert case.rule in {made["rule"] for made in copy["applied"]}
    left = [one for one in copy["findings"] if one["severity"] == "barring"]
    assert case.flaw not in {one["class"] for one in left}
    assert copy["verdict"] == case.verdict, left
    assert Path(copy["patch"]).read_text().startswith("---")
    diff = subprocess.run(["diff", "-rq", "tasks/one", copy["path"]], cwd=tmp_path, capture_output=True, check=False)
    assert diff.stdout, "the copy differs"


@pytest.fixture(autouse=True)
def in_a_folder(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verb's cache is shared by the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(images.parent / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", SAMPLE)
def test_the_audit_of_the_copy_clears_it(name: str, kit: Any, tmp_path: Path) -> None:
    check(name, kit, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name not in SAMPLE])
def test_the_audit_of_every_copy_clears_it(name: str, kit: Any, tmp_path: Path) -> None:
    check(name, kit, tmp_path)
