"""Commands as a shell script would run them, each with its conditions, its folder and the fate of its exit status."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

__all__ = ["SHELLS", "Copies", "Guard", "ReadScript", "Run", "is_shell", "options_of"]

MOST_BASIS = 400
SHELLS = frozenset(["bash", "sh", "dash", "zsh", "ash", "ksh"])
_WRAPPERS = frozenset(["command", "env", "eatmydata", "exec", "nice", "nohup", "stdbuf", "sudo", "time", "timeout"])

ReadScript = Callable[[str], "tuple[str, str] | None"]
"""A path of the sandbox → file of the folder and its text; None: not known."""


@dataclass(slots=True, eq=False)
class Guard:
    """A condition under which commands run."""

    kind: str
    """``if``, ``else``, ``and``, ``or``, ``case``, ``loop`` or ``trap``."""
    runs: list[Run]
    line: int
    negated: bool = False


@dataclass(slots=True, eq=False)
class Run:
    """One command where it would run."""

    words: tuple[str, ...]
    file: str
    line: int
    cwd: str
    guards: tuple[Guard, ...] = ()
    writes: tuple[tuple[str, bool], ...] = ()
    """Paths of ``>`` and ``>>`` (true), resolved."""
    reads: tuple[str, ...] = ()
    """Paths of ``<``, resolved."""
    document: str | None = None
    """What is fed to its standard input."""
    env: Mapping[str, str] = field(default_factory=dict)
    use: str = "unused"
    """Of its exit status: ``unused``, ``condition``, ``captured``, ``errexit``, ``swallowed``, ``piped`` (another
    command's status stands for it) or ``last``."""
    statuses: list[Run] = field(default_factory=list)
    """Commands whose exit status it looks at (``$?``, or a variable that holds it)."""
    sources: list[Run] = field(default_factory=list)
    """Commands whose output it takes: in front of it in a pipe, in a substitution, or by a variable."""
    inner: list[Run] = field(default_factory=list)
    """What a script or function that it calls runs."""
    piped: bool = False
    """Whether its output goes into a pipe."""
    captured: bool = False
    """Whether its output goes into a variable or word."""
    background: bool = False
    asked: bool = False
    """Whether it stands in the condition of an ``if`` or a loop, whose output is not that of the body."""
    in_script: str = ""
    """File of the folder that it starts as a shell script."""

    _unwrapped: tuple[tuple[str, ...], tuple[str, ...], str] | None = None

    @property
    def program(self) -> str:
        """Base name of what is run, behind ``env``, ``timeout`` and the like."""
        return self._behind_wrappers()[2]

    @property
    def argv(self) -> tuple[str, ...]:
        """The words behind wrappers."""
        return self._behind_wrappers()[1]

    def _behind_wrappers(self) -> tuple[tuple[str, ...], tuple[str, ...], str]:
        known = self._unwrapped
        if known is None or known[0] is not self.words:
            argv = _unwrapped(self.words)
            known = self._unwrapped = (self.words, argv, argv[0].rpartition("/")[2] if argv else "")
        return known

    @property
    def where(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}"

    def path(self, word: str) -> str:
        """A word as an absolute path; empty where it cannot be known."""
        if not word or word.startswith(("$", "~$")) or "$()" in word:
            return ""
        return posixpath.normpath(posixpath.join(self.cwd, word)) if self.cwd or word.startswith("/") else ""

    def basis(self) -> Iterator[Run]:
        """Itself and every command that its status or output comes from, 400 at most."""
        seen: set[int] = set()
        todo = [self]
        while todo and len(seen) < MOST_BASIS:
            run = todo.pop()
            if id(run) in seen:
                continue
            seen.add(id(run))
            yield run
            todo += run.statuses + run.sources + run.inner


def _unwrapped(words: tuple[str, ...]) -> tuple[str, ...]:
    while words and words[0].rpartition("/")[2] in _WRAPPERS:
        at = 1
        while at < len(words) and (words[at].startswith("-") or "=" in words[at] or words[at][:1].isdigit()):
            at += 2 if words[at] in ("-k", "-s", "-u", "-n", "-C") else 1
        words = words[at:]
    return words


def is_shell(text: str) -> bool:
    """Whether a program's text is a shell script by its first line; one without ``#!`` is taken for one."""
    first = text.partition("\n")[0]
    return not first.startswith("#!") or "sh" in first.rpartition("/")[2]


class Copies:
    """Files that a script copies or links before it uses them."""

    def __init__(self) -> None:
        self._sources: dict[str, str] = {}

    def add(self, run: Run, arguments: list[str], home: str) -> None:
        """Note a ``cp``, ``mv``, ``install`` or ``ln`` with its arguments (options left out)."""
        *sources, target = [run.path(word) for word in arguments]
        into = arguments[-1].endswith(("/", ".")) or len(sources) > 1 or target in (home, run.cwd)
        for source in sources:
            if source and target:
                inside = posixpath.join(target, posixpath.basename(source))
                self._sources[inside if into else target] = source
                self._sources.setdefault(inside, source)

    def real(self, path: str) -> str:
        """Where a file came from."""
        for _ in range(4):
            if path not in self._sources:
                break
            path = self._sources[path]
        return path


def options_of(words: tuple[str, ...]) -> dict[str, bool]:
    """``errexit`` and ``pipefail`` as the words of ``set`` change them."""
    changed: dict[str, bool] = {}
    for at, word in enumerate(words):
        if word[:1] not in ("-", "+") or word.startswith("--"):
            continue
        if "e" in word:
            changed["errexit"] = word[0] == "-"
        if word.endswith("o") and words[at + 1 : at + 2] in (("pipefail",), ("errexit",)):
            changed[words[at + 1]] = word[0] == "-"
    return changed
