"""Scalable drawings as escaped text: the smallest builder that the charts need.

Colours are classes, not values: the page's style sheet gives them for light, dark and print.
"""

from __future__ import annotations

import math

from markupsafe import Markup, escape

__all__ = ["element", "nice_ticks", "path_of", "svg"]


def element(tag: str, *children: str | Markup, **attributes: str | float) -> Markup:
    """One element. Underscores in attribute names become hyphens, ``cls`` is ``class``; everything is escaped."""
    named = ((("class" if key == "cls" else key.replace("_", "-")), value) for key, value in attributes.items())
    written = "".join(f' {key}="{escape(_short(value))}"' for key, value in named)
    return Markup("<{0}{1}>{2}</{0}>").format(tag, Markup(written), Markup("").join(children))


def svg(width: float, height: float, label: str, *children: Markup, cls: str = "chart") -> Markup:
    """A drawing that scales with its column and tells screen readers what it shows."""
    return element(
        "svg", *children, viewBox=f"0 0 {_short(width)} {_short(height)}", role="img", aria_label=label, cls=cls
    )


def path_of(points: list[tuple[float, float]]) -> str:
    """Path data of a polyline."""
    return "M" + "L".join(f"{_short(x)},{_short(y)}" for x, y in points)


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) from at or below ``low`` to at or above ``high``."""
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError("ticks need finite bounds")
    if high <= low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((factor * power for factor in (1, 2, 5) if factor * power >= rough * (1 - 1e-9)), 10 * power)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def _short(value: str | float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
