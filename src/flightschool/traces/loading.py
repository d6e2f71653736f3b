"""Reading of trace files: bytes to strict JSON, each error with its file and line.

Strict means: UTF-8 (a byte-order mark is accepted), no NaN or infinities, no lone surrogates, nesting that Python can
hold. Everything that the importers build later must survive canonical JSON, so it is refused here, where the line
is still known.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final, NoReturn

from flightschool.errors import TraceError
from flightschool.records import Json

__all__ = [
    "MAX_DEPTH",
    "MAX_FILE_BYTES",
    "MAX_VALUE_BYTES",
    "broken",
    "check_value",
    "head_of",
    "json_error",
    "kind_of",
    "not_utf8",
    "parse_json",
    "parse_json_document",
    "place",
    "read_text",
    "refuse_packed",
    "result_value",
    "strict_decoder",
    "table_at",
]

MAX_FILE_BYTES = 1 << 30
"""Larger files are refused by ``read_text``, which holds the whole of one."""

MAX_VALUE_BYTES = 1 << 27
"""Longer lines and elements are refused: one of them is held in memory at a time, several times over while parsed."""

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
        raise _unreadable(path, error) from error


def refuse_packed(path: Path) -> None:
    """Raise ``TraceError`` if the file is packed or a database."""
    head = head_of(path, 16)
    for magic, (kind, mend) in _MAGIC.items():
        if head.startswith(magic):
            raise broken(f"this is {kind}", str(path), "plain JSON or JSON lines", mend)


def read_text(path: Path) -> str:
    """The text of a whole file.

    Raises:
        TraceError: missing, empty, packed, binary or too large.
    """
    refuse_packed(path)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise broken(
                "trace file is too large", str(path), f"at most {MAX_FILE_BYTES >> 20} MiB", "split it by lines"
            )
        data = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_utf8(path, error.start, data.count(b"\n", 0, error.start) + 1) from error
    if not text.strip():
        raise broken("trace file is empty", str(path), "at least one episode", "check that the recording ran")
    return text


def _unreadable(path: Path, error: OSError) -> TraceError:
    return broken("trace file cannot be read", str(path), "a readable file", str(error))


def not_utf8(path: Path, offset: int, line: int) -> TraceError:
    """The error of a byte that is no UTF-8."""
    return broken(
        f"byte {offset} is not UTF-8",
        place(path, line),
        "UTF-8 text",
        "convert the file to UTF-8; a binary file is no trace",
    )


def parse_json(text: str, where: str) -> Json:
    """Strict JSON.

    Raises:
        TraceError: no JSON, NaN or infinity, lone surrogate, too deeply nested.
    """
    try:
        value = strict_decoder.decode(text)
        check_value(text, value)
    except (ValueError, RecursionError) as error:
        raise json_error(error, where) from error
    return value


def json_error(error: Exception, where: str) -> TraceError:
    """The ``TraceError`` of what strict parsing raised."""
    if isinstance(error, json.JSONDecodeError):
        return broken(
            f"not valid JSON: {error.msg}, column {error.colno}",
            where,
            "one complete JSON value",
            "re-export the line; a file that was cut off while being written ends like this",
        )
    if isinstance(error, UnicodeEncodeError):
        what = "a lone surrogate escape is no character"
        return broken(what, where, "well-formed Unicode", "replace the broken \\ud… escape")
    return broken(
        f"JSON that cannot be kept: {error}",
        where,
        "finite numbers and sane nesting",
        "write null for NaN and infinities; flatten the value",
    )


def _refuse_constant(name: str) -> NoReturn:
    msg = f"{name} is not a JSON number"
    raise ValueError(msg)


def check_value(text: str, value: Json) -> None:
    """Refuse what JSON can say and canonical JSON cannot keep (``ValueError``, ``UnicodeEncodeError``)."""
    if _SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode()
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return
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


strict_decoder: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


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


def kind_of(value: Json) -> str:
    """What a JSON value is, in words."""
    names = {list: "a list", str: "a text", bool: "a truth value", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def table_at(raw: Json, key: str) -> dict[str, Any]:
    """The object under a key; an empty one where ``raw`` is no object or holds something else there."""
    found = raw.get(key) if isinstance(raw, dict) else None
    return found if isinstance(found, dict) else {}


def result_value(text: str) -> Json:
    """A tool's answer parsed as strict JSON; the text itself where it is none (or not finite)."""
    try:
        value = strict_decoder.decode(text)
        check_value(text, value)
    except (ValueError, RecursionError):
        return text
    return value
