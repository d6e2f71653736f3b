"""When two numbers are the same: whole numbers exactly, others but for the noise of floats, or as was declared."""

from __future__ import annotations

import math

from flightschool.records import FLOAT_NOISE

__all__ = ["by_value", "is_close"]

_LARGEST_WHOLE = 2**53
"""From here on a float has no place for units: that it is whole says nothing."""


def is_close(found: float, expected: float, *, tolerance: float, relative: float) -> bool:
    """Whether a found number is the expected one, by the larger of two bounds.

    The default of ``relative`` is made for floats: where an integer is expected and a whole number was found (``7`` or
    ``7.0``), it counts as 0. Ids and amounts of more than nine digits would else stand for their neighbours.
    """
    try:
        if not math.isfinite(found):
            return False
        exact = relative == FLOAT_NOISE and isinstance(expected, int) and _is_whole(found)
        return abs(found - expected) <= (tolerance if exact else max(tolerance, relative * abs(expected)))
    except OverflowError:  # integers beyond the range of floats
        return found == expected


def by_value(number: float) -> float | int:
    """A finite number in a form that is equal for equal ones: whole ones as they are, others to nine digits."""
    nearest = round(number)
    if isinstance(number, int) or (abs(nearest) < _LARGEST_WHOLE and math.isclose(number, nearest, rel_tol=1e-14)):
        return nearest
    short = float(f"{number:.9g}")
    return int(short) if short.is_integer() else short


def _is_whole(number: float) -> bool:
    return isinstance(number, int) or (number.is_integer() and abs(number) < _LARGEST_WHOLE)
