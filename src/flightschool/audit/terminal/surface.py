"""What a task's grader touches and what of it the policy can reach, from the built image and the text of the tests."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from flightschool.audit.terminal.shipped import Shipped, given_by_steps, language_of, shipped_by_build
from flightschool.audit.terminal.static import StaticPass, TrustMap, examine_static
from flightschool.environments.terminal import Placement, TerminalTask
from flightschool.environments.terminal.contents import Contents, list_contents
from flightschool.environments.terminal.end_state import beneath
from flightschool.environments.terminal.trees import Image, Tree
from flightschool.errors import InputError

__all__ = ["Surface", "fits_pattern", "look_at", "mentions", "speaks_of"]

_ABSOLUTE: Final = re.compile(r"(?<![\w.$}~-])/(?:[\w.+@~-]+/)*[\w.+@~-]+/?")
_RELATIVE: Final = re.compile(
    r"(?<![\w./$}-])(?:\./)?((?:[\w+@-][\w.+@-]*/)*(?:[\w+@-]+\.[A-Za-z][\w]{0,9}|\.[A-Za-z][\w.-]+))(?![\w/(])"
)
_PATTERN: Final = re.compile(r"[\w./-]*\*[\w.*-]*")
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
_OTHERS: Final = "node ruby perl php Rscript lua julia deno bun java go cargo make npm npx"
_OTHER_LANGUAGES: Final = frozenset(_OTHERS.split())


SCRATCH: Final = ("/tmp/", "/var/tmp/")
"""Where a program leaves what nobody asked for."""


class Surface:
    """Texts of the tests, files of the image, and the paths, programs and modules that the tests speak of."""

    def __init__(
        self,
        task: TerminalTask,
        image: Image,
        shipped: Sequence[Shipped],
        tests: dict[str, str],
        solution: str,
        static: StaticPass,
    ) -> None:
        self.task = task
        self.trust = static.trust
        """What the static pass says that the grader relies on, by stages."""
        self.skipped = static.skipped
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
    def python_text(self) -> str:
        """Python of the grader."""
        return "\n".join(text for language, text in self._code if language == "python")

    @cached_property
    def shell_text(self) -> str:
        """Shell of the grader, with the command that starts it."""
        starts = [" ".join(stage.test_command) for stage in self.task.stages]
        return "\n".join([*starts, *(text for language, text in self._code if language == "shell")])

    @cached_property
    def _code(self) -> list[tuple[str, str]]:
        own = [(language_of(path, text[:200].encode(), 0o755), text) for path, text in self.tests.items()]
        return [*own, *((one.language, one.text) for one in self.live if one.language)]

    @property
    def is_followed(self) -> bool:
        """Whether all code of the grader is shell or Python and was read as a whole: then its text proves things."""
        known = all(language in ("", "python", "shell") for language, _ in self._code)
        foreign = {name for trust in self.trust for name in trust.grader_commands} & _OTHER_LANGUAGES
        return known and not foreign and not self.skipped and all(trust.grader_files for trust in self.trust)

    @cached_property
    def own_places(self) -> tuple[str, ...]:
        """Where the task's tests and solution are put: never the policy's business."""
        stages = self.task.stages
        return tuple({p.target for stage in stages for p in (*stage.tests, *stage.solution)} | {"/logs"})

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Absolute paths outside the system and the tests that the grader speaks of; relative ones from the workdir."""
        found = [path for trust in self.trust for path in _trusted_paths(trust)]
        found += [match.group().rstrip("/.") for match in _ABSOLUTE.finditer(self.grader_text)]
        found += [
            posixpath.normpath(posixpath.join(self.image.workdir, match.group(1)))
            for match in _RELATIVE.finditer(self.grader_text)
        ]
        reach = (path for path in found if path.startswith("/") and len(path) > 1 and not self._is_off(path))
        return tuple(dict.fromkeys(reach))[:200]

    def _is_off(self, path: str) -> bool:
        return any(beneath(path, place) for place in (*_SYSTEM, *self.own_places))

    @cached_property
    def programs(self) -> tuple[str, ...]:
        """Bare names of programs that the grader calls."""
        shell = [text for path, text in self.tests.items() if not path.endswith(".py")]
        shell += [one.text for one in self.live if one.language == "shell"]
        names = [name for trust in self.trust for name in trust.grader_commands]
        names += [name for text in shell for name in _COMMAND.findall(text)]
        names += _RUN_LIST.findall(self.grader_text)
        return tuple(name for name in dict.fromkeys(names) if name not in _SHELL_WORDS and "=" not in name)[:40]

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """Top-level modules that the grader's Python imports."""
        names = [one.module for trust in self.trust for one in trust.grader_imports]
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
        """Whether the instruction speaks of a path: in full, by its name, or by a folder above below the workdir.

        What lies in a scratch folder is spoken of in full only: a solution's own ``/tmp/plan.py`` is no *plan*.
        """
        if speaks_of(self.instruction, path) or fits_pattern(self.instruction, path):
            return True
        folder = posixpath.dirname(path)
        while folder.count("/") >= 2 and folder != self.image.workdir:
            if mentions(self.instruction, folder):
                return True
            folder = posixpath.dirname(folder)
        return False


def fits_pattern(text: str, path: str) -> bool:
    """Whether a text names files by a pattern (``*.log.gz``) that a path fits."""
    name = posixpath.basename(path)
    found = (posixpath.basename(one.rstrip(".,;:)")) for one in _PATTERN.findall(text))
    return any(len(one.replace("*", "")) > 1 and fnmatch.fnmatchcase(name, one) for one in found)


def speaks_of(text: str, path: str) -> bool:
    """Whether a text speaks of a path; of one in a scratch folder, in full."""
    return mentions(text, path) and (path in text or not path.startswith(SCRATCH))


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


def look_at(task: TerminalTask, image: Image, base: Tree, static: StaticPass | None = None) -> Surface:
    """Read the image and the task's texts.

    Args:
        task: the task.
        image: its image.
        base: the tree that the image began with.
        static: what the static pass found; None: it is made.
    """
    static = static or examine_static(task)
    live = {path for trust in static.trust for path in trust.grader_files}
    tests: dict[str, str] = {}
    solution: list[str] = []
    for stage in task.stages:
        tests.update(_texts(task, stage.tests, live))
        solution += _texts(task, stage.solution).values()
    shipped = [*shipped_by_build(task, image, base), *given_by_steps(task, image)]
    shipped.sort(key=lambda one: (one.path.count("/"), one.size, one.data[:4096], one.path))  # names decide last
    return Surface(task, image, shipped, tests, "\n".join(solution), static)


def _trusted_paths(trust: TrustMap) -> Iterator[str]:
    """Paths of a trust map that the policy may have a hand in."""
    yield from (read.path for read in trust.grader_reads if read.of_agent)
    yield from (program.path for program in trust.grader_programs)
    yield from (one.path for one in trust.grader_imports if one.path)
    yield from (*trust.verdict_paths, *trust.output_paths, *trust.input_paths)


def _texts(task: TerminalTask, placements: Sequence[Placement], live: Collection[str] | None = None) -> dict[str, str]:
    """Text of placed files; with ``live``, libraries that lie beside the tests are left out.

    A library is a module of a package that nothing on the live path is: a test runner that the tests bring along.
    """
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
            if live is not None and entry.path not in live and _is_library(contents, entry.path):
                continue
            if contents.is_file(entry.path):
                below = entry.path.removeprefix(placement.source).lstrip("/")
                read(entry.path, posixpath.join(placement.target, below))
    return found


def _is_library(contents: Contents, path: str) -> bool:
    folder = posixpath.dirname(path)
    return path.endswith((".py", ".pyi", ".typed")) and f"{folder}/__init__.py" in contents.entries
