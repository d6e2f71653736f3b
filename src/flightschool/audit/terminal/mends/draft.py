"""A task's folder with changes that are not written yet, and the writing of all of it at once."""

from __future__ import annotations

import difflib
import os
import shutil
import tempfile
from pathlib import Path

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.case import Case, open_case, open_folder
from flightschool.audit.terminal.static.comparisons import comparisons_of
from flightschool.audit.terminal.static.mapping import map_trust
from flightschool.environments.terminal import TerminalTask, read_folder
from flightschool.environments.terminal.contents import EntryKind
from flightschool.errors import InputError

__all__ = ["Draft", "patch_path", "write_draft"]


class Draft:
    """Texts of a folder as they are to be."""

    def __init__(self, task: TerminalTask, findings: tuple[FlawFinding, ...]) -> None:
        self.task = task
        self.findings = findings
        self.folder = open_folder(task)
        self.cases: list[Case] = []
        for stage in task.stages:
            case = open_case(self.folder, stage)
            case.comparisons = [c for live in case.live.python for c in comparisons_of(live, case.of_agent)]
            case.trust = map_trust(case, case.comparisons)
            self.cases.append(case)
        self.changed: dict[str, str] = {}
        self.copied: dict[str, str] = {}
        """New file → file of the folder whose bytes it gets."""
        self.executable: set[str] = set()

    def text(self, path: str) -> str:
        """The text of a file as it is to be.

        Raises:
            InputError: it is no text of ordinary size, so that no rule may rewrite it.
        """
        if path in self.changed:
            return self.changed[path]
        return self.folder.contents.read_text(path)

    def lines(self, path: str) -> list[str]:
        """The same as lines with their ends."""
        return self.text(path).splitlines(keepends=True)

    def write(self, path: str, text: str) -> None:
        """Set a file's text."""
        self.changed[path] = text

    def exists(self, path: str) -> bool:
        """Whether a file is or will be there."""
        return path in self.changed or path in self.copied or path in self.folder.contents.entries

    def patch(self) -> str:
        """The changes as a unified diff. Bytes that are copied are told in a line of their own."""
        pieces: list[str] = []
        texts = dict(self.changed)
        for path, source in self.copied.items():
            try:
                texts[path] = self.folder.contents.read_text(source)
            except InputError:
                pieces.append(f"copy from {source}\ncopy to {path}\n")
        for path in sorted(texts):
            old = self.folder.contents.read_text(path) if path in self.folder.contents.entries else ""
            source = f"a/{path}" if old else "/dev/null"
            diff = difflib.unified_diff(
                old.splitlines(keepends=True), texts[path].splitlines(keepends=True), source, f"b/{path}"
            )
            pieces += [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in diff]
        return "".join(pieces)


def patch_path(into: Path) -> Path:
    """Where the patch of a copy lies: beside it."""
    return into.with_name(into.name + ".patch")


def write_draft(draft: Draft, into: Path) -> None:
    """Write the repaired copy and its patch: both whole, or neither.

    Raises:
        InputError: something lies there already, or the copy cannot be read as a task any more.
    """
    for place in (into, patch_path(into)):
        if place.exists() or place.is_symlink():
            raise InputError("there is something already", where=str(place), expected="a new path", mend="name another")
    into.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{into.name}-", dir=into.parent))
    try:
        copy = staging / "folder"
        copy.mkdir()
        _copy(draft, copy)
        read_folder(copy)
        patch = staging / "patch"
        patch.write_text(draft.patch(), encoding="utf-8")
        patch.rename(patch_path(into))
        try:
            copy.rename(into)
        except OSError:
            patch_path(into).unlink(missing_ok=True)
            raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _copy(draft: Draft, target: Path) -> None:
    contents = draft.folder.contents
    for entry in contents.below(""):
        place = target / entry.path
        if entry.kind is EntryKind.FOLDER:
            place.mkdir(exist_ok=True)
        elif entry.kind is EntryKind.LINK:
            place.symlink_to(entry.target)
        elif entry.path not in draft.changed:
            shutil.copyfile(contents.root / entry.path, place, follow_symlinks=False)
            place.chmod(0o755 if entry.executable else 0o644)
    for path, text in draft.changed.items():
        entry_there = contents.entries.get(path)
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_text(text, encoding="utf-8")
        executable = path in draft.executable or (entry_there is not None and entry_there.executable)
        (target / path).chmod(0o755 if executable else 0o644)
    for path, source in draft.copied.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(contents.root / source, target / path, follow_symlinks=False)
        (target / path).chmod(0o755 if os.access(contents.root / source, os.X_OK) else 0o644)
