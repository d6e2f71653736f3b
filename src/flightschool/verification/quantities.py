"""Numbers and units as people write them: ``1,234.5 km``, ``−3 °C``, ``€ 12``, ``USD 12``, ``40 %``, ``2 h 30 min``.

A small table of units instead of a library: what answers and files of office and engineering tasks hold. A unit that is
not in the table is no error here, it is a word: ``15 parts`` is the number 15 without a unit. Currencies
(``currencies``) are all known, before and behind the number, so that dollars never pass for a number without a unit.
Factors are exact by definition (SI brochure, 9th edition; the international yard and pound of 1959).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from flightschool.verification.currencies import currency_names

__all__ = ["Quantity", "converted", "in_unit", "is_duration", "is_unit", "number_of", "quantities", "with_durations"]


@dataclass(frozen=True)
class Quantity:
    """A number with its unit, if one of the table follows (or a currency stands beside it)."""

    value: float
    """An ``int`` where it is written in digits alone: all of them count."""
    unit: str
    """As in the table; empty for none."""
    start: int = 0
    """Where it begins in the text, with sign and currency."""
    end: int = 0
    """Where it ends, with its unit."""


_CURRENCY = "currency"


@dataclass(frozen=True)
class _Unit:
    dimension: str
    factor: Decimal
    offset: Decimal = Decimal(0)
    """base = value · factor + offset"""


def _units() -> dict[str, tuple[_Unit, ...]]:
    """Name → what it may mean; as a unit that is asked for, it means the first."""
    table: dict[str, tuple[_Unit, ...]] = {}

    def add(dimension: str, names: Mapping[str, str]) -> None:
        for name, factor in names.items():
            for one in name.split():
                table[one] = (_Unit(dimension, Decimal(factor)),)

    add("length", {"m meter meters metre metres": "1", "km kilometer kilometers kilometre kilometres": "1000"})
    add("length", {"cm": "0.01", "mm": "0.001", "µm \u03bcm um": "0.000001", "nm": "0.000000001"})
    add("length", {"inch inches": "0.0254", "ft foot feet": "0.3048", "yd": "0.9144", "mi mile miles": "1609.344"})
    add("mass", {"kg kilogram kilograms": "1", "g gram grams": "0.001", "mg": "0.000001", "t tonne tonnes": "1000"})
    add("mass", {"lb lbs pound pounds": "0.45359237", "oz ounce ounces": "0.028349523125"})
    add("time", {"s sec secs second seconds": "1", "ms": "0.001", "µs \u03bcs us": "0.000001", "ns": "0.000000001"})
    add("time", {"min mins minute minutes": "60", "h hr hrs hour hours": "3600", "d day days": "86400"})
    add("time", {"week weeks": "604800"})
    add("volume", {"l L liter liters litre litres": "1", "ml mL": "0.001", "m³ m3": "1000"})
    add(
        "pressure",
        {"Pa": "1", "kPa": "1000", "MPa": "1000000", "bar": "100000", "mbar": "100", "psi": "6894.757293168361"},
    )
    add("energy", {"J": "1", "kJ": "1000", "Wh": "3600", "kWh": "3600000", "MWh": "3600000000"})
    add("power", {"W": "1", "kW": "1000", "MW": "1000000"})
    add("voltage", {"V": "1", "mV": "0.001", "kV": "1000"})
    add("current", {"A": "1", "mA": "0.001"})
    add("frequency", {"Hz": "1", "kHz": "1000", "MHz": "1000000", "GHz": "1000000000", "rpm": str(Decimal(1) / 60)})
    add("speed", {"m/s": "1", "km/h": str(Decimal(1) / Decimal("3.6")), "mph": "0.44704"})
    add("data", {"B byte bytes": "1", "kB KB": "1000", "MB": "1000000", "GB": "1000000000", "TB": "1000000000000"})
    add("data", {"KiB": "1024", "MiB": "1048576", "GiB": "1073741824", "TiB": "1099511627776"})
    add("share", {"% percent": "0.01", "‰": "0.001"})
    for name, codes, share in currency_names():  # "5 pounds" may be a mass
        table[name] = table.get(name, ()) + tuple(_Unit(f"{_CURRENCY} {code}", Decimal(share)) for code in codes)
    return table | {
        "K": (_Unit("temperature", Decimal(1)),),
        "°C": (_Unit("temperature", Decimal(1), Decimal("273.15")),),
        "°F": (_Unit("temperature", Decimal(5) / Decimal(9), Decimal("459.67") * 5 / 9),),
    }


_UNITS = _units()
_SIGNS = {".": r"(?:,\d{3})+|(?:[ \u00a0\u202f'’]\d{3})+", ",": r"(?:\.\d{3})+|(?:[ \u00a0\u202f'’]\d{3})+"}
_MOST_DIGITS = 60
_SPACE = re.compile(r"[\u00a0\u202f]")


def _either(names: Iterable[str]) -> str:
    """A pattern of names, longer ones first."""
    return "|".join(re.escape(name).replace(r"\ ", r"[ \u00a0\u202f]") for name in sorted(names, key=len, reverse=True))


def _pattern(decimal: str) -> re.Pattern[str]:
    point = re.escape(decimal)
    number = rf"(?:\d{{1,3}}(?:{_SIGNS[decimal]})(?!\d)|\d+)(?:{point}\d+)?(?:[eE][+-]?\d{{1,3}})?"
    return re.compile(
        # a digit is no start inside a word, a longer number, or a code such as P-10; nor is the part after a point
        rf"(?<![\w.,])(?<![^\W\d_]-)(?:(?P<sign>[+\-\u2212])\s?)?(?P<number>{number})(?!\w{{0,16}}\d)(?![.,]\d)"
        rf"(?:[ \u00a0\u202f]?(?P<unit>{_either(_UNITS)})(?![\w/²³^]))?",
    )


_PATTERNS = {decimal: _pattern(decimal) for decimal in _SIGNS}
_MONEY = _either(name for name in _UNITS if _UNITS[name][-1].dimension.startswith(_CURRENCY))
_BEFORE = re.compile(
    rf"(?P<minus>(?<![\w\-\u2212])[\-\u2212])?(?:(?<![^\W_])|(?=[^\w\s]))(?P<unit>{_MONEY})"
    r"[ \u00a0\u202f:=*_(]{0,4}\Z"
)
_BEHIND = re.compile(rf"[ \u00a0\u202f*_(]{{0,4}}(?:in[ \u00a0\u202f])?(?P<unit>{_MONEY})(?!\w)(?![\s:=*_(]*\d)")
_REACH = 32
"""Characters before a number in which its currency stands: the longest name, and what parts the two."""


def quantities(text: str, decimal: str = ".") -> Iterator[Quantity]:
    """All numbers of a text, with their units; parts of words, codes and dates are none."""
    end = 0
    for match in _PATTERNS[decimal].finditer(text):
        start = match.start("sign") if match.group("sign") else match.start("number")
        # "P-10" and "3-5": a hyphen that joins is no sign
        sign = match.group("sign") or ""
        joined = bool(sign) and start > 0 and (text[start - 1].isalnum() or text[start - 1] in "-_/")
        if joined and text[start - 1].isalpha():
            continue
        value = _value(match.group("number"), decimal)
        if value is None:
            continue
        before = _BEFORE.search(text, max(end, start - _REACH), start)
        behind = None if match.group("unit") or before else _BEHIND.match(text, match.end())
        unit = match.group("unit") or next((money.group("unit") for money in (before, behind) if money), "")
        negative = (sign in ("-", "\u2212") and not joined) or bool(before and before.group("minus"))
        start, end = before.start() if before else start, behind.end() if behind else match.end()
        yield Quantity(-value if negative else value, _SPACE.sub(" ", unit), start, end)


def _value(number: str, decimal: str) -> float | int | None:
    digits = re.sub(r"[ \u00a0\u202f'’]", "", number)
    digits = digits.replace("," if decimal == "." else ".", "").replace(decimal, ".")
    if len(digits) > _MOST_DIGITS:
        return None
    try:
        return int(digits) if digits.isdecimal() else float(Decimal(digits))
    except (InvalidOperation, OverflowError):
        return None


_GLUED = re.compile(r"(?<![\w.,\-])\d+[a-z]{1,5}(?:\d+[a-z]{1,5})+(?!\w)")
_AND = re.compile(r"[\s,]{0,3}(?:(?:and|und|et|y)\s{1,2})?")


def with_durations(text: str, decimal: str = ".") -> Iterator[Quantity]:
    """The quantities of a text in which ``2 h 30 min``, ``2h30m`` and ``1 day, 4 hours`` are one, in seconds."""
    text = _apart(text)
    whole: Quantity | None = None
    last = Quantity(0, "")  # the last part of the whole
    for found in quantities(text, decimal):
        part = found
        if found.unit == "m" and _seconds(last.unit) >= _HOUR:  # metres, but for the hours before them
            part = Quantity(found.value, "min", found.start, found.end)
        if whole is not None and _AND.fullmatch(text[whole.end : part.start]) and _continues(last, part):
            whole, last = _sum(whole, part), part
            continue
        if whole is not None:
            yield whole
        whole = last = found
    if whole is not None:
        yield whole


_HOUR = Decimal(3600)


def _apart(text: str) -> str:
    """``2h30m`` as ``2h 30m``."""
    return _GLUED.sub(lambda match: re.sub(r"(?<=[a-z])(?=\d)", " ", match.group()), text)


def _continues(last: Quantity, part: Quantity) -> bool:
    """Whether a part goes on where a whole number of a larger unit stood: 30 min after 2 h, not 90."""
    size = float(_seconds(part.unit))
    return size > 0 and float(last.value).is_integer() and 0 <= part.value * size < float(_seconds(last.unit))


def _seconds(unit: str) -> Decimal:
    """Seconds of a unit of time; 0 for others."""
    return _UNITS[unit][0].factor if is_duration(unit) else Decimal(0)


def _sum(whole: Quantity, part: Quantity) -> Quantity:
    """Both in seconds; the sign of the first is that of all."""
    first, second = (Decimal(repr(one.value)) * _seconds(one.unit) for one in (whole, part))
    total = first - second if first < 0 else first + second
    return Quantity(float(total), "s", whole.start, part.end)


def number_of(text: str, *, durations: bool = False) -> Quantity | None:
    """The quantity that a text *is*: nothing may stand beside it."""
    text = _apart(text.strip()) if durations else text.strip()
    if len(text) > 100:
        return None
    found = list(with_durations(text) if durations else quantities(text))
    return found[0] if len(found) == 1 and (found[0].start, found[0].end) == (0, len(text)) else None


def in_unit(text: str, unit: str) -> float | None:
    """The quantity that a text is, in ``unit``; a bare number counts as being in it. None: it is no such quantity."""
    found = number_of(text, durations=is_duration(unit))
    return None if found is None else converted(found, unit)


def converted(quantity: Quantity, unit: str) -> float | None:
    """A quantity in another unit; None if the two measure different things."""
    if not quantity.unit or quantity.unit == unit:
        return quantity.value
    target = _UNITS[unit][0]
    source = next((one for one in _UNITS[quantity.unit] if one.dimension == target.dimension), None)
    if source is None:
        return None
    base = Decimal(repr(quantity.value)) * source.factor + source.offset
    return float((base - target.offset) / target.factor)


def is_unit(name: str) -> bool:
    """Whether the table knows the unit."""
    return name in _UNITS


def is_duration(unit: str) -> bool:
    """Whether it is a unit of time."""
    return unit in _UNITS and _UNITS[unit][0].dimension == "time"
