"""What an instruction demands in so many words, against what the tests take: forms, emptiness, names, modes.

Where the reference's work breaks a demand and work that keeps it is refused, the tests ask for something else than the
instruction. Where the tests insist on a name that stands nowhere in view, nobody could have known it.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from flightschool.audit.terminal.in_view import InView
from flightschool.audit.terminal.outputs import Output

__all__ = ["Demand", "demands_of"]

_COUNTS: Final = {"one": 1, "two": 2, "three": 3, "four": 4, "1": 1, "2": 2, "3": 3, "4": 4}
_DECIMALS: Final = re.compile(
    r"\b(one|two|three|four|[1-4]) (?:decimals?\b|decimal (?:places|digits)|digits after)", re.I
)
_WHOLE: Final = re.compile(r"(?<![\w.,/-])-?\d+(?![\w,/-]|\.\d)")
_WHOLE_CELL: Final = re.compile(r"(?<![\w./-])-?\d+(?![\w/-]|\.\d)")
_EXACTLY: Final = re.compile(r"(?<![\w.])-?\d+\.(\d+)(?![\w.])")
_MONEY: Final = re.compile(r"\b(?:euros?|dollars?|pounds?)\b", re.I)
_CENTS: Final = re.compile(r"\b(?:cents?|pence)\b", re.I)
_EMPTY: Final = re.compile(
    r"(?:if (?:there (?:are|is) )?(?:none|nothing|no \w+)|otherwise|when (?:there (?:are|is) )?(?:none"
    r"|nothing|no \w+)|where (?:there"
    r" (?:are|is) )?(?:none|nothing))[^.;\n]{0,60}\bempty\b|\bempty (?:file|list"
    r"|object)[^.;\n]{0,30}\bif\b[^.;\n]{0,30}\b(?:none|nothing|no)\b",
    re.I,
)
_NOTHING: Final = re.compile(r"\W*(?:none|nothing|n/?a|null|nil|no|not found|empty|-+|0)\W*", re.I)
_NAMED_NOTHING: Final = re.compile(
    r"if (?:there (?:are|is) )?(?:none|nothing)[^.;\n]{0,60}?(?:word|line|text)?\s*[`'\"](\w{1,12})[`'\"]", re.I
)
_MODES: Final = re.compile(r"\bmode\b|permission|read-?only|executable|chmod|writable|readable|\b0?[0-7]{3}\b", re.I)
_KEY: Final = re.compile(r"[A-Za-z][A-Za-z_ -]{2,40}")
_LABELLED: Final = re.compile(r"\s*([A-Za-z][A-Za-z _-]{2,30}?)\s*[:=]\s*(-?\d[\d.]*)\s*")
USUAL_MODES: Final = (0o644, 0o664, 0o600, 0o755, 0o775, 0o700)


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Work that keeps to the instruction, where the reference does otherwise or adds what nobody could know."""

    data: bytes
    what: str
    flaw: str = "unasked-requirement"
    mode: int | None = None


def demands_of(output: Output, view: InView) -> Iterator[Demand]:
    """Forms of a new output that the instruction's own words make right."""
    if output.before is not None:
        return
    if output.kind not in ("code", "binary"):
        yield from _decimals(output, view)
        yield from _nothing(output, view)
        yield from _unknowable(output, view)
    unusual = output.mode & 0o7777 not in USUAL_MODES
    if output.kind != "code" and unusual and not _MODES.search(view.instruction):
        what = f"with the usual mode instead of {output.mode & 0o7777:o}, of which nothing is said"
        yield Demand(data=output.data, what=what, mode=0o644)


def _decimals(output: Output, view: InView) -> Iterator[Demand]:
    """So many decimals are demanded, and no number of the reference has them."""
    found = _DECIMALS.search(view.instruction)
    whole = _WHOLE_CELL if output.kind == "table" else _WHOLE
    numbers = whole.findall(output.text)
    if found is None or output.kind not in ("text", "table") or not numbers:
        return
    places = _COUNTS[found.group(1).lower()]
    if any(len(one) == places for one in _EXACTLY.findall(output.text)):
        return
    cents = places == 2 and _MONEY.search(view.instruction) and _CENTS.search(view.text)
    factor = 100 if cents else 1
    text = whole.sub(lambda match: f"{int(match.group()) / factor:.{places}f}", output.text)
    unit = " in the unit that is asked for" if cents else ""
    yield Demand(data=text.encode(), what=f"its numbers with {places} decimals{unit}, as the instruction says")


def _nothing(output: Output, view: InView) -> Iterator[Demand]:
    """An empty file is demanded where there is nothing to say, and the reference says a word; or the other way."""
    if _EMPTY.search(view.instruction) and _NOTHING.fullmatch(output.text) and output.text.strip():
        empty = b"[]\n" if output.text.lstrip().startswith("[") else b""
        yield Demand(data=empty, what="empty, which is how the instruction wants it when there is nothing")
    word = _NAMED_NOTHING.search(view.instruction)
    if word and not output.text.strip():
        what = f"{word.group(1)!r}, which the instruction wants when there is nothing"
        yield Demand(data=f"{word.group(1)}\n".encode(), what=what)


# ------------------------------------------------------------------------------------------------ names


def _unknowable(output: Output, view: InView) -> Iterator[Demand]:
    """Names of keys, columns and labels that stand nowhere in view, written otherwise."""
    if output.kind == "json":
        try:
            value = json.loads(output.text)
        except ValueError:
            return
        unknown = [key for key in _keys(value) if _KEY.fullmatch(key) and not view.speaks_of(key)]
        if unknown:
            renamed = json.dumps(_renamed(value, set(unknown)))
            what = f"another name for {unknown[0]!r}, which stands nowhere in view"
            yield Demand(data=renamed.encode() + b"\n", what=what)
    elif output.kind == "table":
        mark = next((one for one in (",", "\t", ";", "|") if one in output.text), ",")
        rows = list(csv.reader(io.StringIO(output.text), delimiter=mark))
        head = rows[0] if rows else []
        unknown = [name for name in head if _KEY.fullmatch(name) and not view.speaks_of(name)]
        is_head = len(rows) > 2 and not any(re.search(r"\d", name) for name in head)
        if unknown and is_head and any(re.search(r"\d", cell) for cell in rows[1]):
            rows[0] = [f"{name}_" if name in unknown else name for name in head]
            text = "".join(mark.join(row) + "\n" for row in rows)
            what = f"another name for the column {unknown[0]!r}, which stands nowhere in view"
            yield Demand(data=text.encode(), what=what)
    else:
        label = _LABELLED.fullmatch(output.text)
        if label and not view.speaks_of(label.group(1)):
            what = f"without the label {label.group(1)!r}, which stands nowhere in view"
            yield Demand(data=f"{label.group(2)}\n".encode(), what=what)


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from _keys(item)


def _renamed(value: Any, names: set[str]) -> Any:
    if isinstance(value, dict):
        return {f"{key}_value" if key in names else key: _renamed(item, names) for key, item in value.items()}
    return [_renamed(item, names) for item in value] if isinstance(value, list) else value
