"""Beta, F and Student quantiles in plain Python: the few that intervals here need, without a numerical library.

The regularised incomplete beta function by its continued fraction (modified Lentz; Press et al., Numerical Recipes,
3rd ed., 6.4), quantiles by bisection. Good to about 1e-12; tested against an independent library where one is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from flightschool.errors import InputError

__all__ = ["beta_cdf", "beta_quantile", "f_quantile", "student_quantile"]

_TINY = 1e-300
_EPSILON = 1e-15
_MOST_STEPS = 2000


def beta_cdf(x: float, a: float, b: float) -> float:
    """P(B ≤ x) for B ~ Beta(a, b). Raises ``InputError`` unless a and b are positive."""
    if not (a > 0 and b > 0):
        raise InputError(f"Beta({a}, {b})", where="beta_cdf", expected="positive shapes", mend="correct them")
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):  # where the fraction converges fast
        return front * _fraction(x, a, b) / a
    return 1.0 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    value = d
    for m in range(1, _MOST_STEPS):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + numerator * d
            c = 1.0 + numerator / c
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = c if abs(c) > _TINY else _TINY
            value *= d * c
        if abs(d * c - 1.0) < _EPSILON:
            break
    return value


def beta_quantile(probability: float, a: float, b: float) -> float:
    """X with P(B ≤ x) = probability for B ~ Beta(a, b)."""
    return _bisect(lambda x: beta_cdf(x, a, b), probability, 0.0, 1.0)


def f_quantile(probability: float, numerator: float, denominator: float) -> float:
    """Quantile of the F distribution with these degrees of freedom, from X = d1·F / (d1·F + d2) ~ Beta(d1/2, d2/2)."""
    x = beta_quantile(probability, numerator / 2, denominator / 2)
    return math.inf if x >= 1 else denominator * x / (numerator * (1 - x))


def student_quantile(probability: float, freedom: float) -> float:
    """Quantile of Student's t: t² ~ F(1, freedom)."""
    if probability < 0.5:
        return -student_quantile(1 - probability, freedom)
    return math.sqrt(f_quantile(2 * probability - 1, 1.0, freedom))


def _bisect(cdf: Callable[[float], float], probability: float, low: float, high: float) -> float:
    if not 0 <= probability <= 1:
        raise InputError(
            f"{probability} is no probability", where="quantile", expected="between 0 and 1", mend="correct it"
        )
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if cdf(middle) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2
