"""Numbers for people: units, signs, intervals. A minus sign is a minus sign."""

from __future__ import annotations

import math

from flightschool.records import Measurement

__all__ = ["bounds", "compact", "interval", "number", "signed"]

_MINUS = "\u2212"
_THIN = "\u202f"


def number(value: float, unit: str = "", *, show_unit: bool = True) -> str:
    """``0.94``, ``12.5 ms``, ``1,240 tokens``: two decimals for shares (no unit), fewer the larger the number."""
    if not math.isfinite(value):
        return "n/a"
    size = abs(value)
    if not unit:
        text = f"{size:.2f}" if size < 100 else f"{size:,.0f}"
    elif size < 10:
        text = f"{size:.2f}".rstrip("0").rstrip(".") or "0"
    else:
        text = f"{size:,.1f}".removesuffix(".0") if size < 100 else f"{size:,.0f}"
    sign = _MINUS if value < 0 and any(digit in "123456789" for digit in text) else ""
    return sign + text + (f"{_THIN}{unit}" if unit and show_unit else "")


def signed(value: float, unit: str = "") -> str:
    """A difference always shows its sign; zero has none."""
    text = number(value, unit)
    return text if value <= 0 or not any(digit in "123456789" for digit in text) else "+" + text


def bounds(measured: Measurement, *, difference: bool = False) -> str:
    """``0.86 to 0.98``."""
    show = signed if difference else number
    return f"{show(measured.low, measured.unit)} to {show(measured.high, measured.unit)}".replace(
        f"{_THIN}{measured.unit} to", " to"
    )


def interval(measured: Measurement, *, difference: bool = False) -> str:
    """Value with its interval and the number of items behind it."""
    show = signed if difference else number
    text = f"{show(measured.value, measured.unit)} ({bounds(measured, difference=difference)})"
    return f"{text}, n = {measured.num_items}"


def compact(value: float) -> str:
    """For axes: as short as it can be without lying."""
    if abs(value) >= 1_000_000:
        return f"{value / 1_000_000:.3g}M"
    if abs(value) >= 10_000:
        return f"{value / 1_000:.3g}k"
    return f"{value:.3g}".replace("-", _MINUS)
