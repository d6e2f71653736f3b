"""A stage of a task as the detectors see it: its grader's live path, the agent's view, and what is expected."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from flightschool.audit.terminal.flaws import FLAWS
from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.agent_view import AgentView, build_view
from flightschool.audit.terminal.static.comparisons import Comparison
from flightschool.audit.terminal.static.hints import PROBE_HINTS
from flightschool.audit.terminal.static.live_path import LivePath, TestFiles, follow_python
from flightschool.audit.terminal.static.shell_runs import Run
from flightschool.audit.terminal.static.shell_walk import run_shell
from flightschool.audit.terminal.static.trust_map import LeakCandidate, TrustMap
from flightschool.environments.terminal import BuildPlan, Note, TaskStep, TerminalTask, plan_build
from flightschool.environments.terminal.building import build_files
from flightschool.environments.terminal.contents import Contents, EntryKind, list_contents
from flightschool.errors import InputError
from flightschool.records import Severity

__all__ = ["Case", "Folder", "Secret", "open_case", "open_folder", "places_of", "solution_files", "verdict_path"]

MOST_TEXT: Final = 256 << 10
"""Bytes of one script or module that are read."""
MOST_TEXTS: Final = 4 << 20
"""Bytes of all of them."""


@dataclass(slots=True)
class Folder:
    """A task's folder, read once for all stages."""

    task: TerminalTask
    contents: Contents
    plan: BuildPlan | None
    view: AgentView
    skipped: list[Note] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    num_bytes: int = 0

    def note(self, where: str, what: str) -> None:
        """Say what was not looked at."""
        note = Note(where=where, what=what)
        if note not in self.skipped:
            self.skipped.append(note)

    def text(self, path: str) -> str:
        """Text of a file of the folder; its beginning where it is large; empty where it is no text."""
        known = self.texts.get(path)
        if known is not None:
            return known
        text = ""
        try:
            data = self.contents.read_head(path, MOST_TEXT + 1) if self.num_bytes < MOST_TEXTS else b""
            self.num_bytes += len(data)
            if self.num_bytes >= MOST_TEXTS:
                self.note(path, "the folder holds more text than is read")
            if len(data) > MOST_TEXT:
                self.note(path, f"only the first {MOST_TEXT} bytes are read")
                data = data[:MOST_TEXT]
            if b"\0" in data:
                self.note(path, "no text: it holds zero bytes")
            else:
                text = data.decode("utf-8-sig", errors="replace")
        except (InputError, OSError) as error:
            self.note(path, f"cannot be read: {error}")
        return self.texts.setdefault(path, text)


@dataclass(frozen=True, slots=True)
class Secret:
    """Something expected, that the policy should not be able to read."""

    text: str
    where: str
    """File and line that expect it."""
    output: str = ""
    """Path whose content it is, where that is known."""
    whole: bool = False
    """Whether it is all that is expected there, rather than a part."""


@dataclass(slots=True)
class Case:
    """One stage."""

    folder: Folder
    stage: TaskStep
    instruction: str
    tests: TestFiles
    runs: list[Run]
    """Commands of the test script that are reached, in order."""
    live: LivePath
    trust: TrustMap
    solution_text: str
    solution: list[Run] = field(default_factory=list)
    """Commands of the reference solution, where it is a shell script."""
    comparisons: list[Comparison] = field(default_factory=list)
    """What Python tests compare with the policy's work."""
    secrets: list[Secret] = field(default_factory=list)
    leaks: list[LeakCandidate] = field(default_factory=list)
    _verdict_runs: list[Run] | None = None
    _decisive: list[Run] | None = None

    @property
    def task(self) -> TerminalTask:
        """The task."""
        return self.folder.task

    @property
    def view(self) -> AgentView:
        """What the agent finds."""
        return self.folder.view

    def of_agent(self, path: str) -> bool:
        """Whether a path is the policy's to write, rather than the tests' or the system's."""
        if not path or path in self.tests.places:
            return False
        if any(path.startswith(root) for root in self.tests.roots):
            return False
        return not path.startswith(("/usr/", "/bin/", "/lib", "/dev/", "/proc/", "/sys/", "/logs/verifier"))

    def decisive(self) -> list[Run]:
        """Commands that the verdict hangs on: conditions and sources of what is written as the verdict."""
        if self._decisive is not None:
            return self._decisive
        found: dict[int, Run] = {}
        todo: list[Run] = []
        for run in self.verdict_runs():
            todo += run.sources + run.statuses
            todo += [condition for guard in run.guards for condition in guard.runs if id(condition) not in found]
            while todo:
                here = todo.pop()
                if id(here) not in found:
                    found[id(here)] = here
                    todo += here.statuses + here.sources + here.inner
        order = {id(run): at for at, run in enumerate(self.runs)}
        self._decisive = sorted(found.values(), key=lambda run: order.get(id(run), -1))
        return self._decisive

    def verdict_runs(self) -> list[Run]:
        """Commands that write the verdict."""
        if self._verdict_runs is None:
            self._verdict_runs = [run for run in self.runs if verdict_path(run)][:MOST_VERDICTS]
        return self._verdict_runs

    def finding(self, flaw: str, what: str, where: str, confidence: float, mend: str) -> FlawFinding:
        """A warning about this stage."""
        step = f" (step {self.stage.name})" if self.stage.name else ""
        return FlawFinding(
            flaw=flaw,
            severity=Severity.WARNING,
            accuses=FLAWS[flaw].accuses,
            what=what + step,
            where=where,
            confirmed=False,
            observed=f"read, not run; could be confirmed so: {PROBE_HINTS[flaw]}",
            confidence=confidence,
            mend=mend,
        )


MOST_VERDICTS: Final = 60
VERDICT_FOLDER: Final = "/logs/verifier"
_SILENT: Final = frozenset(
    ["[", "[[", "test", "grep", "rm", "mkdir", "touch", "chmod", "chown", "cd", "set", "exit", ":"]
)


def verdict_path(run: Run) -> str:
    """The verdict's file that a command writes; empty: none."""
    if run.program in _SILENT:
        return ""
    targets = [path for path, _ in run.writes]
    if run.program in ("cp", "mv", "install", "tee", "ln"):
        words = [word for word in run.argv[1:] if not word.startswith("-")]
        targets += [run.path(word) for word in (words if run.program == "tee" else words[-1:])]
    for path in targets:
        name = posixpath.basename(path)
        if path.startswith(VERDICT_FOLDER) and (name in ("reward.txt", "reward.json") or path == VERDICT_FOLDER):
            return path
    return ""


def open_folder(task: TerminalTask) -> Folder:
    """Read the folder and follow its build. Never fails for a folder that was read before; what cannot be is noted."""
    contents = list_contents(Path(task.folder))
    notes: list[Note] = []
    plan: BuildPlan | None = None
    context, dockerfile = "", task.dockerfile or "Dockerfile"
    try:
        if task.dockerfile:
            context = "" if task.environment_dir == "." else task.environment_dir
        else:
            dockerfile, context = build_files(task)
        plan = plan_build(task, contents=contents)
    except (InputError, OSError, RecursionError) as error:
        notes.append(Note(where=task.dockerfile or task.folder, what=f"the build cannot be read: {error}"))
    user = next((stage.agent_user for stage in task.stages if stage.agent_user), "")
    empty = BuildPlan(base="", steps=())
    view = build_view(contents, plan or empty, context, user, dockerfile or "Dockerfile")
    return Folder(task, contents, plan, view, notes)


def open_case(folder: Folder, stage: TaskStep) -> Case:
    """Follow the grader of one stage."""
    task = folder.task
    places = dict(_placed(folder, stage))
    own = [s for s in dict.fromkeys(places.values()) if _is_code(s) and not _is_library(folder.contents, s)]
    texts = {source: folder.text(source) for source in own}
    tests = TestFiles(places, texts, lambda source: folder.text(source) if _is_code(source) else "")
    plan = folder.plan
    workdir = task.workdir or (plan.workdir if plan is not None else "/")
    values: dict[str, str] = {"HOME": "/root", "PWD": workdir, **(plan.env if plan is not None else {})}
    values |= {k: v for k, v in {**task.environment_env, **task.verifier_env}.items() if "${" not in v}
    instruction = f"{task.instruction}\n{stage.instruction}"
    runs: list[Run] = []
    script = stage.test_command[-1] if stage.test_command else ""
    found = tests.text(script)
    if found is not None:

        def read(path: str) -> tuple[str, str] | None:
            return tests.text(path) or folder.view.read_script(path)

        values = {name: value for name, value in values.items() if name not in ("PATH",)}
        if "python" in " ".join(stage.test_command[:-1]):
            runs = [Run(stage.test_command, found[0], 1, workdir)]
        else:
            runs = run_shell(found[1], file=found[0], path=script, cwd=workdir, values=values, read=read)
    live = follow_python(runs, tests, folder.view, instruction)
    if found is not None:
        live.files = {found[0]: None, **live.files}
    for name in live.unparsed:
        folder.note(name, "no Python that can be read here")
    solution = "\n".join(folder.text(path) for path in _solution_files(folder, stage))
    return Case(folder, stage, instruction, tests, runs, live, TrustMap(stage=stage.name), solution)


def _placed(folder: Folder, stage: TaskStep) -> Iterator[tuple[str, str]]:
    contents = folder.contents
    for placement in stage.tests:
        if contents.is_file(placement.source):
            yield placement.target, contents.resolve(placement.source) or placement.source
            continue
        for entry in contents.below(placement.source):
            if entry.kind is EntryKind.FILE:
                yield f"{placement.target}/{entry.path.removeprefix(placement.source).lstrip('/')}", entry.path


def _is_code(path: str) -> bool:
    name = posixpath.basename(path)
    return "." not in name or name.endswith(
        (".sh", ".py", ".bash", ".pl", ".rb", ".js", ".awk", ".ini", ".cfg", ".toml")
    )


def _is_library(contents: Contents, path: str) -> bool:
    """A module of a package: a library that the tests bring along, read only where the live path leads to it."""
    return path.endswith(".py") and f"{posixpath.dirname(path)}/__init__.py" in contents.entries


def _solution_files(folder: Folder, stage: TaskStep) -> list[str]:
    found: list[str] = []
    for placement in stage.solution:
        if folder.contents.is_file(placement.source):
            found.append(placement.source)
        else:
            found += [e.path for e in folder.contents.below(placement.source) if e.kind is EntryKind.FILE][:40]
    return found


def solution_files(case: Case) -> list[str]:
    """Files of the reference solution."""
    return _solution_files(case.folder, case.stage)


def places_of(case: Case) -> Mapping[str, str]:
    """Where the tests' files lie: absolute path → file of the folder."""
    return case.tests.places
