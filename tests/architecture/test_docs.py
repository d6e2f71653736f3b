"""The documentation runs: blocks marked ``<!-- run -->`` are executed, the map is the tree, every verb is described."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flightschool.cli import command_tree, main

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = re.compile(r"<!-- run(?:: exit (\d))? -->\s*```console\n(.*?)```", re.DOTALL)


def runnable(document: Path) -> list[tuple[int, str]]:
    """(expected exit code, command line) of the marked blocks, in order."""
    commands = []
    for code, block in RUN.findall(document.read_text(encoding="utf-8")):
        lines = [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
        commands += [(int(code or 0), line) for line in lines]
    return commands


def verbs(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, below in getattr(command, "commands", {}).items():
        if getattr(below, "commands", None):
            yield from verbs(below, f"{path} {name}")
        else:
            yield f"{path} {name}", below


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if runnable(d)], ids=lambda d: d.name)
def test_examples_run(
    document: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands of one document run one after the other, beginning in an empty folder."""
    monkeypatch.setenv("FLIGHTSCHOOL_KEYS", str(tmp_path_factory.mktemp("keys")))
    monkeypatch.chdir(tmp_path)
    for expected, line in runnable(document):
        words = shlex.split(line, comments=True)
        if words[0] == "cd":
            monkeypatch.chdir(words[1])
            continue
        assert words[0] == "flightschool", f"only flightschool runs here: {line}"
        assert main(words[1:]) == expected, line


def test_some_examples_are_run() -> None:
    assert sum(len(runnable(document)) for document in DOCUMENTS) >= 10


def test_every_verb_has_a_section_with_a_command() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^##+ `(flightschool [a-z -]+)`\n(.*?)(?=^##+ |\Z)", text, re.DOTALL | re.MULTILINE))
    for verb, _ in verbs(command_tree(), "flightschool"):
        assert verb in sections, f"docs/cli.md has no section for `{verb}`"
        assert f"$ {verb}" in sections[verb], f"the section of `{verb}` shows no command"


def test_no_section_describes_a_verb_that_is_not_there() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    known = {verb for verb, _ in verbs(command_tree(), "flightschool")}
    assert set(re.findall(r"^##+ `(flightschool [a-z -]+)`$", text, re.MULTILINE)) <= known


def test_readme_map_is_the_tree() -> None:
    """Every package stands in the README's map as ``name/``, and nothing else does."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    part = re.search(r"^## [^\n]*[Mm]ap[^\n]*\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert part is not None, "README.md needs a section whose heading holds the word map"
    source = ROOT / "src" / "flightschool"
    packages = {path.parent.name for path in source.glob("*/__init__.py")}
    modules = {path.name for path in source.glob("*.py")} - {"__init__.py"}
    named = set(re.findall(r"(?<![\w/])([a-z_]+)/", part.group(1))) - {"src", "flightschool"}
    assert packages <= named, f"not in the map: {sorted(packages - named)}"
    assert named <= packages | {"tests", "docs", "recipes", "scripts"}, f"not in the tree: {sorted(named - packages)}"
    absent = [name for name in modules if name == "pipeline.py" and name not in part.group(1)]
    assert not absent


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{document.name}: {target}"
        for document in DOCUMENTS
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", document.read_text(encoding="utf-8"))
        if not (document.parent / target).exists()
    ]
    assert not broken
