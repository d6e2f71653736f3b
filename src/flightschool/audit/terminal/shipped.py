"""Files that a task's own build puts into the image, and whether the policy may read and replace them."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flightschool.environments.terminal import TerminalTask
from flightschool.environments.terminal.grading import files_of
from flightschool.environments.terminal.trees import Image, Tree, find_account
from flightschool.sandbox.written import WrittenKind

__all__ = ["CODE_SUFFIXES", "Shipped", "given_by_steps", "language_of", "shipped_by_build"]

MOST_FILES: Final = 4000
MOST_FILE_BYTES: Final = 1 << 20
MOST_TOTAL_BYTES: Final = 64 << 20
CODE_SUFFIXES: Final = {
    ".py": "python",
    ".sh": "shell",
    ".bash": "shell",
    ".js": "node",
    ".mjs": "node",
    ".cjs": "node",
    ".pl": "perl",
    ".rb": "ruby",
    ".awk": "awk",
    ".c": "c",
    ".cc": "c",
    ".cpp": "c",
}
"""Suffix → language, of files that something may execute or build."""


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """A file that the task's own build put into the image."""

    path: str
    data: bytes
    mode: int
    uid: int
    size: int
    """Bytes; ``data`` holds the first of them."""
    readable: bool
    """Whether the policy's user may read it."""
    writable: bool
    """Whether the policy's user may replace it."""
    step: str = ""
    """The step that lays it into the working directory; empty: the image has it."""

    @property
    def text(self) -> str:
        """Content as text, as far as it is."""
        return self.data.decode(errors="replace")

    @property
    def language(self) -> str:
        """Language, if it may be executed; empty: data."""
        return language_of(self.path, self.data, self.mode)


def language_of(path: str, data: bytes, mode: int = 0) -> str:
    """Language of a file that may be executed, by its ``#!`` line or suffix; empty: none known."""
    if data.startswith(b"#!"):
        first = data.partition(b"\n")[0].decode(errors="replace")
        for word, language in (
            ("python", "python"),
            ("node", "node"),
            ("perl", "perl"),
            ("ruby", "ruby"),
            ("awk", "awk"),
        ):
            if word in first:
                return language
        return "shell"
    if data.startswith(b"\x7fELF"):
        return "binary"
    suffix = posixpath.splitext(path)[1].lower()
    if suffix in CODE_SUFFIXES:
        return CODE_SUFFIXES[suffix]
    return "shell" if mode & 0o111 and not suffix else ""


def given_by_steps(task: TerminalTask, image: Image) -> Iterator[Shipped]:
    """What steps lay into the working directory when they begin."""
    for stage in task.stages:
        if stage.workdir_files:
            for entry in files_of(task, stage.workdir_files, image.workdir, image.account):
                if entry.kind is WrittenKind.FILE:
                    yield Shipped(
                        path=entry.path,
                        data=entry.data[:MOST_FILE_BYTES],
                        mode=entry.mode,
                        uid=entry.uid,
                        size=len(entry.data),
                        readable=True,
                        writable=True,
                        step=stage.name,
                    )


def shipped_by_build(task: TerminalTask, image: Image, base: Tree) -> Iterator[Shipped]:
    """Files of the image that its base does not have, up to some number and size."""
    tree = Tree(Path(image.tree), over_host=image.over_host)
    uid, gid = _agent_ids(task, image, tree)
    left, total = MOST_FILES, 0
    for place, ways in _walk(Path(image.tree)):
        inside = "/" + place.relative_to(image.tree).as_posix()
        found = place.lstat()
        if not stat.S_ISREG(found.st_mode) or base.identity(inside) == (found.st_dev, found.st_ino):
            continue
        left, total = left - 1, total + min(found.st_size, MOST_FILE_BYTES)
        if left < 0 or total > MOST_TOTAL_BYTES:
            return
        fd = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            data = file.read(MOST_FILE_BYTES)
        enters = all(_allows(way, uid, gid, 1) for way in ways)
        yield Shipped(
            path=inside,
            data=data,
            mode=stat.S_IMODE(found.st_mode),
            uid=found.st_uid,
            size=found.st_size,
            readable=enters and _allows(found, uid, gid, 4),
            writable=enters and (_allows(found, uid, gid, 2) or _may_replace(found, ways[-1], uid, gid)),
        )


def _agent_ids(task: TerminalTask, image: Image, tree: Tree) -> tuple[int, int]:
    user = task.stages[0].agent_user
    account = find_account(tree, user, "agent.user") if user else image.account
    return account.uid, account.gid


def _allows(found: os.stat_result, uid: int, gid: int, bit: int) -> bool:
    if uid == 0:
        return True
    shift = 6 if found.st_uid == uid else 3 if found.st_gid == gid else 0
    return bool(found.st_mode >> shift & bit)


def _may_replace(found: os.stat_result, folder: os.stat_result, uid: int, gid: int) -> bool:
    """Whether a user may put another file in the place of one; in a sticky folder, only its owner or the folder's."""
    kept = folder.st_mode & stat.S_ISVTX and uid not in (0, found.st_uid, folder.st_uid)
    return not kept and _allows(folder, uid, gid, 2)


def _walk(root: Path) -> Iterator[tuple[Path, list[os.stat_result]]]:
    """Files below a folder with the folders above each; no link is followed."""
    todo: list[tuple[Path, list[os.stat_result]]] = [(root, [root.lstat()])]
    while todo:
        folder, ways = todo.pop()
        with os.scandir(folder) as entries:
            ordered: Iterable[os.DirEntry[str]] = sorted(entries, key=lambda entry: entry.name)
        for entry in ordered:
            if entry.is_dir(follow_symlinks=False):
                todo.append((Path(entry.path), [*ways, entry.stat(follow_symlinks=False)]))
            elif entry.is_file(follow_symlinks=False):
                yield Path(entry.path), ways
