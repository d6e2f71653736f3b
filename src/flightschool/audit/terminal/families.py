"""One flaw of many tasks, found once: findings that share a grader's line, a file, or the tests, belong together.

Tasks of one pool are often written from one template. A flaw in the template is one flaw, whatever paths, numbers and
names each task puts into it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from flightschool.audit.terminal.records import FlawFinding, FolderAudit
from flightschool.records import AuditVerdict, Record, Severity

__all__ = ["FlawFamily", "group_by_flaw", "normal_line"]

MOST_BYTES: Final = 256 << 10
MOST_FILES: Final = 40
LEAST_LINES: Final = 6
"""Lines from which on two texts can be told to be of one template."""
_TESTS: Final = ("tests/*", "tests/*/*", "run-tests.sh", "steps/*/tests/*")
_SOLUTION: Final = ("solution/*", "solution.sh", "solution.yaml", "steps/*/solution/*")
_OF_REFERENCE: Final = (AuditVerdict.BROKEN_ORACLE, AuditVerdict.FLAKY)
_PIECES: Final = re.compile(
    r"(?P<space>\s+)|(?P<quoted>'[^'\n]*'|\"[^\"\n]*\")|(?P<path>~?/[\w.@+~-][\w./@+~-]*|[\w.-]+/[\w./@+~-]+)"
    r"|(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<other>.)"
)
_KEPT: Final = frozenset(
    [
        "and",
        "as",
        "assert",
        "awk",
        "bash",
        "break",
        "case",
        "cat",
        "class",
        "cmp",
        "continue",
        "def",
        "diff",
        "do",
        "done",
        "echo",
        "elif",
        "else",
        "esac",
        "except",
        "exec",
        "exit",
        "export",
        "false",
        "fi",
        "for",
        "from",
        "function",
        "grep",
        "if",
        "import",
        "in",
        "is",
        "json",
        "lambda",
        "local",
        "mkdir",
        "not",
        "open",
        "or",
        "os",
        "pass",
        "pipefail",
        "pytest",
        "python",
        "python3",
        "raise",
        "re",
        "read",
        "return",
        "set",
        "sh",
        "source",
        "strip",
        "subprocess",
        "sys",
        "tee",
        "test",
        "then",
        "trap",
        "true",
        "try",
        "uv",
        "uvx",
        "while",
        "with",
        "COPY",
        "RUN",
        "FROM",
        "ENV",
        "ADD",
        "abs",
        "all",
        "any",
        "len",
        "float",
        "int",
        "str",
        "round",
        "set",
        "sorted",
        "approx",
        "isclose",
        "exists",
        "loads",
        "load",
        "run",
        "main",
    ]
)


class FlawFamily(Record, frozen=True, kw_only=True):
    """One flaw and the tasks that have it."""

    flaw: str
    line: str
    """The line that they share, normalised; empty: they share a file, or all of their tests."""
    members: tuple[str, ...]
    """Ids of the tasks, sorted."""
    share: float
    """0..1: members among all audited tasks."""
    num_confirmed: int
    """Members in which the flaw was executed."""
    severity: Severity
    """The gravest of them."""
    example: FlawFinding
    """Of the first member, a confirmed one where there is one."""


def group_by_flaw(audits: Iterable[FolderAudit], *, least: int = 2) -> tuple[FlawFamily, ...]:
    """Families of at least ``least`` tasks, the largest first.

    Two findings of one class belong together when the lines they point at are equal after normalising (see
    ``normal_line``), or the files are the same byte for byte. A finding that points at no file of its task belongs to
    others that say the same of tasks with the same tests; where it is the reference that is accused, with the same
    solution too.
    """
    pool = 0
    members: dict[tuple[str, str], list[tuple[str, FlawFinding]]] = {}
    for audit in audits:
        pool += 1
        texts: dict[str, bytes] = {}
        for finding in audit.findings:
            for key in _keys(Path(audit.path), finding, texts):
                members.setdefault((finding.flaw, key), []).append((audit.id, finding))
    found: dict[tuple[str, tuple[str, ...]], FlawFamily] = {}
    for (flaw, key), entries in members.items():
        ids = tuple(sorted({task for task, _ in entries}))
        if len(ids) >= least and (flaw, ids) not in found:
            found[flaw, ids] = _family(flaw, key, ids, [finding for _, finding in entries], entries, pool)
    families = [family for family in found.values() if not _is_part(family, found.values())]
    return tuple(sorted(families, key=lambda family: (-len(family.members), family.flaw, family.line)))


def _family(
    flaw: str,
    key: str,
    ids: tuple[str, ...],
    findings: list[FlawFinding],
    entries: list[tuple[str, FlawFinding]],
    pool: int,
) -> FlawFamily:
    order = list(Severity)
    confirmed = {task for task, finding in entries if finding.confirmed}
    return FlawFamily(
        flaw=flaw,
        line=key.removeprefix("line:") if key.startswith("line:") else "",
        members=ids,
        share=len(ids) / pool if pool else 0.0,
        num_confirmed=len(confirmed),
        severity=max((finding.severity for finding in findings), key=order.index),
        example=next((finding for finding in findings if finding.confirmed), findings[0]),
    )


def _is_part(family: FlawFamily, others: Iterable[FlawFamily]) -> bool:
    """Whether a larger family of the same class holds all of its members."""
    own = set(family.members)
    return any(
        other.flaw == family.flaw and len(other.members) > len(own) and own.issubset(other.members) for other in others
    )


def _keys(folder: Path, finding: FlawFinding, texts: dict[str, bytes]) -> list[str]:
    """What a finding can share with others: its line, its file, or what decides."""
    name, _, number = finding.where.rpartition(":")
    if not name or not number.isdigit():
        name, number = finding.where, ""
    data = texts.get(name)
    if data is None and name:
        data = texts.setdefault(name, _read(folder, name))
    if not data:
        return _of_deciding(folder, finding, texts)
    keys = ["file:" + hashlib.sha256(data).hexdigest()]
    lines = data.decode(errors="replace").splitlines()
    at = int(number or 0) - 1
    if 0 <= at < len(lines) and (line := normal_line(lines[at])):
        keys.append("line:" + line)
    return keys


def _of_deciding(folder: Path, finding: FlawFinding, texts: dict[str, bytes]) -> list[str]:
    """The tests as a whole beside what is said; none where there are none to be read."""
    parts = [_TESTS, _SOLUTION] if finding.accuses in _OF_REFERENCE else [_TESTS]
    for part in parts:
        if part[0] not in texts:
            texts[part[0]] = _normal_texts(folder, part)
    shared = [texts[part[0]] for part in parts]
    if not all(shared):
        return []
    digest = hashlib.sha256(b"\0".join(shared)).hexdigest()
    return [f"tests:{digest} {normal_line(finding.what)}"]


def _normal_texts(folder: Path, patterns: tuple[str, ...]) -> bytes:
    """Files by their content, without what differs between tasks of one template; short ones are taken as they are.

    Few lines say too little: that two scripts compare a file with a text makes them no family.
    """
    files = sorted(place for pattern in patterns for place in folder.glob(pattern))[:MOST_FILES]
    texts = [_read(folder, place.relative_to(folder).as_posix()).decode(errors="replace") for place in files]
    lines = [line for text in texts for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    kept = map(normal_line, lines) if len(lines) >= LEAST_LINES else lines
    return "\n".join(kept).encode()


def _read(folder: Path, name: str) -> bytes:
    """The beginning of a file of the folder; nothing is read through a link or outside."""
    place = folder / name
    if Path(name).is_absolute() or ".." in Path(name).parts:
        return b""
    try:
        if place.is_symlink() or not place.is_file() or not place.resolve().is_relative_to(folder.resolve()):
            return b""
        with place.open("rb") as file:
            return file.read(MOST_BYTES)
    except OSError:
        return b""


def normal_line(line: str) -> str:
    """A line without what differs between tasks of one template.

    Paths become ``P``, numbers ``N``, quoted texts ``S``, names ``n0``, ``n1`` … in order of appearance, but for words
    of the languages and the usual programs; spaces become one. ``[ "$(cat /app/x)" = "42" ]`` → ``[ S = S ]``.
    """
    names: dict[str, str] = {}
    out: list[str] = []
    for match in _PIECES.finditer(line.strip()[:2000]):
        kind, text = match.lastgroup, match.group()
        if kind == "space":
            out.append(" ")
        elif kind == "quoted":
            out.append("S")
        elif kind == "path":
            out.append("P")
        elif kind == "number":
            out.append("N")
        elif kind == "name" and text not in _KEPT:
            out.append(names.setdefault(text, f"n{len(names)}"))
        else:
            out.append(text)
    return "".join(out)
