"""Other notations of one value: units, instants, places of decimals that nobody asked for, keys at their defaults.

Each is right only where the instruction leaves it open; what it spells out itself is not touched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

from flightschool.audit.terminal.in_view import InView
from flightschool.audit.terminal.outputs import Output

__all__ = ["notations_of"]

_UNITS: Final[tuple[tuple[str, ...], ...]] = tuple(
    tuple(line.split())
    for line in (
        "milliseconds millisecond msec ms",
        "seconds second secs sec s",
        "minutes minute mins min",
        "hours hour hrs hr h",
        "days day d",
        "kilometers kilometres kilometer kilometre km",
        "centimeters centimetres centimeter centimetre cm",
        "millimeters millimetres millimeter millimetre mm",
        "meters metres meter metre m",
        "kilograms kilogram kg",
        "grams gram g",
        "liters litres liter litre l L",
        "bytes byte B",
        "kilobytes kilobyte kB KB",
        "megabytes megabyte MB",
        "gigabytes gigabyte GB",
        "kibibytes kibibyte KiB",
        "mebibytes mebibyte MiB",
        "percent %",
        "euros euro EUR €",
        "dollars dollar USD",
    )
)
_VALUE: Final = re.compile(r"\s*(-?\d[\d.,]*)(\s*)([A-Za-z%€]+)\s*")
_ASKS_UNIT: Final = re.compile(r"\bunits?\b|\bhow (?:long|far|heavy|large|big|much|tall|wide)\b", re.I)
_INSTANT: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")
_STANDARD: Final = re.compile(r"RFC ?3339|ISO ?-?8601", re.I)
_ZONE: Final = re.compile(r"\bUTC\b|\bGMT\b|\bZulu\b|offset|time ?zone|local time|SSZ\b|`Z`", re.I)
_ANY_OFFSET: Final = re.compile(r"any (?:UTC )?(?:offset|time ?zone)", re.I)
_ALL_KEYS: Final = re.compile(r"\ball (?:the )?keys|every key|explicit|spell|in full|complete\b", re.I)
_ONLY: Final = re.compile(r"\bonly\b|nothing else|no other|no further|no additional", re.I)
_PAIR: Final = re.compile(r"^\s*([\w.-]+)\s*[:=]\s*(.+?)\s*$")


def notations_of(output: Output, view: InView) -> Iterator[tuple[str, str]]:
    """Text of the same meaning, and what was changed. Only of new files that are no programs."""
    if output.before is not None or output.kind in ("code", "binary"):
        return
    yield from _units(output, view)
    yield from _instants(output, view)
    yield from _defaults(output, view)


def _units(output: Output, view: InView) -> Iterator[tuple[str, str]]:
    """``95 minutes`` as ``95 min``, where no spelling of the unit is asked for."""
    match = _VALUE.fullmatch(output.text)
    if match is None or not _ASKS_UNIT.search(view.instruction):
        return
    number, space, unit = match.groups()
    group = next((one for one in _UNITS if unit in one), ())
    if any(re.search(rf"(?<![A-Za-z]){re.escape(word)}(?![A-Za-z])", view.instruction) for word in group if word):
        return
    others = [word for word in group if not _is_number_of(word, unit)]
    if others:
        short = min(others, key=len) if len(unit) > 2 else max(others, key=len)
        yield f"{number}{space}{short}\n", f"its unit written as {short!r}, no spelling of which was asked for"


def _is_number_of(word: str, other: str) -> bool:
    """Whether two words are singular and plural of one another, or the same."""
    return word.rstrip("s") == other.rstrip("s")


def _instants(output: Output, view: InView) -> Iterator[tuple[str, str]]:
    """The same instant with another offset of UTC (RFC 3339, section 4)."""
    told = view.instruction
    if not _INSTANT.search(output.text) or not _STANDARD.search(told) or _INSTANT.search(told):
        return
    other = re.sub(r"(?<=\d)Z", "+00:00", output.text) if "Z" in output.text else output.text.replace("+00:00", "Z")
    free = not _ZONE.search(told) or _ANY_OFFSET.search(told) is not None
    if free:
        yield _INSTANT.sub(_moved, output.text), "the same instant with another offset of UTC"
    if other != output.text and (free or not re.search(r"SSZ\b|`Z`|\bZulu\b", told)):
        yield other, "the offset of UTC written in its other form"


def _moved(match: re.Match[str]) -> str:
    """Two hours further east, the same moment."""
    fraction = match.group(2) or ""
    at = datetime.fromisoformat(match.group(1) + match.group(3).replace("Z", "+00:00"))
    zone = timezone(timedelta(hours=2 if at.utcoffset() != timedelta(hours=2) else 3))
    return at.astimezone(UTC).astimezone(zone).isoformat().replace("+", f"{fraction}+")


# ------------------------------------------------------------------------------------------------ defaults


def _defaults(output: Output, view: InView) -> Iterator[tuple[str, str]]:
    """A key left out that has its documented default."""
    if _ALL_KEYS.search(view.instruction):
        return
    documents = [view.instruction, *view.inputs.values()]
    if output.kind == "json":
        try:
            value = json.loads(output.text)
        except ValueError:
            return
        if not isinstance(value, dict) or len(value) < 2:
            return
        for key, one in value.items():
            if any(_has_default(text, key, one) for text in documents):
                rest = {name: item for name, item in value.items() if name != key}
                yield json.dumps(rest) + "\n", f"without {key!r}, which has its documented default"
        return
    lines = output.text.splitlines(keepends=True)
    for place, line in enumerate(lines if len(lines) > 1 else []):
        pair = _PAIR.fullmatch(line.rstrip("\n"))
        if pair and any(_has_default(text, pair.group(1), pair.group(2).strip("\"'")) for text in documents):
            rest_lines = "".join(lines[:place] + lines[place + 1 :])
            yield rest_lines, f"without {pair.group(1)!r}, which has its documented default"


def _has_default(text: str, key: str, value: Any) -> bool:
    """Whether a line of a document says that a key may be left out, and that it then has this value."""
    shown = {json.dumps(value), str(value)} if not isinstance(value, str) else {value}
    values = "|".join(re.escape(one) for one in shown)
    told = re.compile(
        rf"default(?:s to| is| value(?: is)?|:|=)?\s*[`'\"]?(?:{values})(?![\w]|\.\d)"
        rf"|(?<![\w.])(?:{values})[`'\"]?\s*(?:by default|unless (?:given|set|told|stated))",
        re.I,
    )
    for line in text.splitlines():
        if not re.search(rf"(?<![\w-]){re.escape(key)}(?![\w-])", line) or len(line) > 2000:
            continue
        begin = line.index(key)
        piece = line[begin : begin + 200]
        found = told.search(piece)
        if found and not re.search(r"\brequired\b|\bmandatory\b|must be (?:given|set|there)", piece, re.I):
            return True
    return False
