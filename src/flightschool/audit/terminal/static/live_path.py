"""The live path of a grader: which files it executes, imports and sources, followed from the test command."""

from __future__ import annotations

import ast
import posixpath
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from flightschool.audit.terminal.static.agent_view import AgentView, is_below
from flightschool.audit.terminal.static.python_code import PythonCode, parse_python
from flightschool.audit.terminal.static.python_flow import Flow
from flightschool.audit.terminal.static.python_starts import (
    PYTHON,
    first_line_program,
    guards_of,
    is_isolated,
    modules_of,
    names_of,
    path_additions,
)
from flightschool.audit.terminal.static.shell_runs import Run
from flightschool.audit.terminal.static.trust_map import GraderImport, GraderProgram, PythonEntry

__all__ = ["LivePath", "LivePython", "TestFiles", "follow_python"]

_RUNNERS: Final = frozenset(["pytest", "py.test"])
_WITH_VALUE: Final = frozenset(
    ["-p", "-c", "-k", "-m", "-o", "-W", "-n", "-r", "--rootdir", "--confcutdir", "--junitxml", "--junit-xml", "--tb",
     "--timeout", "--ctrf", "--override-ini", "--import-mode", "--durations", "--maxfail", "--config-file", "--color",
     "--json-report-file", "--html", "--cov", "--cov-report", "--basetemp", "--log-file", "--capture", "--report-log"]
)  # fmt: skip
_PYTHON_WITH_VALUE: Final = frozenset(["-W", "-X", "--check-hash-based-pycs"])
_INTERPRETERS: Final = frozenset(
    ["node", "ruby", "perl", "php", "Rscript", "lua", "julia", "deno", "bun", "awk", "java"]
)
_USUAL: Final = frozenset(
    [
        "PIL",
        "aiohttp",
        "bs4",
        "cryptography",
        "cv2",
        "django",
        "fastapi",
        "flask",
        "git",
        "google",
        "h5py",
        "httpx",
        "jinja2",
        "jsonschema",
        "lxml",
        "matplotlib",
        "mpmath",
        "msgspec",
        "networkx",
        "nltk",
        "numpy",
        "openpyxl",
        "packaging",
        "pandas",
        "paramiko",
        "pexpect",
        "pip",
        "pkg_resources",
        "polars",
        "psutil",
        "psycopg2",
        "pyarrow",
        "pydantic",
        "pytest",
        "redis",
        "requests",
        "rich",
        "ruamel",
        "scipy",
        "setuptools",
        "sklearn",
        "sqlalchemy",
        "starlette",
        "sympy",
        "tabulate",
        "tenacity",
        "toml",
        "tomli",
        "torch",
        "tqdm",
        "transformers",
        "typer",
        "websockets",
        "yaml",
        "hypothesis",
        "docker",
        "openai",
        "anthropic",
        "datasets",
        "rapidfuzz",
        "dateutil",
        "pytz",
        "chess",
    ]
)
MOST_FILES: Final = 60


class TestFiles:
    """Files that the grader gets, by their place in its sandbox."""

    __test__ = False

    def __init__(
        self, places: Mapping[str, str], texts: Mapping[str, str], read: Callable[[str], str] | None = None
    ) -> None:
        self.places = places
        """Absolute path → file of the folder."""
        self.texts = texts
        """File of the folder → its text, where it is one of bounded size; libraries beside the tests are left out."""
        self.roots = frozenset(posixpath.dirname(place).rstrip("/") + "/" for place in places) - {"/"}
        """Folders in which the tests lie, each with a slash at its end."""
        self._read = read

    def text(self, path: str) -> tuple[str, str] | None:
        """File of the folder and text at an absolute path."""
        source = self.places.get(path)
        if source is None:
            return None
        if source in self.texts:
            return source, self.texts[source]
        text = self._read(source) if self._read is not None else ""
        return (source, text) if text else None


@dataclass(slots=True, eq=False)
class LivePython:
    """A Python file, or code on a command line, that the grader runs in its own process."""

    code: PythonCode
    flow: Flow
    cwd: str
    by_pytest: bool
    run: Run
    """The command that starts it."""


@dataclass(slots=True)
class LivePath:
    """What the grader runs."""

    python: list[LivePython] = field(default_factory=list)
    files: dict[str, None] = field(default_factory=dict)
    """Files of the folder, in order."""
    entries: list[PythonEntry] = field(default_factory=list)
    programs: list[tuple[GraderProgram, Run]] = field(default_factory=list)
    imports: list[GraderImport] = field(default_factory=list)
    unparsed: list[str] = field(default_factory=list)


def follow_python(runs: list[Run], tests: TestFiles, view: AgentView, instruction: str) -> LivePath:
    """Find Python (and what else) behind the commands of a test script."""
    follower = _Follower(tests, view, instruction)
    for run in runs:
        follower.command(run)
    return follower.path


class _Follower:
    def __init__(self, tests: TestFiles, view: AgentView, instruction: str) -> None:
        self.tests = tests
        self.view = view
        self.instruction = instruction
        self.path = LivePath()
        self.copies: dict[str, str] = {}
        self.seen: set[tuple[str, str]] = set()

    def command(self, run: Run) -> None:
        if run.in_script:
            self.path.files[run.in_script] = None
        argv = run.argv
        program = run.program
        if program in ("cp", "mv", "install", "ln"):
            self._copied(run)
        elif any(posixpath.basename(word) in _RUNNERS for word in argv[:8]) and program not in _READ_ONLY:
            self._pytest(run, argv)
        elif PYTHON.match(program):
            self._python(run, argv)
        elif program in ("uv", "uvx", "poetry", "pipx", "hatch", "conda", "xvfb-run"):
            at = next((i for i, word in enumerate(argv) if PYTHON.match(posixpath.basename(word))), 0)
            if at:
                self._python(run, argv[at:])
        elif program in _INTERPRETERS or program in ("bash", "sh"):
            target = next(
                (run.path(word) for word in argv[1:] if not word.startswith("-") and ("/" in word or "." in word)), ""
            )
            self._script(run, target, program)
        elif argv and "/" in argv[0]:
            self._script(run, run.path(argv[0]), "")

    def _copied(self, run: Run) -> None:
        words = [word for word in run.argv[1:] if not word.startswith("-")]
        if len(words) < 2:
            return
        target = run.path(words[-1])
        for word in words[:-1]:
            source = run.path(word)
            if source and target:
                self.copies[posixpath.join(target, posixpath.basename(source))] = source
                self.copies.setdefault(target, source)

    def real(self, path: str) -> str:
        """Where a file that was copied before came from; folders above it count too."""
        if path in self.copies and path not in self.tests.places:
            return self.copies[path]
        folder = posixpath.dirname(path)
        if folder in self.copies and path not in self.tests.places:
            return posixpath.join(self.copies[folder], posixpath.basename(path))
        return path

    def _script(self, run: Run, path: str, interpreter: str) -> None:
        if not path:
            return
        found = self.tests.text(self.real(path))
        if found is not None:
            self.path.files[found[0]] = None
            if not interpreter and PYTHON.match(first_line_program(found[1])):
                self._load(path, run, by_pytest=False)
        elif self._of_agent(path):
            self._program(run, path, interpreter)

    def _of_agent(self, path: str) -> bool:
        system = ("/usr", "/bin", "/sbin", "/lib", "/etc", "/tests", "/dev", "/proc", "/logs")
        if path in self.view.files:
            return True
        return path not in self.tests.places and not any(is_below(path, place) for place in system)

    def _program(self, run: Run, path: str, interpreter: str) -> None:
        program = GraderProgram(
            path=path, where=run.where, interpreter=interpreter, reads_stdout=run.captured or run.piped
        )
        self.path.programs.append((program, run))

    # ------------------------------------------------------------------------------------------ Python

    def _python(self, run: Run, argv: tuple[str, ...]) -> None:
        at, flags = 1, list[str]()
        while at < len(argv) and argv[at].startswith("-") and argv[at] not in ("-", "-m", "-c"):
            flags.append(argv[at])
            at += 2 if argv[at] in _PYTHON_WITH_VALUE else 1
        word = argv[at] if at < len(argv) else "-"
        isolated = is_isolated(flags)
        entry = PythonEntry(
            runner="python",
            argv=argv,
            cwd=run.cwd,
            rootdir=run.cwd,
            isolated=isolated,
            guards=guards_of(run, argv),
            where=run.where,
        )
        if word == "-c" and at + 1 < len(argv):
            self.path.entries.append(entry)
            self._text(argv[at + 1], run, first_line=run.line)
        elif word == "-" or (at >= len(argv) and run.document is not None):
            self.path.entries.append(entry)
            self._text(run.document or "", run, first_line=run.line + 1)
        elif word == "-m" and at + 1 < len(argv):
            self._module(run, argv, at, entry)
        else:
            path = run.path(word)
            if path and (self.tests.text(self.real(path)) is not None):
                self.path.entries.append(_with(entry, targets=(path,), rootdir=posixpath.dirname(path)))
                self._load(path, run, by_pytest=False)
            elif path and self._of_agent(path):
                self._program(run, path, "python3")

    def _module(self, run: Run, argv: tuple[str, ...], at: int, entry: PythonEntry) -> None:
        module = argv[at + 1]
        if module == "unittest":
            names = [word for word in argv[at + 2 :] if not word.startswith("-") and word != "discover"]
            paths = [run.path(name if name.endswith(".py") else name.split(".")[0] + ".py") for name in names]
            self.path.entries.append(_with(entry, runner="unittest", targets=tuple(paths)))
            for path in [path for path in paths if path]:
                self._load(path, run, by_pytest=True)
            if not names:
                self._folder(run.cwd, run)
            return
        path = posixpath.join(run.cwd, module.replace(".", "/") + ".py")
        if self.tests.text(self.real(path)) is not None:
            self._load(path, run, by_pytest=False)
        elif path in self.view.files:
            self._program(run, path, "python3")

    def _pytest(self, run: Run, argv: tuple[str, ...]) -> None:
        at = max(i for i, word in enumerate(argv[:8]) if posixpath.basename(word) in _RUNNERS)
        options, targets, skip = dict[str, str](), list[str](), ""
        for word in argv[at + 1 :]:
            if skip:
                options[skip], skip = word, ""
            elif word.startswith("-"):
                name, equals, value = word.partition("=")
                options[name] = value
                skip = name if not equals and name in _WITH_VALUE else ""
            else:
                targets.append(word.partition("::")[0])
        paths = [path for path in (run.path(target) for target in targets) if path]
        folders = [posixpath.dirname(path) if path.endswith(".py") else path for path in paths]
        common = posixpath.commonpath(folders) if folders else run.cwd
        python = next((i for i, word in enumerate(argv[:at]) if PYTHON.match(posixpath.basename(word))), -1)
        self.path.entries.append(
            PythonEntry(
                runner="pytest",
                argv=argv,
                cwd=run.cwd,
                rootdir=run.path(options["--rootdir"]) if "--rootdir" in options else common,
                targets=tuple(paths),
                confcutdir=options.get("--confcutdir", ""),
                isolated=python < 0 or is_isolated(argv[python + 1 : at]),
                guards=guards_of(run, argv),
                where=run.where,
            )
        )
        for path in paths or [run.cwd]:
            if path.endswith(".py"):
                self._load(path, run, by_pytest=True)
            else:
                self._folder(path, run)

    def _folder(self, folder: str, run: Run) -> None:
        copied = [p for p in self.copies if is_below(p, folder)]
        for path in [*self.tests.places, *self.view.files, *copied]:
            name = posixpath.basename(path)
            if (
                is_below(path, folder)
                and name.endswith(".py")
                and (name.startswith("test") or name.endswith("_test.py"))
            ):
                self._load(path, run, by_pytest=True)

    def _load(self, path: str, run: Run, *, by_pytest: bool) -> None:
        if (path, run.cwd) in self.seen or len(self.path.python) >= MOST_FILES:
            return
        self.seen.add((path, run.cwd))
        found = self.tests.text(self.real(path))
        if found is None:
            found = self.view.read_script(path)
            if found is None:
                return
            self._program(run, path, "pytest" if by_pytest else "python3")
        self.path.files[found[0]] = None
        code = parse_python(found[1], found[0], path)
        if code is None:
            self.path.unparsed.append(found[0])
            return
        self._add(code, run, by_pytest)
        if by_pytest:
            conftest = posixpath.join(posixpath.dirname(path), "conftest.py")
            if self.tests.text(self.real(conftest)) is not None:
                self._load(conftest, run, by_pytest=True)

    def _text(self, text: str, run: Run, *, first_line: int) -> None:
        code = parse_python(text, run.file, "", first_line)
        if code is None:
            self.path.unparsed.append(run.where)
            return
        self._add(code, run, by_pytest=False)

    def _add(self, code: PythonCode, run: Run, by_pytest: bool) -> None:
        flow = Flow(code, {}, run.cwd)
        self.path.python.append(LivePython(code, flow, run.cwd, by_pytest, run))
        for found in self._imports(code, flow, run):
            if isinstance(found, str):
                self._load(found, run, by_pytest=False)
                continue
            self.path.imports.append(found)
            flow.modules[found.module] = found.path

    def _imports(self, code: PythonCode, flow: Flow, run: Run) -> Iterator[GraderImport | str]:
        """Modules of the agent's space, and paths of the tests' own modules."""
        folders = [posixpath.dirname(code.path)] if code.path else []
        added = list(path_additions(code, flow))
        python_path = run.env.get("PYTHONPATH", "")
        added += [folder for folder in python_path.split(":") if folder.startswith("/")]
        if not code.path or "-m" in run.argv[:3]:
            added.append(run.cwd)
        for module, node in modules_of(code):
            first = module.partition(".")[0]
            if first in sys.stdlib_module_names or not first:
                continue
            own = [f"{folder}/{module.replace('.', '/')}.py" for folder in [*folders, *added]]
            mine = next((path for path in own if self.tests.text(self.real(path)) is not None), "")
            if mine:
                yield mine
                continue
            path = self._agent_module(module, [*added, *folders])
            if path:
                yield GraderImport(module=first, path=path, where=code.where(node), names=names_of(code, first, node))
        for node in code.nodes(ast.Call):
            effect = flow.effect(node, code.full_name(node))
            if effect is not None and effect[0] == "module" and self._of_agent(effect[1]):
                yield GraderImport(module=effect[1], path=effect[1], where=code.where(node))

    def _agent_module(self, module: str, folders: list[str]) -> str:
        names = [module.replace(".", "/"), module.partition(".")[0]]
        for folder in folders:
            for name in names:
                for path in (f"{folder}/{name}.py", f"{folder}/{name}/__init__.py"):
                    if path in self.view.files:
                        return path
        first = names[1]
        spoken = f"{first}.py" in self.instruction or f"/{first}/" in self.instruction
        agents = [folder for folder in folders if self._of_agent(folder + "/x")]
        if agents and (spoken or (first not in _USUAL and self._of_agent(agents[0] + "/x"))):
            return f"{agents[0]}/{first}.py"
        return ""


_READ_ONLY: Final = frozenset(["pip", "pip3", "apt-get", "apt", "echo", "grep", "which", "command", "printf", "cat"])


def _with(entry: PythonEntry, **changes: object) -> PythonEntry:
    return msgspec.structs.replace(entry, **changes)
