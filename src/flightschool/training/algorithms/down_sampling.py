"""Which members of a group are trained on when training costs more than sampling.

Of the advantages of a group, the subset of ``m`` with the largest variance always consists of the ``m − k`` smallest
and the ``k`` largest for some ``k`` (Xu et al. 2025, "Not all rollouts are useful", arXiv:2504.13818). Advantages are
made from the *whole* group before, so the baseline keeps all the evidence; members left out are consumed without a
gradient of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import pvariance

__all__ = ["most_spread"]


def most_spread(values: Sequence[float], limit: int) -> list[int]:
    """Indices, ascending, of the ``limit`` values with the largest variance; all of them if there are not more.

    Ties are broken by position, and between equal variances towards more of the largest, so the choice is determined.

    Raises:
        ValueError: ``limit`` is below 2: one value has no variance.
    """
    if limit < 2:
        raise ValueError("a variance needs at least two members")
    if len(values) <= limit:
        return list(range(len(values)))
    order = sorted(range(len(values)), key=lambda i: (values[i], i))
    subsets = [[*order[: limit - k], *order[len(order) - k :]] for k in range(limit, -1, -1)]
    return sorted(max(subsets, key=lambda subset: pvariance([values[i] for i in subset])))
