"""Reading of trace files: bytes to strict JSON, each error with its file and line.

Strict means: UTF-8 (a byte-order mark is accepted), no NaN or infinities, no lone surrogates, nesting that Python can
hold. Everything that the importers build later must survive canonical JSON, so it is refused here, where the line
is still known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from flightschool.errors import TraceError
from flightschool.records import Json

__all__ = [
    "MAX_DEPTH",
    "MAX_FILE_BYTES",
    "broken",
    "head_of",
    "json_objects",
    "parse_json",
    "place",
    "read_text",
    "result_value",
]

MAX_FILE_BYTES = 1 << 30
"""Larger files are refused: an import holds its file in memory so that nothing is half imported."""

MAX_DEPTH = 100
"""Deeper nesting is refused: what is read here must be writable from any depth of the stack later."""

_MAGIC = {
    b"\x1f\x8b": ("a gzip file", "unpack it with gunzip and import the result"),
    b"PK\x03\x04": ("a zip archive", "unpack it and import the files in it"),
    b"\x28\xb5\x2f\xfd": ("a zstandard file", "unpack it with zstd -d and import the result"),
    b"SQLite format 3": ("an SQLite database", "export the traces from it as JSON lines first"),
    b"PAR1": ("a Parquet file", "export the traces from it as JSON lines first"),
}
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def place(path: Path, line: int | None = None, part: str = "") -> str:
    """``file:line`` and what part of it, for error messages."""
    where = str(path) if line is None else f"{path}:{line}"
    return f"{where} ({part})" if part else where


def broken(what: str, where: str, expected: str, mend: str) -> TraceError:
    """The ``TraceError`` of these four."""
    return TraceError(what, where=where, expected=expected, mend=mend)


def head_of(path: Path, size: int = 65536) -> bytes:
    """First bytes of a file, byte-order mark removed. Raises ``TraceError`` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(size).removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise TraceError(
            "trace file cannot be read", where=str(path), expected="a readable file", mend=str(error)
        ) from error


def read_text(path: Path) -> str:
    """The text of a trace file.

    Raises:
        TraceError: missing, empty, packed, binary or too large.
    """
    head = head_of(path, 16)
    for magic, (kind, mend) in _MAGIC.items():
        if head.startswith(magic):
            raise broken(f"this is {kind}", str(path), "plain JSON or JSON lines", mend)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise broken(
                "trace file is too large", str(path), f"at most {MAX_FILE_BYTES >> 20} MiB", "split it by lines"
            )
        data = path.read_bytes()
    except OSError as error:
        raise TraceError(
            "trace file cannot be read", where=str(path), expected="a readable file", mend=str(error)
        ) from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TraceError(
            f"byte {error.start} is not UTF-8",
            where=place(path, line),
            expected="UTF-8 text",
            mend="convert the file to UTF-8; a binary file is no trace",
        ) from error
    if not text.strip():
        raise broken("trace file is empty", str(path), "at least one episode", "check that the recording ran")
    return text


def parse_json(text: str, where: str) -> Json:
    """Strict JSON.

    Raises:
        TraceError: no JSON, NaN or infinity, lone surrogate, too deeply nested.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        _check(text, value)
    except json.JSONDecodeError as error:
        raise TraceError(
            f"not valid JSON: {error.msg}, column {error.colno}",
            where=where,
            expected="one complete JSON value",
            mend="re-export the line; a file that was cut off while being written ends like this",
        ) from error
    except UnicodeEncodeError as error:
        raise TraceError(
            "a lone surrogate escape is no character",
            where=where,
            expected="well-formed Unicode",
            mend="replace the broken \\ud… escape",
        ) from error
    except (RecursionError, ValueError) as error:
        raise TraceError(
            f"JSON that cannot be kept: {error}",
            where=where,
            expected="finite numbers and sane nesting",
            mend="write null for NaN and infinities; flatten the value",
        ) from error
    return value


def _refuse_constant(name: str) -> NoReturn:
    msg = f"{name} is not a JSON number"
    raise ValueError(msg)


def _check(text: str, value: Json) -> None:
    """Refuse what JSON can say and canonical JSON cannot keep (``ValueError``, ``UnicodeEncodeError``)."""
    if _SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode()
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        inner = [part for part in level if isinstance(part, dict | list)]
        level = [item for part in inner for item in (part.values() if isinstance(part, dict) else part)]


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0:  # such as 1e999, which no JSON writer could write back
        raise ValueError(f"{text[:20]} is beyond the range of numbers")
    return number


def json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Objects of a JSON-lines file, of one JSON array, or the one object of a file, each with its line (from 1).

    For an array laid out over many lines, the line is that where the array begins and errors name the element.
    """
    text = read_text(path)
    start = text.lstrip()
    first_line = text[: len(text) - len(start)].count("\n") + 1
    if start.startswith("["):
        yield from _elements(path, parse_json_document(path, text), first_line)
        return
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(lines) > 1 and not _is_json(lines[0][1]) and _is_json(text):
        lines = [(first_line, text)]  # one object, printed over many lines
    for number, line in lines:
        value = parse_json(line.strip("\r"), place(path, number))
        if not isinstance(value, dict):
            raise broken(
                f"a line holds {_kind(value)}", place(path, number), "a JSON object a line", "write one object a line"
            )
        yield number, value


def parse_json_document(path: Path, text: str) -> Json:
    """The one JSON value of a whole file; errors name the line inside it."""
    try:
        return parse_json(text, str(path))
    except TraceError as error:
        cause = error.__cause__
        if isinstance(cause, json.JSONDecodeError):
            raise TraceError(
                error.what, where=place(path, cause.lineno), expected=error.expected, mend=error.mend
            ) from cause
        raise


def _elements(path: Path, value: Json, line: int) -> Iterator[tuple[int, dict[str, Any]]]:
    if not value:
        raise broken("trace file holds an empty list", place(path, line), "at least one episode", "check the recording")
    for index, element in enumerate(value):
        if not isinstance(element, dict):
            where = place(path, line, f"element {index}")
            raise broken(f"an element is {_kind(element)}", where, "a JSON object", "remove or mend the element")
        yield line, element


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _kind(value: Json) -> str:
    names = {list: "a list", str: "a text", bool: "a truth value", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def result_value(text: str) -> Json:
    """A tool's answer parsed as strict JSON; the text itself where it is none (or not finite)."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        _check(text, value)
    except (ValueError, RecursionError):
        return text
    return value
