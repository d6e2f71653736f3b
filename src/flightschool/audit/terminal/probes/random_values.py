"""Random values of the right type, drawn by a seed: what a policy that guesses leaves.

Of the reference only kinds are used: that a file holds a whole number, rows of three columns, an object of a text and
a list. Names are kept where the instruction speaks of them; all else is drawn, from so wide a range that a hit by
chance is unlikely.
"""

from __future__ import annotations

import csv
import io
import json
import random
import re
from typing import Any, Final

from flightschool.audit.terminal.outputs import Output

__all__ = ["random_value"]

_LETTERS: Final = "bcdfghjklmnpqrstvwxz"
_NUMBER: Final = re.compile(r"[+-]?\d+")
_DECIMAL: Final = re.compile(r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?")
MOST_ROWS: Final = 5


def random_value(output: Output, instruction: str, draws: random.Random) -> bytes:
    """Content of the kind of an output's; programs and binary files are drawn byte by byte."""
    if output.kind == "json":
        return _json(json.loads(output.text), instruction, draws)
    if output.kind == "jsonl":
        first = json.loads(output.text.strip().splitlines()[0])
        return b"".join(_json(first, instruction, draws) for _ in range(draws.randint(1, MOST_ROWS)))
    if output.kind == "table":
        return _table(output.text, instruction, draws)
    if output.kind == "text":
        lines = [line for line in output.text.splitlines() if line.strip()] or ["x"]
        return "".join(f"{_line(lines[0], draws)}\n" for _ in lines[:MOST_ROWS]).encode()
    return draws.randbytes(64)


def _json(value: Any, instruction: str, draws: random.Random) -> bytes:
    return (json.dumps(_like(value, instruction, draws)) + "\n").encode()


def _like(value: Any, instruction: str, draws: random.Random) -> Any:
    if isinstance(value, dict):
        return {_name(key, instruction, draws): _like(item, instruction, draws) for key, item in value.items()}
    if isinstance(value, list):
        return [_like(value[0], instruction, draws) for _ in range(draws.randint(1, MOST_ROWS))] if value else []
    if isinstance(value, bool) or value is None:
        return draws.random() < 0.5
    if isinstance(value, int):
        return draws.randint(1000, 10**6)
    return round(draws.uniform(1e3, 1e6), 3) if isinstance(value, float) else _line(value, draws)


def _name(key: str, instruction: str, draws: random.Random) -> str:
    told = re.search(rf"(?<!\w){re.escape(key)}(?!\w)", instruction) is not None
    return key if told else _word(draws)


def _table(text: str, instruction: str, draws: random.Random) -> bytes:
    mark = "\t" if "\t" in text else next((one for one in ",;|" if one in text), ",")
    rows = [row for row in csv.reader(io.StringIO(text.replace("\0", "")), delimiter=mark) if row]
    told = io.StringIO()
    writer = csv.writer(told, delimiter=mark, lineterminator="\n")
    if all(re.search(rf"(?<!\w){re.escape(cell)}(?!\w)", instruction) for cell in rows[0]):
        writer.writerow(rows[0])
    writer.writerows([_line(cell, draws) for cell in rows[-1]] for _ in range(draws.randint(1, MOST_ROWS)))
    return told.getvalue().encode()


def _line(like: str, draws: random.Random) -> str:
    """Text of the type of another: a whole number, a decimal one, as many words."""
    like = like.strip()
    if _NUMBER.fullmatch(like):
        return str(draws.randint(1000, 10**6))
    if _DECIMAL.fullmatch(like):
        return f"{draws.uniform(1e3, 1e6):.3f}"
    return " ".join(_word(draws) for _ in like.split()) or _word(draws)


def _word(draws: random.Random) -> str:
    return "".join(draws.choices(_LETTERS, k=7))
