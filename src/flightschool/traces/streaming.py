"""JSON from a file piece by piece: lines, elements of an array, members of one large object.

Memory holds one value at a time, whatever the size of the file. A value may be laid out over many lines; each is given
with the line on which it begins.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from flightschool.errors import TraceError
from flightschool.records import Json
from flightschool.traces.loading import (
    MAX_VALUE_BYTES,
    broken,
    check_value,
    json_error,
    kind_of,
    not_utf8,
    place,
    refuse_packed,
    strict_decoder,
)

__all__ = ["JsonStream", "json_objects"]

_CHUNK = 1 << 20
_SPACE = " \t\r\n"
_NEAR_END = 24
"""An error this close to the end of what was read may only mean that more must be read (half a literal or escape)."""


class JsonStream:
    """A cursor over the JSON values of a file; use it in a ``with`` block.

    Args:
        path: the file.
        stream: bytes to read in place of the file (a member of an archive); ``path`` then only names it.

    Raises:
        TraceError: from every method, naming file and line.
    """

    def __init__(self, path: Path, stream: IO[bytes] | None = None) -> None:
        self.path = path
        self._file = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0
        self._line = 1
        self._offset = 0
        self._end = False

    def __enter__(self) -> JsonStream:
        if self._file is None:
            refuse_packed(self.path)
            self._file = self.path.open("rb")
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def peek(self) -> str:
        """The next character that is no white space, or nothing at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._skip(self._at + 1)
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def value(self) -> tuple[int, Json]:
        """The next value with the line on which it begins."""
        self.peek()
        line = self._line
        while True:
            try:
                value, end = strict_decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._may_continue(error) and not self._end:
                    self._more()
                    continue
                raise self._error(error) from error
            except (ValueError, RecursionError) as error:
                raise json_error(error, place(self.path, line)) from error
            if end == len(self._text) and not isinstance(value, dict | list | str) and not self._end:
                self._more()
                continue  # a number may go on
            self._checked(self._text[self._at : end], value, line)
            self._skip(end)
            return line, value

    def elements(self) -> Iterator[tuple[int, Json]]:
        """The elements of the array that comes next."""
        self._expect("[")
        if self.peek() == "]":
            self._expect("]")
            return
        while True:
            yield self.value()
            if self.peek() != ",":
                break
            self._expect(",")
        self._expect("]")

    def finish(self) -> None:
        """Refuse whatever still comes."""
        if found := self.peek():
            what = f"not valid JSON: {found!r} after the end of the value"
            raise broken(what, place(self.path, self._line), "one complete JSON value", "write one object a line")

    def members(self) -> Iterator[str]:
        """The keys of the object that comes next. After each, take its value (``value``, ``elements``, ``members``)."""
        self._expect("{")
        if self.peek() == "}":
            self._expect("}")
            return
        while True:
            line, key = self.value()
            if not isinstance(key, str):
                raise broken(f"a key is {kind_of(key)}", place(self.path, line), "a text", "re-export the file")
            self._expect(":")
            yield key
            if self.peek() != ",":
                break
            self._expect(",")
        self._expect("}")

    def lines(self) -> Iterator[tuple[int, Json]]:
        """Values one a line; from the first line on that alone is no value, values laid out over lines."""
        first = self.peek()
        laid_out = False
        while first:
            if laid_out:
                yield self.value()
            else:
                line, text = self._whole_line()
                try:
                    value = strict_decoder.decode(text.strip())
                except (ValueError, RecursionError) as error:
                    if not isinstance(error, json.JSONDecodeError) or not self._is_laid_out():
                        raise json_error(error, place(self.path, line)) from error
                    laid_out = True
                    yield self.value()
                else:
                    self._checked(text, value, line)
                    self._skip(self._at + len(text))
                    yield line, value
            first = self.peek()

    def _is_laid_out(self) -> bool:
        """Whether a whole value begins here, although its first line is none."""
        self._text, self._at = self._text[self._at :], 0
        line = self._line
        try:
            self.value()  # takes nothing before it succeeds, so that its beginning stays at 0
        except TraceError:
            return False
        self._at, self._line = 0, line
        return True

    def _whole_line(self) -> tuple[int, str]:
        while (end := self._text.find("\n", self._at)) < 0 and self._more():
            pass
        return self._line, self._text[self._at :] if end < 0 else self._text[self._at : end]

    def _checked(self, text: str, value: Json, line: int) -> None:
        try:
            check_value(text, value)
        except (ValueError, RecursionError) as error:
            raise json_error(error, place(self.path, line)) from error

    def _may_continue(self, error: json.JSONDecodeError) -> bool:
        return error.msg.startswith("Unterminated string") or error.pos >= len(self._text) - _NEAR_END

    def _error(self, error: json.JSONDecodeError) -> TraceError:
        line = self._line + self._text.count("\n", self._at, error.pos)
        column = error.pos - self._text.rfind("\n", 0, error.pos)
        told = json.JSONDecodeError(error.msg, "", 0)
        told.colno = column
        return json_error(told, place(self.path, line))

    def _expect(self, char: str) -> None:
        found = self.peek()
        if found != char:
            what = f"not valid JSON: {repr(found) if found else 'the end of the file'} where {char!r} belongs"
            mend = "re-export the file; one that was cut off while being written ends like this"
            raise broken(what, place(self.path, self._line), "one complete JSON value", mend)
        self._skip(self._at + 1)

    def _skip(self, to: int) -> None:
        self._line += self._text.count("\n", self._at, to)
        self._at = to

    def _more(self) -> bool:
        """Read on; whether there was anything. What was consumed is let go, what is pending doubles at most."""
        if self._end:
            return False
        if self._at:
            self._text, self._at = self._text[self._at :], 0
        if len(self._text) > MAX_VALUE_BYTES:
            mebibytes = MAX_VALUE_BYTES >> 20
            raise broken(
                f"a line or element is longer than {mebibytes} MiB",
                place(self.path, self._line),
                f"values of at most {mebibytes} MiB",
                "split it; one episode a line is the form that scales",
            )
        if self._file is None:
            raise RuntimeError("a JsonStream is read inside its with block")
        try:
            data = self._file.read(max(_CHUNK, min(len(self._text), MAX_VALUE_BYTES - len(self._text))))
        except (OSError, EOFError, ValueError) as error:
            raise broken("trace file cannot be read", str(self.path), "a readable file", str(error)) from error
        self._end = not data
        first = self._offset == 0
        try:
            text = self._decoder.decode(data, final=self._end)
        except UnicodeDecodeError as error:
            line = self._line + self._text.count("\n") + error.object[: error.start].count(b"\n")
            held_back = len(error.object) - len(data)  # bytes of a character that began in the piece before
            raise not_utf8(self.path, self._offset - held_back + error.start, line) from error
        self._offset += len(data)
        self._text += text.removeprefix("\ufeff") if first else text
        return bool(data)


def json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Objects of a JSON-lines file, of one JSON array, or the one object of a file, each with its line (from 1).

    Read piece by piece: no more than one object (at most ``MAX_VALUE_BYTES``) is held at a time. Objects may be laid
    out over many lines; errors in an array name the element.
    """
    with JsonStream(path) as stream:
        first = stream.peek()
        if first == "":
            raise broken("trace file is empty", str(path), "at least one episode", "check that the recording ran")
        if first == "[":
            yield from _objects(path, stream.elements(), "element")
            stream.finish()
            return
        yield from _objects(path, stream.lines(), "line")


def _objects(path: Path, values: Iterator[tuple[int, Json]], unit: str) -> Iterator[tuple[int, dict[str, Any]]]:
    index = -1
    for index, (line, value) in enumerate(values):
        if not isinstance(value, dict):
            if unit == "line":
                mend = "write one object a line"
                raise broken(f"a line holds {kind_of(value)}", place(path, line), "a JSON object a line", mend)
            where = place(path, line, f"element {index}")
            raise broken(f"an element is {kind_of(value)}", where, "a JSON object", "remove or mend the element")
        yield line, value
    if index < 0:
        raise broken("trace file holds an empty list", str(path), "at least one episode", "check the recording")
