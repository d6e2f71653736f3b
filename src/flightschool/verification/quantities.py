"""Numbers and units as people write them: ``1,234.5 km``, ``−3 °C``, ``€ 12``, ``40 %``.

A small table of units instead of a library: what answers and files of office and engineering tasks hold. A unit that is
not in the table is no error here, it is a word: ``15 parts`` is the number 15 without a unit.
Factors are exact by definition (SI brochure, 9th edition; the international yard and pound of 1959).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

__all__ = ["Quantity", "converted", "in_unit", "is_unit", "number_of", "quantities"]


@dataclass(frozen=True)
class Quantity:
    """A number with its unit, if one of the table follows (or a currency sign stands before)."""

    value: float
    unit: str
    """As in the table; empty for none."""


@dataclass(frozen=True)
class _Unit:
    dimension: str
    factor: Decimal
    offset: Decimal = Decimal(0)
    """base = value · factor + offset"""


def _units() -> dict[str, _Unit]:
    table: dict[str, _Unit] = {}

    def add(dimension: str, names: Mapping[str, str]) -> None:
        for name, factor in names.items():
            for one in name.split():
                table[one] = _Unit(dimension, Decimal(factor))

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
    for names in ("€ EUR euro euros", "$ USD", "£ GBP", "¥ JPY", "CHF", "₹ INR"):
        code = next(name for name in names.split() if name.isascii() and name.isupper() and len(name) == 3)
        add(f"currency {code}", {names: "1"})  # no rates: euros are no dollars
    table |= {
        "K": _Unit("temperature", Decimal(1)),
        "°C": _Unit("temperature", Decimal(1), Decimal("273.15")),
        "°F": _Unit("temperature", Decimal(5) / Decimal(9), Decimal("459.67") * 5 / 9),
    }
    return table


_UNITS = _units()
_SIGNS = {".": r"(?:,\d{3})+|(?:[ \u00a0\u202f'’]\d{3})+", ",": r"(?:\.\d{3})+|(?:[ \u00a0\u202f'’]\d{3})+"}
_NAMES = "|".join(re.escape(name) for name in sorted(_UNITS, key=len, reverse=True))
_CURRENCY = "".join(name for name in _UNITS if len(name) == 1 and _UNITS[name].dimension.startswith("currency"))
_MOST_DIGITS = 60


def _pattern(decimal: str) -> re.Pattern[str]:
    point = re.escape(decimal)
    number = rf"(?:\d{{1,3}}(?:{_SIGNS[decimal]})(?!\d)|\d+)(?:{point}\d+)?(?:[eE][+-]?\d{{1,3}})?"
    return re.compile(
        rf"(?P<before>[{re.escape(_CURRENCY)}]\s?)?"
        # a digit is no start inside a word, a longer number, or a code such as P-10; nor is the part after a point
        rf"(?<![\w.,])(?<![^\W\d_]-)(?:(?P<sign>[+\-\u2212])\s?)?(?P<number>{number})(?!\w{{0,16}}\d)(?![.,]\d)"
        rf"(?:[ \u00a0\u202f]?(?P<unit>{_NAMES})(?![\w/²³^]))?",
    )


_PATTERNS = {decimal: _pattern(decimal) for decimal in _SIGNS}


def quantities(text: str, decimal: str = ".") -> Iterator[Quantity]:
    """All numbers of a text, with the units that follow them; parts of words, codes and dates are none."""
    for match in _PATTERNS[decimal].finditer(text):
        start = match.start("sign") if match.group("sign") else match.start("number")
        # "P-10" and "3-5": a hyphen that joins is no sign
        sign = match.group("sign") or ""
        joined = bool(sign) and start > 0 and (text[start - 1].isalnum() or text[start - 1] in "-_/")
        if joined and text[start - 1].isalpha():
            continue
        digits = re.sub(r"[ \u00a0\u202f'’]", "", match.group("number"))
        digits = digits.replace("," if decimal == "." else ".", "").replace(decimal, ".")
        if len(digits) > _MOST_DIGITS:
            continue
        try:
            value = float(Decimal(digits))
        except (InvalidOperation, OverflowError):
            continue
        negative = sign in ("-", "\u2212") and not joined
        unit = match.group("unit") or (match.group("before") or "").strip()
        yield Quantity(-value if negative else value, unit)


def number_of(text: str) -> Quantity | None:
    """The quantity that a text *is*: nothing may stand beside it."""
    found = list(quantities(text.strip()))
    if len(found) != 1 or len(text) > 100:
        return None
    rest = _PATTERNS["."].sub("", text.strip(), count=1).strip()
    return None if rest else found[0]


def in_unit(text: str, unit: str) -> float | None:
    """The quantity that a text is, in ``unit``; a bare number counts as being in it. None: it is no such quantity."""
    found = number_of(text)
    return None if found is None else converted(found, unit)


def converted(quantity: Quantity, unit: str) -> float | None:
    """A quantity in another unit; None if the two measure different things."""
    if not quantity.unit or quantity.unit == unit:
        return quantity.value
    source, target = _UNITS[quantity.unit], _UNITS[unit]
    if source.dimension != target.dimension:
        return None
    base = Decimal(repr(quantity.value)) * source.factor + source.offset
    return float((base - target.offset) / target.factor)


def is_unit(name: str) -> bool:
    """Whether the table knows the unit."""
    return name in _UNITS
