"""What a whole suite would show, from the items drawn so far: a confidence sequence for sampling without replacement.

A frozen suite is a finite population: N items, drawn in random order, none twice. Betting (I. Waudby-Smith and
A. Ramdas, "Confidence sequences for sampling without replacement", NeurIPS 2020, and "Estimating means of bounded
random variables by betting", JRSS B 86, 2024): if the mean of all N values were m, the t-th one drawn would have the
mean

    μ_t(m) = (N·m − Σ_{i<t} x_i) / (N − t + 1)

given those before. Staking the share b of one's capital on "more" multiplies it by 1 − b + b·x/μ_t, on "less" by
1 − b + b·(1 − x)/(1 − μ_t): a fair game if m is right, so the capital reaches 1/α with probability α at most, *at any
time* (Ville 1939). Every m against which a gambler has become that rich is ruled out, and stays so. The capital here is
the average over both sides and over several shares b, which needs no tuning.

Two facts that an interval for independent draws does not know: what was drawn bounds what is left, so the interval
has no width once all items are drawn; and families do not matter, since the order of drawing is what is random. It
speaks about this suite and these attempts, not about other suites.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flightschool.errors import InputError
from flightschool.statistics.interval import Interval, check_finite, check_level

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

__all__ = ["FinitePopulation"]

BETS = (0.05, 0.1, 0.2, 0.35, 0.55, 0.8)
"""Shares of the capital that are staked, side by side: small ones for means that are nearly right, large ones for means
that are far off or populations with little variation."""
GRID = 2_000
"""Means that are tested; the interval is one step wider than what is left of them."""
_SLACK = 1e-9


class FinitePopulation:
    """A confidence sequence for the mean of N bounded values drawn in random order.

    Args:
        size: N.
        low: least possible value.
        high: largest possible value.
        level: coverage, over all times together.
        bets: shares of the capital that are staked, side by side.

    Raises:
        InputError: no items, no range, or shares outside (0, 1).
    """

    def __init__(
        self,
        size: int,
        low: float = 0.0,
        high: float = 1.0,
        *,
        level: float = 0.95,
        bets: Sequence[float] = BETS,
    ) -> None:
        import numpy as np

        check_level(level)
        fine = size >= 1 and math.isfinite(low) and math.isfinite(high) and low < high
        if not fine or not bets or not all(0 < bet < 1 for bet in bets):
            raise InputError(
                f"{size} items between {low} and {high}, stakes {tuple(bets)}",
                where="FinitePopulation",
                expected="one item or more, low < high, stakes between 0 and 1",
                mend="correct them",
            )
        self.size, self.low, self.high, self.level = size, low, high, level
        self._means_M: NDArray[float64] = np.linspace(0.0, 1.0, GRID + 1)
        self._bets_B: NDArray[float64] = np.asarray(bets, dtype=np.float64)
        self._more_BM: NDArray[float64] = np.zeros((len(bets), GRID + 1))
        """Logarithm of the capital staked on "more than m"."""
        self._less_BM: NDArray[float64] = np.zeros_like(self._more_BM)
        self._out_M = np.zeros(GRID + 1, dtype=bool)
        self._sum, self._num = 0.0, 0

    def draw(self, value: float) -> Interval:
        """One more value; what is known of the mean of all.

        Raises:
            InputError: a value out of range, or more values than items.
        """
        import numpy as np

        check_finite([value], "value")
        if not self.low <= value <= self.high or self._num == self.size:
            raise InputError(
                f"value {value} after {self._num} of {self.size}",
                where="FinitePopulation",
                expected=f"at most {self.size} values between {self.low} and {self.high}",
                mend="give the range and the number of items beforehand",
            )
        x = (value - self.low) / (self.high - self.low)
        left = self.size - self._num
        now_M = (self.size * self._means_M - self._sum) / left
        self._out_M |= (now_M < -_SLACK) | (now_M > 1 + _SLACK)
        now_M = np.clip(now_M, 0.0, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            self._more_BM += self._gain(np.where(now_M > 0, x / now_M, 1.0 if x == 0 else np.inf))
            self._less_BM += self._gain(np.where(now_M < 1, (1 - x) / (1 - now_M), 1.0 if x == 1 else np.inf))
        capital_M = np.logaddexp.reduce(np.concatenate([self._more_BM, self._less_BM]), axis=0)
        self._out_M |= capital_M - math.log(2 * len(self._bets_B)) >= -math.log(1 - self.level)
        self._sum, self._num = self._sum + x, self._num + 1
        return self.interval

    @property
    def interval(self) -> Interval:
        """What is known now; the value is the mean of what was drawn."""
        span, step = self.high - self.low, 1 / GRID
        # What was drawn is certain, and the rest lies within its range. The capital is convex in m, so the means that
        # are left are an interval, whose ends lie at most a step beyond the outermost ones of the grid.
        least, most = self._sum / self.size, (self._sum + self.size - self._num) / self.size
        possible_M = (self._means_M >= least - step) & (self._means_M <= most + step)
        kept_K = self._means_M[~self._out_M & possible_M]
        low = max(least, float(kept_K[0]) - step) if len(kept_K) else least
        high = min(most, float(kept_K[-1]) + step) if len(kept_K) else most
        return Interval(
            value=self.low + span * (self._sum / self._num if self._num else 0.5),
            low=self.low + span * low,
            high=self.low + span * high,
            num_items=self._num,
            method=f"betting without replacement, {self._num} of {self.size} items",
            level=self.level,
        )

    def _gain(self, ratio_M: NDArray[float64]) -> NDArray[float64]:
        """Logarithm of 1 − b + b·ratio for every stake; shape (stakes, means)."""
        import numpy as np

        gain_BM: NDArray[float64] = np.log((1 - self._bets_B)[:, None] + self._bets_B[:, None] * ratio_M[None, :])
        return gain_BM
