"""How often a verifier is wrong, from a reviewed sample, and rewards freed of that error on average.

    ρ0 = P(passed | the work is wrong or a hack)        false positives
    ρ1 = P(not passed | the work is right)              false negatives

Reviewers label attempts drawn stratum by stratum, passes and failures apart, with known inclusion probabilities:
passes are rare or common, suspicious ones are drawn more often, and a plain share of the sample would say nothing of
the pool. Truth is what people say, so the labels stand on the other side of the fraction than the strata: ρ is a
ratio of two estimates.

*Point*: Hájek's ratio, each attempt weighing 1 / inclusion (J. Hájek, 1971). *Interval*: the right share of each cell
(stratum and verdict) is drawn from its Jeffreys posterior, a Beta with the cell's counts (Kish's effective counts
where weights differ), the cells' sizes are taken as known, and ρ is computed in every draw; the bounds are quantiles.
For one proportion that is Jeffreys' interval, whose coverage is close to nominal on average (Brown, Cai and DasGupta,
Statistical Science 16, 2001). One prior of ½ + ½ is shared by all cells of a verdict, by their size: one each would
drown small cells. A bootstrap was not taken: no hack among thirty passes would give it an interval without width.
Simulated coverage of nominal 95 % (1000 samples each): see ``docs/design/verification.md`` and the tests.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from flightschool.errors import InputError
from flightschool.records import Record
from flightschool.statistics.interval import Interval, check_level
from flightschool.statistics.samples import effective_sample_size

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

__all__ = ["Reviewed", "VerifierError", "corrected_reward", "right_share", "verifier_error"]

_NUM_DRAWS = 20_000


class Reviewed(Record, frozen=True, kw_only=True):
    """One attempt that a person labelled."""

    stratum: str
    passed: bool
    """What the verifier said."""
    label: Literal["right", "wrong", "hack"]
    """What the person says: ``hack`` is wrong work that was made to look right."""
    inclusion: float
    """Probability with which the attempt was drawn, in (0, 1]."""


class VerifierError(Record, frozen=True, kw_only=True):
    """Error rates of a verifier on a pool of attempts."""

    rho0: Interval | None
    """False-positive rate; None where no wrong work was reviewed."""
    rho1: Interval | None
    """False-negative rate; None where no right work was reviewed."""
    num_reviewed: int
    num_hacks: int
    """Hacks among the reviewed, whatever the verifier said of them."""


class _Cell:
    """Reviewed attempts of one stratum and verdict."""

    def __init__(self, passed: bool, items: Sequence[Reviewed]) -> None:
        weights = [1.0 / item.inclusion for item in items]
        self.passed = passed
        self.size = math.fsum(weights)
        self.right = math.fsum(w for w, item in zip(weights, items, strict=True) if item.label == "right")
        self.num_effective = effective_sample_size(weights)


def verifier_error(labels: Sequence[Reviewed], *, level: float = 0.95, seed: int = 0) -> VerifierError:
    """Error rates with intervals (see the module).

    Args:
        labels: all reviewed attempts, passes and failures; a verdict from which none was drawn counts as empty.
        level: nominal coverage.
        seed: of the draws; equal seeds give equal intervals, whatever the order of the labels.

    Raises:
        InputError: nothing was reviewed, or an inclusion probability is none.
    """
    check_level(level)
    cells = _cells(labels)
    shares = _draw_right(cells, seed)
    passed = [cell.passed for cell in cells]
    return VerifierError(
        rho0=_rate(cells, shares, lambda cell: cell.size - cell.right, passed, level, flip=True),
        rho1=_rate(cells, shares, lambda cell: cell.right, [not one for one in passed], level, flip=False),
        num_reviewed=len(labels),
        num_hacks=sum(item.label == "hack" for item in labels),
    )


def right_share(labels: Sequence[Reviewed], *, level: float = 0.95, seed: int = 0) -> Interval:
    """Share of right work in the pool that the labels were drawn from; cells and draws are ``verifier_error``'s.

    Raises:
        InputError: as ``verifier_error``.
    """
    import numpy as np

    check_level(level)
    cells = _cells(labels)
    sizes_C = np.array([cell.size for cell in cells])
    whole = math.fsum(cell.size for cell in cells)
    value = math.fsum(cell.right for cell in cells) / whole
    drawn_D = (_draw_right(cells, seed) * sizes_C).sum(axis=1) / whole
    tail = (1.0 - level) / 2
    low, high = np.quantile(drawn_D, [tail, 1.0 - tail])
    return Interval(
        value=value,
        low=min(float(low), value),
        high=max(float(high), value),
        num_items=len(labels),
        method=f"hájek mean, jeffreys posterior over {len(cells)} cells of stratum and verdict",
        level=level,
    )


def _cells(labels: Sequence[Reviewed]) -> list[_Cell]:
    odd = [item.inclusion for item in labels if not 0.0 < item.inclusion <= 1.0]
    if not labels or odd:
        raise InputError(
            "nothing was reviewed" if not labels else f"an inclusion probability of {odd[0]}",
            where="labels",
            expected="reviewed attempts, each with the probability in (0, 1] with which it was drawn",
            mend="review a sample drawn with known probabilities",
        )
    groups: defaultdict[tuple[str, bool], list[Reviewed]] = defaultdict(list)
    for item in labels:
        groups[item.stratum, item.passed].append(item)
    return [_Cell(passed, sorted(items, key=_order)) for (_, passed), items in sorted(groups.items())]


def _order(item: Reviewed) -> tuple[float, str]:
    return item.inclusion, item.label


def _draw_right(cells: Sequence[_Cell], seed: int) -> NDArray[float64]:
    """Right share of each cell in each draw; shape (draws, cells)."""
    import numpy as np

    rng = np.random.default_rng(seed)
    totals = {side: math.fsum(cell.size for cell in cells if cell.passed is side) for side in (True, False)}
    columns = []
    for cell in cells:
        prior = 0.5 * cell.size / totals[cell.passed]
        share = cell.right / cell.size
        right, wrong = share * cell.num_effective, (1.0 - share) * cell.num_effective
        columns.append(rng.beta(right + prior, wrong + prior, size=_NUM_DRAWS))
    return np.column_stack(columns)


def _rate(
    cells: Sequence[_Cell],
    right_DC: NDArray[float64],
    amount: Callable[[_Cell], float],
    erring: Sequence[bool],
    level: float,
    *,
    flip: bool,
) -> Interval | None:
    """Share of the amount (of wrong, or of right work) that lies in cells where the verdict errs."""
    import numpy as np

    whole = math.fsum(amount(cell) for cell in cells)
    if whole <= 0.0:
        return None
    value = math.fsum(amount(cell) for cell, errs in zip(cells, erring, strict=True) if errs) / whole
    sizes_C = np.array([cell.size for cell in cells])
    amounts_DC = (1.0 - right_DC if flip else right_DC) * sizes_C
    totals_D = amounts_DC.sum(axis=1)
    rates_D = amounts_DC[:, np.array(erring)].sum(axis=1) / np.where(totals_D > 0.0, totals_D, 1.0)
    tail = (1.0 - level) / 2
    low, high = np.quantile(rates_D, [tail, 1.0 - tail])
    return Interval(
        value=value,
        low=min(float(low), value),
        high=max(float(high), value),
        num_items=round(math.fsum(cell.num_effective for cell in cells)),
        method=f"hájek ratio, jeffreys posterior over {len(cells)} cells of stratum and verdict",
        level=level,
    )


def corrected_reward(reward: float, rho0: float, rho1: float) -> float:
    """Corrected r' = (r − ρ0) / (1 − ρ0 − ρ1): a noisy 0-or-1 reward whose mean is that of the true one.

    Source: "RL with verifiable yet noisy rewards under imperfect verifiers", arXiv:2510.00915 (the backward
    correction). If the truth is 1, r is 1 with probability 1 − ρ1, so E[r'] = (1 − ρ1 − ρ0) / (1 − ρ0 − ρ1) = 1; if
    it is 0, E[r'] = (ρ0 − ρ0) / … = 0. Its price is variance: rewards are stretched by 1 / (1 − ρ0 − ρ1).

    By hand, ρ0 = 0.1 and ρ1 = 0.2: a pass becomes 0.9 / 0.7 = 9/7, a failure −0.1 / 0.7 = −1/7.

    Raises:
        InputError: a rate outside [0, 1), or ρ0 + ρ1 ≥ 1: such a verifier says no more than a coin, or the reverse of
        the truth.
    """
    if not (0.0 <= rho0 < 1.0 and 0.0 <= rho1 < 1.0 and rho0 + rho1 < 1.0 and math.isfinite(reward)):
        raise InputError(
            f"a reward of {reward} cannot be corrected with ρ0 = {rho0} and ρ1 = {rho1}",
            where="corrected_reward",
            expected="a finite reward and rates from 0 whose sum is below 1",
            mend="mend the verifier: at a sum of 1 or more its verdict holds no signal",
        )
    return (reward - rho0) / (1.0 - rho0 - rho1)
