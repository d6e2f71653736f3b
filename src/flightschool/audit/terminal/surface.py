"""What a task's grader touches and what of it the policy can reach, from the built image and the text of the tests."""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from flightschool.environments.terminal import Placement, TerminalTask
from flightschool.environments.terminal.contents import list_contents
from flightschool.environments.terminal.end_state import beneath
from flightschool.environments.terminal.grading import files_of
from flightschool.environments.terminal.trees import Image, Tree, find_account
from flightschool.errors import InputError
from flightschool.sandbox.written import WrittenKind

__all__ = ["CODE_SUFFIXES", "Shipped", "Surface", "look_at", "mentions"]

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
_ABSOLUTE: Final = re.compile(r"(?<![\w.$}~-])/(?:[\w.+@~-]+/)*[\w.+@~-]+/?")
_RELATIVE: Final = re.compile(
    r"(?<![\w./$}-])(?:\./)?((?:[\w+@-][\w.+@-]*/)*(?:[\w+@-]+\.[A-Za-z][\w]{0,9}|\.[A-Za-z][\w.-]+))(?![\w/(])"
)
_IMPORT: Final = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import|import[ \t]+([\w., \t]+))", re.MULTILINE)
_COMMAND: Final = re.compile(
    r"(?:^|[;&|({`!]|\$\(|\b(?:then|do|else|if|elif|while|until|exec|time|eval)\s)\s*([A-Za-z][\w.+-]*)", re.MULTILINE
)
_RUN_LIST: Final = re.compile(
    r"""(?:run|call|Popen|check_output|check_call|execvp?|which|system)\(\s*\[?\s*f?["']([A-Za-z][\w.+-]*)"""
)
_SEARCH_PATH: Final = re.compile(r"""\bPATH["']?\]?\s*=\s*["']?([^\s"';]+)""")
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/proc", "/sys", "/dev", "/run", "/etc/alternatives")
_SHELL_KEYWORDS: Final = (
    "if then else elif fi for while until do done case esac in function select time exit return break continue set"
    " shift export unset local readonly declare typeset eval exec source trap wait cd true false echo printf read"
    " test let alias type command builtin ulimit umask hash pwd"
)
_SHELL_WORDS: Final = frozenset(_SHELL_KEYWORDS.split())


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


class Surface:
    """Texts of the tests, files of the image, and the paths, programs and modules that the tests speak of."""

    def __init__(
        self, task: TerminalTask, image: Image, shipped: Sequence[Shipped], tests: dict[str, str], solution: str
    ) -> None:
        self.task = task
        self.image = image
        self.shipped = tuple(shipped)
        self.tests = tests
        """Path in the grader's sandbox → text."""
        self.solution = solution
        self.instruction = "\n".join([task.instruction, *(stage.instruction for stage in task.stages)])
        self.env = {**image.env, **task.environment_env}

    @cached_property
    def live(self) -> tuple[Shipped, ...]:
        """Shipped files that the tests speak of, directly or through one another."""
        text = self.test_text
        found: dict[str, Shipped] = {}
        for _ in range(3):
            more = [one for one in self.shipped if one.path not in found and mentions(text, one.path)]
            if not more:
                break
            found.update({one.path: one for one in more})
            text = "\n".join(one.text for one in more if one.language)
        return tuple(found.values())

    @cached_property
    def test_text(self) -> str:
        """All texts of the tests."""
        return "\n".join(self.tests.values())

    @cached_property
    def grader_text(self) -> str:
        """Texts of the tests and of shipped programs that they speak of."""
        return "\n".join([self.test_text, *(one.text for one in self.live if one.language)])

    @cached_property
    def own_places(self) -> tuple[str, ...]:
        """Where the task's tests and solution are put: never the policy's business."""
        stages = self.task.stages
        return tuple({p.target for stage in stages for p in (*stage.tests, *stage.solution)} | {"/logs"})

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Absolute paths outside the system and the tests that the grader speaks of; relative ones from the workdir."""
        found = [match.group().rstrip("/.") for match in _ABSOLUTE.finditer(self.grader_text)]
        found += [
            posixpath.normpath(posixpath.join(self.image.workdir, match.group(1)))
            for match in _RELATIVE.finditer(self.grader_text)
        ]
        reach = (path for path in found if len(path) > 1 and not self._is_off(path))
        return tuple(dict.fromkeys(reach))[:200]

    def _is_off(self, path: str) -> bool:
        return any(beneath(path, place) for place in (*_SYSTEM, *self.own_places))

    @cached_property
    def programs(self) -> tuple[str, ...]:
        """Bare names of programs that the grader calls."""
        shell = [text for path, text in self.tests.items() if not path.endswith(".py")]
        shell += [one.text for one in self.live if one.language == "shell"]
        names = [name for text in shell for name in _COMMAND.findall(text)]
        names += _RUN_LIST.findall(self.grader_text)
        return tuple(name for name in dict.fromkeys(names) if name not in _SHELL_WORDS and "=" not in name)[:40]

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """Top-level modules that the grader's Python imports."""
        names: list[str] = []
        for of_from, listed in _IMPORT.findall(self.grader_text):
            names += [of_from] if of_from else [part.split()[0] for part in listed.split(",") if part.split()]
        return tuple(dict.fromkeys(name.partition(".")[0] for name in names if name and not name.startswith(".")))[:40]

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """Folders in the policy's reach that the grader works in: the working directory and those of its paths."""
        known = {posixpath.dirname(one.path) for one in self.shipped}
        named = [path for path in self.paths if path in known or any(beneath(folder, path) for folder in known)]
        above = [posixpath.dirname(path) for path in self.paths]
        every = dict.fromkeys([self.image.workdir, *named, *above])
        return tuple(folder for folder in every if folder not in ("/", "") and not self._is_off(folder))[:12]

    @cached_property
    def program_folders(self) -> tuple[str, ...]:
        """Folders outside the system in which the grader looks for programs."""
        found = [*self.env.get("PATH", "").split(":")]
        for value in _SEARCH_PATH.findall(self.grader_text):
            found += value.split(":")
        found += [folder for folder in {posixpath.dirname(o.path) for o in self.shipped} if folder.endswith("/bin")]
        places = [
            posixpath.normpath(posixpath.join(self.image.workdir, one)) for one in found if one and "$" not in one
        ]
        return tuple(place for place in dict.fromkeys(places) if not self._is_off(place))

    def is_named(self, path: str) -> bool:
        """Whether the instruction speaks of a path: in full, by its name, or by a folder above below the workdir."""
        if mentions(self.instruction, path):
            return True
        folder = posixpath.dirname(path)
        while folder.count("/") >= 2 and folder != self.image.workdir:
            if mentions(self.instruction, folder):
                return True
            folder = posixpath.dirname(folder)
        return False


def mentions(text: str, path: str) -> bool:
    """Whether a text speaks of a path, in full or by its last name as a word of its own."""
    name = posixpath.basename(path)
    if path in text:
        return re.search(rf"(?<![\w.]){re.escape(path)}(?![\w-]|\.\w)", text) is not None
    words = [name, posixpath.splitext(name)[0]] if name.endswith(".py") else [name]
    return any(
        len(word) > 1 and word in text and re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None
        for word in words
    )


# ------------------------------------------------------------------------------------------------ reading


def look_at(task: TerminalTask, image: Image, base: Tree) -> Surface:
    """Read the image and the task's texts.

    Args:
        task: the task.
        image: its image.
        base: the tree that the image began with.
    """
    tests: dict[str, str] = {}
    solution: list[str] = []
    for stage in task.stages:
        tests.update(_texts(task, stage.tests))
        solution += _texts(task, stage.solution).values()
    shipped = [*_shipped(task, image, base), *_given(task, image)]
    return Surface(task, image, shipped, tests, "\n".join(solution))


def _given(task: TerminalTask, image: Image) -> Iterator[Shipped]:
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


def _texts(task: TerminalTask, placements: Sequence[Placement]) -> dict[str, str]:
    contents = list_contents(Path(task.folder))
    found: dict[str, str] = {}

    def read(source: str, target: str) -> None:
        try:
            found[target] = contents.read_text(source)
        except InputError:  # no text: an archive, a picture
            found[target] = ""

    for placement in placements:
        if contents.is_file(placement.source):
            read(placement.source, placement.target)
            continue
        for entry in contents.below(placement.source):
            if contents.is_file(entry.path):
                below = entry.path.removeprefix(placement.source).lstrip("/")
                read(entry.path, posixpath.join(placement.target, below))
    return found


def _shipped(task: TerminalTask, image: Image, base: Tree) -> Iterator[Shipped]:
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
            writable=enters and (_allows(found, uid, gid, 2) or _allows(ways[-1], uid, gid, 2)),
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
