"""What files, variables and functions are called changes no verdict: seen tasks, audited under other names."""

from __future__ import annotations

import ast
import builtins
import keyword
import posixpath
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flightschool.audit.terminal import FolderAudit, audit_folders
from flightschool.audit.terminal.static import examine_static
from flightschool.environments.terminal import iter_tasks, read_folder

pytestmark = [pytest.mark.integration, pytest.mark.long]

_GIVEN = (
    "task.toml instruction.md environment tests solution Dockerfile test.sh solve.sh app logs verifier agent user root"
    " reward.txt reward.json bin tmp usr etc opt pytest conftest.py lib python3 bash sh main git config"
)
FIXED = frozenset(_GIVEN.split())
"""Names that formats, systems and test runners give a meaning to."""
SYLLABLES = ("zo", "vik", "tra", "mul", "bek", "sny", "gor", "pad")
DYNAMIC = ("leak-file",)
"""Audited by running in CI; all others by name (``-m slow``)."""


def renamed(files: dict[str, str]) -> dict[str, str]:
    """The same task with every name that is the author's own changed, in paths and in texts."""
    names: dict[str, None] = {}
    for path, text in files.items():
        names |= dict.fromkeys(posixpath.splitext(part)[0] for part in path.split("/") if part not in FIXED)
        names |= dict.fromkeys(_identifiers(text) if path.endswith(".py") else [])
        names |= dict.fromkeys(re.findall(r"/app/(?:[\w-]+/)*([\w-]+)", text))
        names |= dict.fromkeys(re.findall(r"\b[A-Z]+_[A-Z_]+(?==)", text))
    chosen = {name: _new(number, name) for number, name in enumerate(_usable(names))}
    if not chosen:
        return files
    longest = sorted(chosen, key=len, reverse=True)
    word = re.compile(r"(?<![A-Za-z0-9_%-])(?:" + "|".join(map(re.escape, longest)) + r")(?![A-Za-z0-9_])")

    def change(text: str) -> str:
        return word.sub(lambda match: chosen[match.group()], text)

    return {change(path): change(text) for path, text in files.items()}


def _usable(names: dict[str, None]) -> list[str]:
    taken = {*keyword.kwlist, *dir(builtins), *sys.stdlib_module_names, *FIXED}
    return [
        name
        for name in names
        if len(name) > 2 and name not in taken and "/" not in name and not name.startswith((".", "__"))
    ]


def _new(number: int, name: str) -> str:
    word = SYLLABLES[number % 8] + SYLLABLES[number // 8 % 8] + "qx"
    return word.upper() if name.isupper() else f"test_{word}" if name.startswith("test_") else word


def _identifiers(text: str) -> list[str]:
    """Names that a module binds itself."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.append(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.append(node.id)
        elif isinstance(node, ast.arg):
            found.append(node.arg)
    return found


def audited(kit: Any, folder: Path, files: dict[str, dict[str, str]], images: Path) -> dict[str, FolderAudit]:
    for name, one in files.items():
        kit.place(folder / name, replace(kit.flawed.get(name) or kit.clean[name], files=one))
    found: dict[str, FolderAudit] = {}
    audit_folders(iter_tasks(folder), images=images, repeats=2, on_audit=lambda one: found.update({one.id: one}))
    return found


def compared(kit: Any, names: list[str], tmp_path: Path, images: Path) -> list[str]:
    """Tasks whose verdict another naming changed."""
    tasks = {name: (kit.flawed.get(name) or kit.clean[name]) for name in names}
    other = {name: renamed(task.files) for name, task in tasks.items()}
    found = audited(kit, tmp_path / "other", other, images)
    return [
        f"{name}: {tasks[name].verdict} became {audit.verdict.value} ({[one.what for one in audit.findings][:2]})"
        for name, audit in found.items()
        if audit.verdict.value != tasks[name].verdict
    ]


def test_what_is_read_stays_the_same_under_other_names(kit: Any, tmp_path: Path) -> None:
    changed = 0
    differ: list[tuple[str, list[str], list[str]]] = []
    for name, task in {**kit.clean, **kit.flawed}.items():
        files = renamed(task.files)
        changed += files != task.files
        flaws: list[list[str]] = []
        for folder, texts in ((tmp_path / "a" / name, task.files), (tmp_path / "b" / name, files)):
            static = examine_static(read_folder(kit.write(folder, texts)))
            flaws.append(sorted(one.flaw for one in static.findings))
        if flaws[0] != flaws[1]:
            differ.append((name, flaws[0], flaws[1]))
    assert changed > 40, "the names are changed at all"
    assert differ == []


def test_verdicts_of_a_sample_stay_the_same(kit: Any, tmp_path: Path, images: Path) -> None:
    assert compared(kit, list(DYNAMIC), tmp_path, images) == []


@pytest.mark.slow
def test_all_verdicts_stay_the_same(kit: Any, tmp_path: Path, images: Path) -> None:
    names = [*kit.flawed, *(name for name in kit.clean if name not in kit.flawed)]
    assert compared(kit, names, tmp_path, images) == []
