"""What of an end state goes into the sandbox of the grader, and what would turn the grader instead of being graded.

A policy may change whatever the task is about. It may not, by what it leaves behind, choose the programs, modules and
settings that the *tests* run with: those of the system stay the system's, files that interpreters and test runners read
by themselves are left out unless the task ships or names them, and no link may lead to where tests and verdicts lie.
Everything left out is told.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from flightschool.environments.terminal.end_state import above, beneath
from flightschool.environments.terminal.languages import turns_a_language
from flightschool.environments.terminal.trees import STAND_INS, Tree
from flightschool.environments.terminal.unasked import unasked_places
from flightschool.records import Record
from flightschool.sandbox.written import Written, WrittenKind

__all__ = ["LeftOut", "Sieve"]

MOST_LINKS: Final = 40
MOST_STEPS: Final = 100_000
"""Steps of following links in one end state: a policy must not keep the grader busy with them."""
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_LOADER: Final = (
    "/etc/ld.so.preload",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/nsswitch.conf",  # names the libraries that every program loads which asks for an account or a host
)
_OF_THE_MACHINE: Final = ("/proc", "/sys", "/dev")
_HARMLESS_DEVICES: Final = frozenset({"/dev/null"})  # the others never end, and a grader that reads one has no verdict
_START_MODULES: Final = re.compile(r"(?:sitecustomize|usercustomize)(?:\..*)?$")
_RUNNER_FILES: Final = frozenset({"conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"})
_PROJECT_FILES: Final = {"pyproject.toml": b"[tool.pytest", "setup.cfg": b"[tool:pytest", "tox.ini": b"[pytest"}
"""Files that may speak to a test runner, and how that begins."""
_RUNNER_MODULES: Final = frozenset({"_pytest", "iniconfig", "pluggy", "pytest", "unittest"})
_RUNNER_PROGRAMS: Final = frozenset({"pip", "pip3", "py.test", "pytest", "python", "python3", "uv", "uvx"})
"""Names that tests call in any case, whether the base has them or something stands in for them."""
_SITE: Final = re.compile(r"^(/usr/.*/(?:site|dist)-packages)/([^/]+)")


class LeftOut(Record, frozen=True, kw_only=True):
    """A path of the end state that the grader does not get."""

    path: str
    why: str


class Sieve:
    """Sifts end states of one stage of a task.

    Args:
        image: the tree that the attempt began with.
        base: the tree of its base, before the task's own build steps.
        workdir: where the tests run.
        path: the search path for programs in the sandbox of the grader.
        reserved: where tests, solutions and verdicts lie.
        instruction: what the policy was told; a path or file that it names is the task's business.
        homes: of the accounts that the policy and the tests run as.
    """

    def __init__(
        self,
        image: Tree,
        base: Tree,
        *,
        workdir: str,
        path: str,
        reserved: Sequence[str],
        instruction: str,
        homes: Sequence[str] = (),
    ) -> None:
        self._image = image
        self._base = base
        self._workdir = workdir.rstrip("/") or "/"
        self._program_folders = tuple(dict.fromkeys(folder.rstrip("/") for folder in path.split(":") if folder))
        self._reserved = (*reserved, STAND_INS)
        self._instruction = instruction
        self._unasked = unasked_places(homes, instruction)
        self._modules: frozenset[str] | None = None
        self._steps_left = MOST_STEPS
        self._known_links: dict[str, str | None] = {}

    def sift(self, entries: Iterable[Written]) -> tuple[list[Written], list[LeftOut]]:
        """Entries for the grader, and what was left out."""
        return self._sift(entries, (self._misplaced, self._turns_the_grader))

    def carry(self, entries: Iterable[Written]) -> tuple[list[Written], list[LeftOut]]:
        """Entries for the policy's next step: only what a sandbox could not start with is left out."""
        return self._sift(entries, (self._misplaced,))

    def _sift(
        self, entries: Iterable[Written], rules: Sequence[Callable[[Written], str]]
    ) -> tuple[list[Written], list[LeftOut]]:
        kept: list[Written] = []
        left_out: list[LeftOut] = []
        without: set[str] = set()
        everything = list(entries)
        links = {entry.path: entry for entry in everything}
        self._steps_left = MOST_STEPS
        for entry in everything:
            if not without.isdisjoint(above(entry.path)):
                continue
            why = next((why for rule in rules if (why := rule(entry))), "")
            if not why and entry.kind is WrittenKind.LINK and self._turns_the_grader in rules:
                why = self._leads_astray(entry, links)
            if why:
                without.add(entry.path)
                left_out.append(LeftOut(path=entry.path, why=why))
            else:
                kept.append(entry)
        return kept, left_out

    # -------------------------------------------------------------------------------------------- rules

    def _misplaced(self, entry: Written) -> str:
        """What no sandbox can start with, or lies where only the grader writes."""
        if entry.kind is WrittenKind.ODD:
            return "a FIFO, a socket, a device or a name that is no text"
        if any(beneath(entry.path, place) for place in self._reserved):
            return "lies where tests and verdicts lie"
        if (
            entry.path in _SYSTEM
            and entry.kind is not WrittenKind.GONE
            and self._base.link_text(entry.path) is not None
        ):
            return "takes the place of a link of the system"
        if entry.kind in (WrittenKind.FILE, WrittenKind.LINK):
            if any(beneath(place, entry.path) for place in (*self._reserved, self._workdir)):
                return "stands in the way of a folder of the grader"
            if self._base_folder(entry.path):
                return "takes the place of a folder of the system"
        return ""

    def _turns_the_grader(self, entry: Written) -> str:
        if entry.kind is WrittenKind.FOLDER and not entry.opaque and not _START_MODULES.match(_name(entry.path)):
            return self._shadow_of_a_module(entry.path)
        if self._is_of_task(entry.path) or self._is_named(entry.path):
            return ""
        if entry.kind is WrittenKind.GONE:
            own = self._is_system(entry.path) or any(beneath(entry.path, place) for place in _LOADER)
            return "a part of the system was removed" if own and self._base_has(entry.path) else ""
        why = self._replaces(entry) or self._is_read_unasked(entry) or self._shadow_of_a_module(entry.path)
        why = why or turns_a_language(entry.path, self._base, system=_SYSTEM, is_link=entry.kind is WrittenKind.LINK)
        return why or self._is_setting_of_a_tool(entry.path)

    def _replaces(self, entry: Written) -> str:
        path = entry.path
        if self._is_system(path) and self._base_has(path):
            return "takes the place of a file of the system"
        if entry.kind is WrittenKind.LINK and any(beneath(folder, path) for folder in self._program_folders):
            return "a link in place of a folder of programs"
        folder, name = posixpath.split(path)
        known = name in _RUNNER_PROGRAMS or any(self._base_has(f"{f}/{name}") for f in self._program_folders)
        if folder in self._program_folders and known:
            return "a program of the system's name"
        return ""

    def _is_read_unasked(self, entry: Written) -> str:
        """Files that a loader, an interpreter or a test runner reads without being told to."""
        path, name = entry.path, _name(entry.path)
        speaks = _PROJECT_FILES.get(name)
        to_runner = speaks is not None and (entry.kind is WrittenKind.LINK or speaks in entry.data)
        in_site = _SITE.match(path) is not None
        if any(beneath(path, place) for place in _LOADER):
            return "settings of the loader of programs"
        if self._is_named(name):
            return ""
        if _START_MODULES.match(name) or (in_site and name.endswith(".pth")):
            return "run by every Python at its start"
        if name in _RUNNER_FILES or to_runner:
            return "read by a test runner unasked"
        return "may make a plug-in of a test runner known" if in_site and name == "entry_points.txt" else ""

    def _is_setting_of_a_tool(self, path: str) -> str:
        if path in self._unasked or not self._unasked.isdisjoint(above(path)):
            return "settings that a tool reads unasked, and the task is not about that tool"
        return ""

    def _shadow_of_a_module(self, path: str) -> str:
        """Modules that would be imported in place of the system's or of the test runner's."""
        if self._is_of_task(path) or self._is_named(path):
            return ""
        folder, name = posixpath.split(path)
        module = name.partition(".")[0]
        if folder == self._workdir and module in _RUNNER_MODULES:
            return "a module of a test runner's name"
        match = _SITE.match(path)
        if match and path == match.group(0) and not name.endswith((".dist-info", ".egg-info")):
            if _START_MODULES.match(name):
                return "run by every Python at its start"
            if module in self._system_modules():
                return "a module of the system's name"
        return ""

    # -------------------------------------------------------------------------------------------- links

    def _leads_astray(self, entry: Written, written: dict[str, Written]) -> str:
        """Follow a link through what was written and what was there, as the kernel would in the grader's sandbox."""
        todo = list(reversed(entry.path.split("/")))
        done, links, missing = "", 0, ""
        while todo:
            part = todo.pop()
            self._steps_left -= 1
            if self._steps_left < 0:
                return "one of too many links to follow"
            if part in ("", "."):
                continue
            if part == "..":
                done = posixpath.dirname(done)
                continue
            done = f"{done.rstrip('/')}/{part}"
            if any(beneath(done, place) for place in self._reserved):
                return "a link to where tests and verdicts lie"
            if done == "/dev" and todo:
                continue
            if any(beneath(done, place) for place in _OF_THE_MACHINE):
                return "" if not todo and done in _HARMLESS_DEVICES else f"a link into {done}"
            if missing and beneath(done, missing) and done not in written:  # it holds no link yet
                continue
            target = self._link_text(done, written)
            if target is None:
                missing = "" if self._is_there(done, written) else done
                continue
            links += 1
            if links > MOST_LINKS:
                return "a link that leads in a circle"
            todo += reversed(target.split("/"))
            done = "/" if target.startswith("/") else posixpath.dirname(done)
        return ""

    def _link_text(self, path: str, written: dict[str, Written]) -> str | None:
        entry = written.get(path)
        if entry is not None and entry.kind is not WrittenKind.FOLDER:
            return entry.target if entry.kind is WrittenKind.LINK else None
        if entry is not None:
            return None
        if path not in self._known_links:
            self._known_links[path] = self._image.link_text(path)
        return self._known_links[path]

    def _is_there(self, path: str, written: dict[str, Written]) -> bool:
        if path in written:
            return written[path].kind is not WrittenKind.GONE
        return self._image.has(path) or self._base_has(path)

    # -------------------------------------------------------------------------------------------- grounds

    def _is_of_task(self, path: str) -> bool:
        """Whether the task's own build put a file there, over the base or beside it."""
        mine = self._image.identity(path)
        return mine is not None and mine != self._base.identity(path)

    def _is_named(self, word: str) -> bool:
        """Whether the instruction has a path or a file's name as a word of its own."""
        return (
            word in self._instruction
            and re.search(rf"(?<![\w./-]){re.escape(word)}(?![\w/-]|\.\w)", self._instruction) is not None
        )

    def _base_has(self, path: str) -> bool:
        return self._base.has(path) or (self._base.over_host and path.startswith("/usr/") and _lexists(path))

    def _base_folder(self, path: str) -> bool:
        return self._base.is_folder(path) and self._base.link_text(path) is None

    def _is_system(self, path: str) -> bool:
        return any(beneath(path, folder) for folder in _SYSTEM)

    def _system_modules(self) -> frozenset[str]:
        if self._modules is None:
            roots = [Path("/usr"), self._base.root / "usr"] if self._base.over_host else [self._base.root / "usr"]
            patterns = ("lib/python3*/dist-packages", "lib/python3*/site-packages", "local/lib/python3*/*-packages")
            folders = [folder for root in roots for pattern in patterns for folder in root.glob(pattern)]
            self._modules = frozenset(
                entry.name.partition(".")[0] for folder in folders for entry in folder.iterdir()
            ) | {"pytest", "_pytest", "pluggy", "iniconfig"}
        return self._modules


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _lexists(path: str) -> bool:
    place = Path(path)
    return place.is_symlink() or place.exists()
