"""The interval record, and the checks of arguments that all of this package shares."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flightschool.errors import InputError
from flightschool.records import Record

__all__ = ["Interval", "check_finite", "check_level"]


class Interval(Record, frozen=True, kw_only=True):
    """An estimate with its interval."""

    value: float
    low: float
    high: float
    num_items: int
    """Items that the estimate rests on."""
    method: str
    """How the interval was made, with what a reader must know to judge it."""
    level: float = 0.95
    """Nominal coverage."""

    def excludes(self, value: float) -> bool:
        """Whether ``value`` lies outside the closed interval."""
        return not self.low <= value <= self.high


def check_level(level: float) -> None:
    """Refuse a level outside (0, 1). Raises ``InputError``."""
    if not 0.0 < level < 1.0:
        raise InputError(
            f"{level!r} is no confidence level", where="level", expected="between 0 and 1", mend="use 0.95"
        )


def check_proportion(successes: int, total: int) -> None:
    """Refuse what is no share of some items. Raises ``InputError``."""
    if not 0 <= successes <= total or total == 0:
        raise InputError(
            f"{successes} successes of {total} is no proportion",
            expected="0 ≤ successes ≤ total and at least one item",
            mend="measure at least one item",
        )


def check_finite(values: Sequence[float], name: str) -> None:
    """Refuse an empty sequence, NaN and infinities. Raises ``InputError``."""
    if len(values) == 0:
        raise InputError("no values to compute with", where=name, expected="at least one", mend="measure first")
    for position, value in enumerate(values):
        if not math.isfinite(value):
            raise InputError(
                f"{value!r} is not a finite number",
                where=f"{name}[{position}]",
                expected="finite numbers; infrastructure failures have no value and are left out by the caller",
                mend="leave out attempts without a reward, and count them beside the result",
            )
