"""A pass rate freed of the verifier's errors: what share of the work is right, and not only what share passed.

*Rogan–Gladen* (W. Rogan and B. Gladen, American Journal of Epidemiology 107, 1978), from error rates that were
measured elsewhere, on attempts under the same checks. Of a share p of right work, q = p (1 − ρ1) + (1 − p) ρ0 passes,

    p = (q − ρ0) / (1 − ρ0 − ρ1),   kept within 0..1.

*Prediction-powered* (A. Angelopoulos et al., Science 382, 2023), where attempts of this very pool were reviewed: the
pass rate plus what people say of a sample minus what the verifier says of it. With cells of stratum and verdict drawn
at known rates that is the double-sampling estimator Σ_c (size_c / N) · (right share of c)  (A. Tenenbein, Journal of
the American Statistical Association 65, 1970). It assumes nothing of other pools and is to be preferred.

Both intervals are made by squaring and adding (G. Zou and A. Donner, Statistics in Medicine 27, 2008): the distances
that the estimate moves when one ingredient alone goes to its bound are independent errors, so

    low = p − √( Σ_k (p − p with ingredient k at its unfavourable bound)² ),   and high alike.

It keeps the ingredients' asymmetry, which a standard error would lose near 0. Simulated coverage of nominal 95 %:
see the tests.

A *difference* of two pass rates under one verifier is freed alike: q' − q = (p' − p) (1 − ρ0 − ρ1), so the errors
shrink it and never turn it. That holds as long as the verifier errs as often on the work of both; a policy that learned
to please the verifier has another ρ0, which labels of *its* attempts would show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flightschool.errors import InputError
from flightschool.statistics.interval import Interval
from flightschool.statistics.verifier_error import Reviewed, right_share

__all__ = ["corrected_difference", "corrected_rate", "reviewed_rate"]


def corrected_rate(rate: Interval, rho0: Interval, rho1: Interval) -> Interval:
    """Share of right work behind a pass rate.

    By hand, q = 0.62 (0.5 to 0.74), ρ0 = 0.1 (0.05 to 0.2), ρ1 = 0.2 (0.1 to 0.3): p = 0.52 / 0.7 = 0.743. With q at
    0.5 it is 0.571, with ρ0 at 0.2 0.7, with ρ1 at 0.1 0.65: low = 0.743 − √(0.171² + 0.043² + 0.093²) = 0.543.

    Args:
        rate: of passes, with its interval.
        rho0: P(passed | wrong).
        rho1: P(not passed | right).

    Raises:
        InputError: ρ0 + ρ1 ≥ 1: such a verifier's passes say nothing of the work.
    """
    _require_signal(rho0, rho1)
    value = _right(rate.value, rho0.value, rho1.value)
    worse = [
        (rate.low, rho0.value, rho1.value),
        (rate.value, rho0.high, rho1.value),
        (rate.value, rho0.value, rho1.low),
    ]
    better = [
        (rate.high, rho0.value, rho1.value),
        (rate.value, rho0.low, rho1.value),
        (rate.value, rho0.value, rho1.high),
    ]
    below = math.hypot(*(max(0.0, value - _right(*one)) for one in worse))
    above = math.hypot(*(max(0.0, _right(*one) - value) for one in better))
    return Interval(
        value=min(1.0, max(0.0, value)),
        low=min(1.0, max(0.0, value - below)),
        high=min(1.0, max(0.0, value + above)),
        num_items=rate.num_items,
        method=f"rogan-gladen, ρ0 {rho0.value:.3f}, ρ1 {rho1.value:.3f}, squared and added; raw: {rate.method}",
        level=rate.level,
    )


def _right(rate: float, rho0: float, rho1: float) -> float:
    """P before it is kept within 0..1; at bounds where the verdict holds no signal, the end that it tends to."""
    signal = 1.0 - rho0 - rho1
    if signal <= 0.0:
        return 1.0 if rate >= rho0 else 0.0
    return (rate - rho0) / signal


def corrected_difference(difference: Interval, rho0: Interval, rho1: Interval) -> Interval:
    """Difference of the shares of right work behind a difference of pass rates, kept within −1..1.

    By hand, 0.21 (0.07 to 0.35), ρ0 = 0.1 (0.05 to 0.2), ρ1 = 0.2 (0.1 to 0.3): 0.21 / 0.7 = 0.3. With the difference
    at 0.07 it is 0.1, with ρ0 at 0.05 0.28, with ρ1 at 0.1 0.2625: low = 0.3 − √(0.2² + 0.02² + 0.0375²) = 0.0955.
    Since the errors only shrink, a difference that is surely above 0 is at least what was seen.

    Args:
        difference: of pass rates, with its interval.
        rho0: P(passed | wrong), of both.
        rho1: P(not passed | right), of both.

    Raises:
        InputError: ρ0 + ρ1 ≥ 1: such a verifier's passes say nothing of the work.
    """
    _require_signal(rho0, rho1)
    value = _apart(difference.value, rho0.value, rho1.value)
    by_ingredient = (
        [_apart(bound, rho0.value, rho1.value) for bound in (difference.low, difference.high)],
        [_apart(difference.value, bound, rho1.value) for bound in (rho0.low, rho0.high)],
        [_apart(difference.value, rho0.value, bound) for bound in (rho1.low, rho1.high)],
    )
    low = value - math.hypot(*(max(0.0, value - min(bounds)) for bounds in by_ingredient))
    high = value + math.hypot(*(max(0.0, max(bounds) - value) for bounds in by_ingredient))
    if difference.low > 0.0:
        low = max(low, difference.low)
    if difference.high < 0.0:
        high = min(high, difference.high)
    return Interval(
        value=value,
        low=max(-1.0, low),
        high=min(1.0, high),
        num_items=difference.num_items,
        method=f"rogan-gladen, ρ0 {rho0.value:.3f}, ρ1 {rho1.value:.3f}, squared and added; raw: {difference.method}",
        level=difference.level,
    )


def _require_signal(rho0: Interval, rho1: Interval) -> None:
    if rho0.value + rho1.value >= 1.0:
        raise InputError(
            f"a pass rate cannot be corrected with ρ0 = {rho0.value:.3f} and ρ1 = {rho1.value:.3f}",
            where="corrected_rate",
            expected="error rates whose sum is below 1",
            mend="mend the verifier: at a sum of 1 or more its verdict holds no signal",
        )


def _apart(difference: float, rho0: float, rho1: float) -> float:
    """Difference within −1..1; at bounds where the verdict holds no signal, the end that it tends to."""
    signal = 1.0 - rho0 - rho1
    if signal <= 0.0:
        return math.copysign(1.0, difference) if difference else 0.0
    return min(1.0, max(-1.0, difference / signal))


def reviewed_rate(rate: Interval, labels: Sequence[Reviewed], *, seed: int = 0) -> Interval:
    """Share of right work in a pool of which a sample was reviewed.

    By hand: 100 passes, of which 10 are reviewed and 9 right; 50 failures, 10 reviewed and 1 right. Right are
    (100 · 0.9 + 50 · 0.1) / 150 = 0.633, where the pass rate is 0.667.

    Args:
        rate: of passes in the whole pool; its interval says how far the pool speaks for others of its kind.
        labels: all reviewed attempts of the pool, with the probability with which each came to be labelled.
        seed: of the posterior's draws.

    Raises:
        InputError: nothing was reviewed, or an inclusion probability is none.
    """
    share = right_share(labels, level=rate.level, seed=seed)
    below = math.hypot(share.value - share.low, rate.value - rate.low)
    above = math.hypot(share.high - share.value, rate.high - rate.value)
    return Interval(
        value=share.value,
        low=max(0.0, share.value - below),
        high=min(1.0, share.value + above),
        num_items=rate.num_items,
        method=f"prediction-powered, {len(labels)} reviewed, squared and added; raw: {rate.method}",
        level=rate.level,
    )
