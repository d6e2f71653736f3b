"""What the reference solution made of the task: the files that count, and when other work is the same work."""

from __future__ import annotations

import csv
import io
import json
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from flightschool.audit.terminal.scripting import by_stage, put, removed
from flightschool.audit.terminal.shipped import language_of
from flightschool.audit.terminal.surface import Surface, mentions, speaks_of
from flightschool.environments.terminal.end_state import EndState
from flightschool.sandbox.written import Written, WrittenKind

__all__ = ["Output", "Work", "canonical", "guessed_work", "work_of"]

_NEVER: Final = ("/__pycache__/", "/.git/", "/.cache/", "/.pytest_cache/", "/node_modules/")
_PATH: Final = re.compile(r"(?<![\w.$}~-])/(?:[\w.+@~-]+/)*[\w.+@~-]+")
_SCRATCH: Final = ("/tmp", "/var/tmp", "/var/cache", "/var/log", "/var/lib")
MOST_SCRIPT_BYTES: Final = 256 << 10


@dataclass(frozen=True, kw_only=True)
class Output:
    """A file that the reference wrote and that counts."""

    path: str
    stage: str
    data: bytes
    mode: int
    kind: str
    """``json``, ``jsonl``, ``table``, ``text``, ``code`` or ``binary``."""
    language: str
    """Of code."""
    before: bytes | None
    """Content in the image; None: it is new."""
    named: bool
    """Whether the instruction speaks of it."""
    graded: bool
    """Whether the tests speak of it."""
    stable: bool = True
    """Whether repeats of the reference wrote the same."""
    asked: bool = True
    """Whether the task asks for it; not so where the tests alone turned out to."""

    @property
    def text(self) -> str:
        """Content as text."""
        return self.data.decode(errors="replace")


@dataclass(frozen=True, kw_only=True)
class Work:
    """All that the reference did, by stages, and what of it counts."""

    states: tuple[EndState, ...]
    stages: tuple[str, ...]
    outputs: tuple[Output, ...]
    removed: tuple[str, ...]
    """Paths of the image that it removed."""

    def is_same(self, states: Sequence[EndState]) -> bool:
        """Whether other end states hold the same work: equal outputs in meaning, and the same removals."""
        if not states or (not self.outputs and not self.removed):
            return False
        last = {entry.path: entry for entry in states[-1].entries}
        for output in self.outputs:
            entry = last.get(output.path)
            if entry is None or entry.kind is not WrittenKind.FILE:
                return False
            if canonical(output.kind, entry.data) != canonical(output.kind, output.data):
                return False
        return all(path in last and last[path].kind is WrittenKind.GONE for path in self.removed)

    def changed(self, path: str, data: bytes | None, **fields: int) -> tuple[EndState, ...]:
        """The states with another content of one file; None: the file was not written."""
        return tuple(_changed(state, path, data, fields) for state in self.states)

    def with_file(self, path: str, data: bytes) -> tuple[EndState, ...]:
        """The states with one more file."""
        entry = Written(path=path, kind=WrittenKind.FILE, mode=0o644, data=data)
        return tuple(state.then([entry]) for state in self.states)

    def body(self, states: Sequence[EndState]) -> str:
        """Commands that leave these end states, step by step; empty: they are too large for a script."""
        bodies: dict[str, str] = {}
        earlier: dict[str, Written] = {}
        for stage, state in zip(self.stages, states, strict=False):
            lines: list[str] = []
            for entry in state.entries:
                if earlier.get(entry.path) == entry or any(part in f"{entry.path}/" for part in _NEVER[:1]):
                    continue
                lines.append(_command(entry))
            gone = [path for path in earlier if all(entry.path != path for entry in state.entries)]
            lines += [removed(path) for path in gone]
            earlier = {entry.path: entry for entry in state.entries}
            bodies[stage] = "".join(lines) or ":\n"
        text = by_stage(bodies)
        return text if len(text) <= MOST_SCRIPT_BYTES else ""

    def fill(self, contents: dict[str, bytes]) -> str:
        """Commands that write given contents to outputs, each in its step."""
        bodies: dict[str, str] = dict.fromkeys(self.stages, "")
        modes = {output.path: (output.stage, output.mode) for output in self.outputs}
        for path, data in contents.items():
            stage, mode = modes.get(path, (self.stages[-1], 0o644))
            bodies[stage] += put(path, data, mode=mode if mode & 0o111 else None)
        return by_stage({stage: body or ":\n" for stage, body in bodies.items()})


def work_of(surface: Surface, states: Sequence[EndState]) -> Work:
    """What counts of the reference's end states: what the instruction or the tests speak of; where nothing is, all."""
    stages = tuple(stage.name for stage in surface.task.stages)
    shipped = {one.path: one.data for one in surface.shipped}
    found: dict[str, Output] = {}
    gone: dict[str, None] = {}
    earlier: dict[str, Written] = {}
    for stage, state in zip(stages, states, strict=False):
        for entry in state.entries:
            if earlier.get(entry.path) == entry or any(part in f"{entry.path}/" for part in _NEVER):
                continue
            if entry.kind is WrittenKind.FILE:
                found[entry.path] = _output(entry, stage, shipped.get(entry.path), surface)
            elif entry.kind is WrittenKind.GONE and entry.path in shipped:
                gone[entry.path] = None
        earlier = {entry.path: entry for entry in state.entries}
    told = [one for one in found.values() if one.named or one.graded]
    rest = [one for one in found.values() if not posixpath.dirname(one.path).startswith(_SCRATCH)]
    outputs = [one for one in told or rest if one.data != (one.before if one.before is not None else None)]
    return Work(states=tuple(states), stages=stages, outputs=tuple(outputs[:24]), removed=tuple(gone))


def guessed_work(surface: Surface) -> Work:
    """What the instruction asks for, as far as its paths tell: for a task that ships no reference."""
    shipped = {one.path for one in surface.shipped}
    named = [path.rstrip("./") for path in _PATH.findall(surface.instruction)]
    made = [path for path in dict.fromkeys(named) if path not in shipped and posixpath.splitext(path)[1]]
    outputs = [
        Output(
            path=path,
            stage=surface.task.stages[-1].name,
            data=b"",
            mode=0o644,
            kind="json" if path.endswith(".json") else "code" if language_of(path, b"") else "text",
            language=language_of(path, b""),
            before=None,
            named=True,
            graded=mentions(surface.grader_text, path),
            stable=False,
        )
        for path in made[:8]
    ]
    stages = tuple(stage.name for stage in surface.task.stages)
    return Work(states=(), stages=stages, outputs=tuple(outputs), removed=())


def _output(entry: Written, stage: str, before: bytes | None, surface: Surface) -> Output:
    language = language_of(entry.path, entry.data, entry.mode)
    return Output(
        path=entry.path,
        stage=stage,
        data=entry.data,
        mode=entry.mode,
        kind="code" if language else _kind(entry.path, entry.data),
        language=language,
        before=before,
        named=surface.is_named(entry.path),
        graded=speaks_of(surface.grader_text, entry.path),
    )


def _kind(path: str, data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "binary"
    if "\0" in text:
        return "binary"
    if text.lstrip()[:1] in ("{", "[") and _loads(text) is not None:
        return "json"
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and all(line.lstrip().startswith(("{", "[")) and _loads(line) is not None for line in lines):
        return "jsonl"
    for mark in (",", "\t", ";", "|"):
        counts = {line.count(mark) for line in lines}
        if (len(lines) >= 2 or path.endswith((".csv", ".tsv"))) and len(counts) == 1 and counts != {0}:
            return "table"
    return "text"


def _loads(text: str) -> object | None:
    try:
        return json.loads(text)  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        return None


def canonical(kind: str, data: bytes) -> object:
    """What content means: equal for equal JSON, for equal rows, for text that differs in spaces at line ends only."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data
    if kind == "json":
        value = _loads(text)
        return data if value is None else json.dumps(value, sort_keys=True)
    if kind == "jsonl":
        return [json.dumps(_loads(line), sort_keys=True) for line in text.splitlines() if line.strip()]
    if kind == "table":
        return [row for row in csv.reader(io.StringIO(text.replace("\0", ""))) if row]
    if kind == "binary":
        return data
    return [line.rstrip() for line in text.strip().splitlines()]


def _command(entry: Written) -> str:
    from shlex import quote

    if entry.kind is WrittenKind.FILE:
        return put(entry.path, entry.data, mode=entry.mode)
    if entry.kind is WrittenKind.GONE:
        return removed(entry.path)
    if entry.kind is WrittenKind.LINK:
        return f"ln -sfn {quote(entry.target)} {quote(entry.path)}\n"
    if entry.kind is WrittenKind.FOLDER:
        clear = f"rm -rf {quote(entry.path)}; " if entry.opaque else ""
        return f"{clear}mkdir -p {quote(entry.path)} 2>/dev/null\n"
    return ""


def _changed(state: EndState, path: str, data: bytes | None, fields: dict[str, int]) -> EndState:
    from msgspec.structs import replace

    if data is None:
        return EndState(entries=tuple(entry for entry in state.entries if entry.path != path))
    return EndState(
        entries=tuple(
            replace(entry, data=data, **fields) if entry.path == path and entry.kind is WrittenKind.FILE else entry
            for entry in state.entries
        )
    )
