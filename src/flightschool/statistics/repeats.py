"""Several attempts at each task: pass@k, pass^k and their means.

Both are unbiased for n ≥ k attempts of which c succeeded (M. Chen et al., arXiv 2107.03374, for pass@k; S. Yao et al.,
arXiv 2406.12045, for pass^k). Raising the observed rate to the power k is not: 4 of 8 gives .0625 for pass^4 where the
unbiased value is .014.
"""

from __future__ import annotations

import math

from flightschool.errors import InputError

__all__ = ["pass_at_k", "pass_hat_k"]


def pass_at_k(successes: int, attempts: int, k: int) -> float:
    """Probability that at least one of k attempts succeeds: 1 − C(n−c, k) / C(n, k).

    Raises:
        InputError: k outside 1..n, or successes outside 0..n.
    """
    _check(successes, attempts, k)
    return 1.0 - math.comb(attempts - successes, k) / math.comb(attempts, k)


def pass_hat_k(successes: int, attempts: int, k: int) -> float:
    """Probability that all of k attempts succeed: C(c, k) / C(n, k).

    Raises:
        InputError: as ``pass_at_k``.
    """
    _check(successes, attempts, k)
    return math.comb(successes, k) / math.comb(attempts, k)


def _check(successes: int, attempts: int, k: int) -> None:
    if not (1 <= k <= attempts and 0 <= successes <= attempts):
        raise InputError(
            f"{successes} of {attempts} attempts tell nothing of {k}",
            where="pass@k",
            expected="1 ≤ k ≤ attempts and 0 ≤ successes ≤ attempts",
            mend=f"measure with --repeats {max(k, 1)} or more",
        )
