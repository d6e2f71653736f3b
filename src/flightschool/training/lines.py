"""Files of one JSON object a line that a crash may cut anywhere: going on with them, reading them. No torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from flightschool.errors import StoreError

__all__ = ["LineFile", "UnreadableLine", "read_lines"]

R = TypeVar("R")
UnreadableLine = Callable[[str], None]
"""Is told, in one sentence, of a line that is left out."""

_BLOCK = 1 << 16


class LineFile:
    """Appends lines. One writer.

    Args:
        path: the file; what a killed writer left of its last line is cut off, else the next line would be glued to it.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        _cut_torn(path)

    def append(self, line: bytes) -> None:
        """Add a line, given without its end."""
        with self._path.open("ab") as file:
            file.write(line + b"\n")


def read_lines(path: Path, decode: Callable[[bytes], R], unreadable: UnreadableLine | None = None) -> list[R]:
    """All whole lines in order; empty where there is no file. A last line without its end was cut by a crash.

    Args:
        path: the file.
        decode: makes a record of a line.
        unreadable: is told of every other line that cannot be decoded; None: the first of them is an error.

    Raises:
        StoreError: a line cannot be decoded and nobody is told.
    """
    if not path.is_file():
        return []
    rows = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            rows.append(decode(line))
        except (msgspec.MsgspecError, ValueError) as error:
            if unreadable is None:
                raise StoreError(
                    f"a line of {path.name} cannot be read: {error}",
                    where=f"{path} line {number}",
                    expected="one JSON object, as the run wrote it",
                    mend="restore the file, or remove the line: what it tells is lost, the run itself is not",
                ) from error
            unreadable(f"line {number} of {path} cannot be read and is left out: {error}")
    return rows


def _cut_torn(path: Path) -> None:
    """Shorten the file to the end of its last whole line."""
    if not path.is_file():
        return
    with path.open("r+b") as file:
        size = end = file.seek(0, 2)
        while end > 0:
            start = max(0, end - _BLOCK)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        if end < size:
            file.truncate(end)
