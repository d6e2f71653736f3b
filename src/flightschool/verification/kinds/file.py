"""A file of the end state: text, JSON, JSON lines, CSV, digest, or that it is not there."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterator

from flightschool.errors import InfrastructureError
from flightschool.records import FileCheck, Json
from flightschool.verification.comparing import comparison_problem, differences
from flightschool.verification.files import files_of
from flightschool.verification.kinds.base import Finding, Kind, show
from flightschool.verification.kinds.state import leaves
from flightschool.verification.states import States

__all__ = ["FILE", "strict_json"]


class _UnreadableError(Exception):
    """A file that is not of the format asked for: the policy's work."""


def _judge(rule: FileCheck, states: States) -> Finding:
    there = _find(rule.path, states)
    if rule.format in ("absent", "unwritten"):
        return _absence(rule, there, files_of(states.evidence.end_state).complete)
    if not isinstance(there, bytes):
        return Finding(False, there or f"{rule.path} was not written")
    if rule.format == "sha256":
        found = hashlib.sha256(there).hexdigest()
        return Finding(found == str(rule.expected).lower(), f"{rule.path} has digest {found}")
    try:
        value = _read(there, rule.format)
    except _UnreadableError as error:
        return Finding(False, f"{rule.path} is no {rule.format}: {error}")
    if rule.format == "text":
        passed = _lines(value) == _lines(str(rule.expected))
        return Finding(passed, f"{rule.path} holds {show(value)}" + ("" if passed else f", not {show(rule.expected)}"))
    wrong = differences(value, rule.expected, rule.compare, texts_are_numbers=rule.format == "csv")
    return Finding(not wrong, f"{rule.path}: " + ("; ".join(map(str, wrong[:8])) or "as expected"))


def _absence(rule: FileCheck, there: bytes | str | None, complete: bool) -> Finding:
    """Of a state that holds only what was written, silence on a path is no proof that its file was removed."""
    if there is None:
        passed = complete or rule.format == "unwritten"
        return Finding(passed, f"{rule.path} {'is not there' if complete else 'was neither written nor removed'}")
    gone = isinstance(there, str) and there.endswith(("removed", "without it"))
    return Finding(gone, f"{rule.path} is {'gone' if gone else 'there'}")


def _find(path: str, states: States) -> bytes | str | None:
    """Content, what stands there instead, or None: in the end state, else in the initial one where that holds files."""
    there = files_of(states.evidence.end_state).find(path)
    if there is not None:
        return there
    try:
        return files_of(states.evidence.initial_state).find(path)
    except InfrastructureError:
        return None  # an initial state without files: an image that the end state is laid over


def _read(data: bytes, kind: str) -> Json:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _UnreadableError(f"not UTF-8 at byte {error.start}") from error
    if kind == "text":
        return text
    if kind == "csv":
        return _csv(text)
    try:
        if kind == "json":
            return strict_json(text)
        return [strict_json(line) for line in text.split("\n") if line.strip()]
    except (ValueError, RecursionError) as error:
        raise _UnreadableError(str(error)[:200]) from error


def _csv(text: str) -> list[dict[str, str]]:
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error as error:
        raise _UnreadableError(str(error)) from error
    head, body = (rows[0], rows[1:]) if rows else ([], [])
    if len(set(head)) < len(head):
        raise _UnreadableError("two columns have the same name")
    odd = next((number for number, row in enumerate(body, start=2) if len(row) != len(head)), None)
    if odd is not None:
        raise _UnreadableError(f"row {odd} has another number of cells than the header")
    return [dict(zip(head, row, strict=True)) for row in body]


def strict_json(text: str) -> Json:
    """JSON without NaN, infinities and repeated keys. Raises ``ValueError``."""

    def refuse(name: str) -> Json:
        raise ValueError(f"{name} is no JSON")

    def unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("an object has a key twice")  # which of the two counts differs from reader to reader
        return found

    return json.loads(text, parse_constant=refuse, object_pairs_hook=unique)


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _problem(rule: FileCheck) -> str:
    if not rule.path.startswith("/") or ".." in rule.path.split("/") or rule.path.endswith("/"):
        return f"path {rule.path!r} is not an absolute path of a file"
    if rule.format in ("absent", "unwritten"):
        return "an absent file holds nothing that could be expected" if rule.expected is not None else ""
    if rule.format == "sha256":
        fits = isinstance(rule.expected, str) and re.fullmatch(r"[0-9a-fA-F]{64}", rule.expected)
        return "" if fits else "expected is no SHA-256 in hexadecimal"
    if rule.format == "text":
        return "" if isinstance(rule.expected, str) else "the expected text is missing"
    if rule.format in ("jsonl", "csv") and not isinstance(rule.expected, list | tuple):
        return "expected is no list of rows"
    return comparison_problem(rule.compare, rule.expected)


def _expected(rule: FileCheck) -> Iterator[Json]:
    return leaves(rule.expected)


FILE = Kind(_judge, _problem, _expected)
