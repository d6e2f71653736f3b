"""A labelled corpus of small task folders, one text archive a task: label and proof can be read in review.

An archive (``ID.task``, UTF-8) is a header in TOML between two lines ``+++`` and then sections, each one file::

    +++
    verdict = "exploitable"
    rows = ["7"]
    why = "The script that judges lies in the agent's folder."
    proof = "proof.sh"
    +++
    == task.toml
    …
    == tests/test.sh [755]
    …
    == proof.sh
    …

Sections that the header names as its proof or attacks stay out of the folder. A line of a file that begins like a
section (``== ``, with backslashes before it or not) carries one backslash more in the archive. Every file ends with a
newline. Where the header names ``pytest = "tests/lib"``, unpacking puts the pytest of this Python there, so that tasks
run a real one without a network.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import tomllib
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, Literal

import msgspec

from flightschool.digest import digest
from flightschool.errors import InputError
from flightschool.records import Record

__all__ = [
    "CorpusFile",
    "CorpusTask",
    "copy_pytest",
    "corpus_digest",
    "format_corpus_task",
    "parse_corpus_task",
    "read_corpus",
]

SUFFIX: Final = ".task"
_FENCE: Final = "+++"
_SECTION: Final = re.compile(r"== (\S+)(?: \[(644|755)\])?$")
_ESCAPED: Final = re.compile(r"\\*== ")
_RUNNER: Final = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py")
_COLOURS: Final = ("__init__.py", "_mapping.py", "diff.py", "python.py", "terminal.py")

CorpusVerdict = Literal[
    "broken-oracle", "leaking", "exploitable", "refuses-correct-work", "flaky", "unaudited", "sound"
]
Shows = Literal["passes", "refused", "no-verdict"]


class _Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The header as it is written."""

    verdict: CorpusVerdict
    rows: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    why: Annotated[str, msgspec.Meta(min_length=1)]
    defended_rows: tuple[str, ...] = ()
    shows: Shows = "passes"
    pass_mark: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    proof: str = ""
    attacks: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    pytest: str = ""


class CorpusFile(Record, frozen=True, kw_only=True):
    """One file of a task folder, or a program that shows its flaw."""

    path: str
    text: str
    executable: bool = False


class CorpusTask(Record, frozen=True, kw_only=True):
    """A task folder with its label and what proves the label."""

    id: str
    verdict: CorpusVerdict
    """What an audit should say, after the precedence."""
    rows: tuple[str, ...]
    """Rows of the taxonomy; of a sound task, the flaw that it looks like or defends against."""
    why: str
    defended_rows: tuple[str, ...]
    """Flaws that the folder would have elsewhere and that the grading here takes away."""
    shows: Shows
    """What the proof, run as a policy, ends with: it passes, its correct work is refused, or there is no verdict."""
    pass_mark: float
    """Least reward that counts as passed."""
    proof: CorpusFile | None
    """None where the solution itself is the proof: a broken or a flaky one, and a sound task."""
    attacks: tuple[CorpusFile, ...]
    """Policies that go for a sound task and must fail."""
    programs: tuple[str, ...]
    """Programs beyond a minimal system that the task runs."""
    pytest: str
    """Folder of the task that gets a real pytest; empty: none."""
    files: tuple[CorpusFile, ...]

    def unpack(self, parent: Path) -> Path:
        """Write the folder ``parent/id`` and return it.

        Raises:
            InputError: it is there already, or pytest is asked for and not installed.
        """
        folder = parent / self.id
        if folder.exists():
            raise InputError("the folder is there", where=str(folder), expected="a new one", mend="name another parent")
        for file in self.files:
            _write(folder / file.path, file)
        if self.pytest:
            copy_pytest(folder / self.pytest)
        return folder

    def unpack_programs(self, parent: Path) -> Path:
        """Write proof and attacks, which are no part of the task, into the folder ``parent/id`` and return it."""
        for file in (*([self.proof] if self.proof else []), *self.attacks):
            _write(parent / self.id / file.path, file)
        return parent / self.id


def read_corpus(folder: Path) -> tuple[CorpusTask, ...]:
    """All archives of a folder, in order of their ids.

    Raises:
        InputError: there is none, or one is malformed; names file and line.
    """
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    if not paths:
        raise InputError("no corpus", where=str(folder), expected=f"files *{SUFFIX}", mend="check the path")
    return tuple(parse_corpus_task(path.stem, _text(path), str(path)) for path in paths)


def corpus_digest(folder: Path) -> str:
    """Digest of all archives by name and bytes: the seal of a half that must not change once it is known.

    Raises:
        InputError: there is no archive.
    """
    names = [task.id for task in read_corpus(folder)]
    return digest({name: digest((folder / f"{name}{SUFFIX}").read_bytes()) for name in names})


def parse_corpus_task(id_: str, text: str, where: str) -> CorpusTask:
    """Read one archive.

    Raises:
        InputError: it is malformed, names a path outside its folder, or its proof does not fit its verdict.
    """
    lines = text.split("\n")
    if lines[0] != _FENCE or _FENCE not in lines[1:]:
        raise _error("no header", where, 1, f"TOML between two lines {_FENCE}")
    end = lines.index(_FENCE, 1)
    try:
        header = msgspec.convert(tomllib.loads("\n".join(lines[1:end])), _Header)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise _error(f"the header cannot be read: {error}", where, 2, "the keys of a corpus task") from error
    files = _sections(lines, end + 1, where)
    by_path = {file.path: file for file in files}
    apart = (*([header.proof] if header.proof else []), *header.attacks)
    for path in apart:
        if path not in by_path:
            raise _error(f"no section {path!r}, which the header names", where, 2, "one section for each program")
    if header.pytest:
        _check_path(header.pytest, where, 2)
    task = CorpusTask(
        id=id_,
        verdict=header.verdict,
        rows=header.rows,
        why=header.why,
        defended_rows=header.defended_rows,
        shows=header.shows,
        pass_mark=header.pass_mark,
        proof=by_path[header.proof] if header.proof else None,
        attacks=tuple(by_path[path] for path in header.attacks),
        programs=header.programs,
        pytest=header.pytest,
        files=tuple(file for file in files if file.path not in apart),
    )
    _check_label(task, where)
    return task


def format_corpus_task(task: CorpusTask) -> str:
    """The archive of a task; ``parse_corpus_task`` reads it back."""
    header: dict[str, str | float | tuple[str, ...]] = {
        "verdict": task.verdict,
        "rows": task.rows,
        "why": task.why,
        "defended_rows": task.defended_rows,
        "shows": task.shows if task.shows != "passes" else "",
        "proof": task.proof.path if task.proof else "",
        "attacks": tuple(file.path for file in task.attacks),
        "programs": task.programs,
        "pytest": task.pytest,
    }
    lines = [_FENCE, *(f"{key} = {_toml(value)}" for key, value in header.items() if value)]
    lines += [f"pass_mark = {task.pass_mark!r}"] if task.pass_mark != 1.0 else []
    lines.append(_FENCE)
    for file in (*task.files, *([task.proof] if task.proof else []), *task.attacks):
        lines.append(f"== {file.path}" + (" [755]" if file.executable else ""))
        body = file.text.split("\n")
        lines += ["\\" + line if _ESCAPED.match(line) else line for line in body[:-1]]
    return "\n".join(lines) + "\n"


def _sections(lines: list[str], start: int, where: str) -> list[CorpusFile]:
    files: list[CorpusFile] = []
    head: re.Match[str] | None = None
    body: list[str] = []

    def close() -> None:
        if head is not None:
            text = "".join(f"{line}\n" for line in body)
            files.append(CorpusFile(path=head[1], text=text, executable=head[2] == "755"))

    if lines[-1]:
        raise _error("the last line has no end", where, len(lines), "a newline at the end")
    for number, line in enumerate(lines[start:-1], start + 1):
        if line.startswith("== "):
            close()
            head, body = _SECTION.match(line), []
            if head is None:
                raise _error(f"not a section: {line[:80]!r}", where, number, "== path, or == path [755]")
            _check_path(head[1], where, number)
            if any(_collide(head[1], file.path) for file in files):
                raise _error(f"{head[1]!r} is there twice, or as a folder", where, number, "each file once")
        elif head is None:
            raise _error("text before the first section", where, number, "== path")
        else:
            body.append(line[1:] if line.startswith("\\") and _ESCAPED.match(line) else line)
    close()
    if not files:
        raise _error("no files", where, start, "sections == path")
    return files


def _collide(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


def _check_path(path: str, where: str, line: int) -> None:
    parts = path.split("/")
    if PurePosixPath(path).is_absolute() or any(part in ("", ".", "..") for part in parts) or "\\" in path:
        raise _error(f"the path {path!r} leads astray", where, line, "a plain relative path without . and ..")


def _check_label(task: CorpusTask, where: str) -> None:
    by_solution = task.verdict in ("broken-oracle", "flaky", "unaudited", "sound")
    if by_solution == (task.proof is not None):
        expected = "no proof, for the solution is one" if by_solution else "a proof"
        raise _error(f"the label {task.verdict!r} and its proof do not fit", where, 2, expected)
    if task.attacks and task.verdict != "sound":
        raise _error(f"attacks on a task labelled {task.verdict!r}", where, 2, "a proof")


def _write(path: Path, file: CorpusFile) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file.text.encode())
    path.chmod(0o755 if file.executable else 0o644)


def copy_pytest(target: Path) -> None:
    """Put the pytest of this Python into a folder, uncompiled: for tasks whose tests bring their runner along.

    Raises:
        InputError: it is not installed.
    """
    for name in _RUNNER:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise InputError(f"{name} is not installed", where="this Python", expected="pytest", mend="install pytest")
        origin = Path(spec.origin)
        if origin.name == "__init__.py":
            shutil.copytree(origin.parent, target / name, ignore=_not_needed)
        else:
            shutil.copy(origin, target / origin.name)


def _not_needed(folder: str, names: list[str]) -> set[str]:
    """Of the colours that pytest prints in, only what it imports: the rest would be four times as large as pytest."""
    few = Path(folder).name in ("lexers", "formatters", "styles") and Path(folder).parent.name == "pygments"
    return {name for name in names if name == "__pycache__" or (few and name not in _COLOURS)}


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path), expected="UTF-8 text", mend="see it") from error


def _toml(value: str | float | tuple[str, ...]) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return msgspec.json.encode(value).decode()


def _error(what: str, where: str, line: int, expected: str) -> InputError:
    return InputError(what, where=f"{where}:{line}", expected=expected, mend="correct the archive")
