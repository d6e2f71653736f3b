"""How often a reference must be played, and always agree, to exclude a flake rate."""

from __future__ import annotations

import math

from flightschool.errors import InputError

__all__ = ["repeats_to_exclude"]


def repeats_to_exclude(rate: float, level: float = 0.95) -> int:
    """Plays without a failure after which a flake rate of ``rate`` or more is excluded.

    The exact bound of C. J. Clopper and E. S. Pearson (Biometrika 26, 1934) for no failure in n plays is
    1 - (1 - level)^(1/n); it is at most ``rate`` from n = log(1 - level) / log(1 - rate) on: 29 for 0.1, 59 for 0.05.

    Raises:
        InputError: the rate is not between 0 and 1.
    """
    if not 0.0 < rate < 1.0:
        raise InputError(
            "no number of plays excludes that rate",
            where=f"--flake-rate {rate:g}",
            expected="a rate above 0 and below 1",
            mend="0.05 takes 59 plays of each reference",
        )
    return max(2, math.ceil(math.log(1.0 - level) / math.log1p(-rate) - 1e-9))
