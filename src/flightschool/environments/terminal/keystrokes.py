"""Solutions given as keystrokes (``solution.yaml`` of Terminal-Bench 1), and the script that types them.

A list of strokes: ``command`` (text, or the name of a key), ``append_enter`` (true unless said otherwise), ``block``
(wait for the end of the line, for at most ``max_timeout_sec``), else ``min_timeout_sec`` (wait at least that long).
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Final

from flightschool.environments.terminal import typist
from flightschool.environments.terminal.records import Note
from flightschool.environments.terminal.yaml_text import load_yaml
from flightschool.errors import InputError
from flightschool.records import Json, Record

__all__ = ["SOLUTION_KEYS", "Keystroke", "read_keystrokes", "typed_text", "typing_script"]

SOLUTION_KEYS: Final = "solution.yaml"
MOST_STROKES: Final = 5000
_FIELDS: Final = ("command", "min_timeout_sec", "max_timeout_sec", "block", "append_enter")
_END: Final = "END_OF_TYPIST"
_SCRIPT: Final = f"""\
#!/bin/bash
# Types the solution, which is given as keystrokes, into a shell on a terminal of its own. The program below is whole.
exec python3 - <<'{_END}'
@PROGRAM@
main(@STROKES@)
{_END}
"""


class Keystroke(Record, frozen=True, kw_only=True):
    """One stroke, with the defaults of the format."""

    command: str
    min_timeout_sec: float = 0.0
    max_timeout_sec: float = 180.0
    block: bool = False
    append_enter: bool = True


def read_keystrokes(text: str, where: str) -> tuple[tuple[Keystroke, ...], tuple[Note, ...]]:
    """The strokes of a ``solution.yaml``, and what is odd about it.

    Raises:
        InputError: it is no list of strokes, or a value is impossible.
    """
    rows = load_yaml(text, where)
    if not isinstance(rows, list) or not rows or len(rows) > MOST_STROKES:
        raise InputError(
            "no list of keystrokes",
            where=where,
            expected=f"1 to {MOST_STROKES} entries with a 'command' each",
            mend="write the solution anew, or as solution.sh",
        )
    strokes, unknown = [], set()
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise _wrong(f"entry {number} is no table", where, "keys and values")
        strokes.append(_stroke({str(key): value for key, value in row.items()}, f"{where}: entry {number}"))
        unknown |= {str(key) for key in row} - set(_FIELDS)
    notes = tuple(Note(where=SOLUTION_KEYS, what=f"unknown key {name!r}") for name in sorted(unknown))
    return tuple(strokes), notes


def _stroke(row: dict[str, Json], where: str) -> Keystroke:
    command = row.get("command")
    if isinstance(command, int | float) and not isinstance(command, bool):
        command = str(command)
    if not isinstance(command, str) or "\0" in command:
        raise _wrong(f"command is {command!r}", where, "a text; put words that YAML reads as values into quotes")
    return Keystroke(
        command=command,
        min_timeout_sec=_seconds(row, "min_timeout_sec", 0.0, where),
        max_timeout_sec=_seconds(row, "max_timeout_sec", 180.0, where),
        block=_flag(row, "block", False, where),
        append_enter=_flag(row, "append_enter", True, where),
    )


def _seconds(row: dict[str, Json], key: str, default: float, where: str) -> float:
    value = row.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise _wrong(f"{key} is {value!r}", where, "seconds from 0")
    return float(value)


def _flag(row: dict[str, Json], key: str, default: bool, where: str) -> bool:
    value = row.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise _wrong(f"{key} is {value!r}", where, "true or false")
    return value


def _wrong(what: str, where: str, expected: str) -> InputError:
    return InputError(what, where=where, expected=expected, mend="correct it")


def typing_script(strokes: tuple[Keystroke, ...]) -> str:
    """A shell script, whole in itself, that types strokes; it needs ``bash`` and ``python3``."""
    rows = [{name: getattr(stroke, name) for name in _FIELDS} for stroke in strokes]
    program = Path(typist.__file__).read_text(encoding="utf-8")
    return _SCRIPT.replace("@PROGRAM@", program.rstrip()).replace("@STROKES@", repr(json.dumps(rows)))


def typed_text(text: str, where: str = SOLUTION_KEYS) -> str:
    """What a ``solution.yaml`` types, one stroke a line: what a reader of shell text takes for the script.

    Raises:
        InputError: as ``read_keystrokes``.
    """
    return "".join(f"{stroke.command}\n" for stroke in read_keystrokes(text, where)[0])
