"""How far several raters agree beyond chance: kappas of Cohen and Fleiss, and Krippendorff's alpha.

Labels are any hashable values. Which to use: Cohen's for two raters who rated everything, Fleiss' for a fixed number of
interchangeable raters, alpha where ratings are missing or have an order.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Literal, TypeAlias

from flightschool.errors import InputError

__all__ = ["Level", "cohen_kappa", "fleiss_kappa", "krippendorff_alpha"]

Level: TypeAlias = Literal["nominal", "ordinal", "interval"]


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """κ = (p_o − p_e) / (1 − p_e), with p_e from each rater's own shares (J. Cohen, 1960).

    1: agreement on all; 0: as much as two raters with these shares reach by chance. NaN where both gave one and the
    same label throughout: chance alone gives full agreement then, and nothing can be said.

    Raises:
        InputError: nothing rated, or lengths differ.
    """
    if not first or len(first) != len(second):
        raise InputError(
            f"{len(first)} and {len(second)} labels",
            where="cohen_kappa",
            expected="two labels for each item, at least one item",
            mend="pair the labels by item",
        )
    size = len(first)
    observed = sum(a == b for a, b in zip(first, second, strict=True)) / size
    left, right = Counter(first), Counter(second)
    expected = math.fsum(left[label] * right[label] for label in left) / size**2
    return math.nan if expected == 1.0 else (observed - expected) / (1.0 - expected)


def fleiss_kappa(ratings: Sequence[Sequence[Hashable]]) -> float:
    """Fleiss' κ of ``ratings[item][rater]``; raters are interchangeable (J. Fleiss, Psychological Bulletin 76, 1971).

    NaN where only one label was ever given.

    Raises:
        InputError: no items, fewer than two ratings, or not the same number for all items.
    """
    num_raters = len(ratings[0]) if ratings else 0
    if num_raters < 2 or any(len(row) != num_raters for row in ratings):
        raise InputError(
            "items do not have the same number of ratings, two or more",
            where="fleiss_kappa",
            expected="a table without gaps",
            mend="use krippendorff_alpha where ratings are missing",
        )
    counts = [Counter(row) for row in ratings]
    pairs = num_raters * (num_raters - 1)
    observed = math.fsum(sum(n * (n - 1) for n in row.values()) / pairs for row in counts) / len(ratings)
    totals: Counter[Hashable] = sum(counts, Counter())
    size = num_raters * len(ratings)
    expected = math.fsum((n / size) ** 2 for n in totals.values())
    return math.nan if expected == 1.0 else (observed - expected) / (1.0 - expected)


def krippendorff_alpha(
    ratings: Sequence[Sequence[Hashable | None]], level: Level = "nominal", order: Sequence[Hashable] = ()
) -> float:
    """α = 1 − D_o / D_e of ``ratings[item][rater]``; None is missing (K. Krippendorff, Content Analysis, 2004).

    D_o is the mean difference of the pairs of ratings of one item (each item's pairs weighing 1 / (m − 1)), D_e that
    of all pairs. Differences: 0 or 1 (``nominal``); squared difference of numbers (``interval``); squared number of
    ratings between the two, half of the ends' own included (``ordinal``; ``order`` names the labels from low to high,
    numbers sort themselves). NaN where all ratings are the same.

    Raises:
        InputError: no item has two ratings; labels that are no numbers at a level that needs them.
    """
    units = [[label for label in row if label is not None] for row in ratings]
    units = [row for row in units if len(row) >= 2]
    if not units:
        raise InputError(
            "no item was rated twice", where="krippendorff_alpha", expected="at least one", mend="have more rated"
        )
    coincidences: defaultdict[tuple[Hashable, Hashable], float] = defaultdict(float)
    for row in units:
        counts = Counter(row)
        for a in counts:
            for b in counts:
                coincidences[a, b] += counts[a] * (counts[b] - (a == b)) / (len(row) - 1)
    totals: defaultdict[Hashable, float] = defaultdict(float)
    for (a, _), share in coincidences.items():
        totals[a] += share
    distance = _distance(level, totals, order)
    size = math.fsum(totals.values())
    observed = math.fsum(share * distance(a, b) for (a, b), share in coincidences.items()) / size
    by_chance = math.fsum(totals[a] * totals[b] * distance(a, b) for a in totals for b in totals) / (size * (size - 1))
    return math.nan if by_chance == 0.0 else 1.0 - observed / by_chance


def _distance(
    level: Level, totals: Mapping[Hashable, float], order: Sequence[Hashable]
) -> Callable[[Hashable, Hashable], float]:
    if level == "nominal":
        return lambda a, b: float(a != b)
    numbers: dict[Hashable, float] = {
        label: float(label) for label in totals if isinstance(label, int | float) and math.isfinite(label)
    }
    if level == "interval" or not order:
        if len(numbers) < len(totals):
            raise InputError(
                "labels that are no numbers have no order",
                where="krippendorff_alpha",
                expected="finite numbers, or order",
                mend="use nominal, or name the order",
            )
        if level == "interval":
            return lambda a, b: (numbers[a] - numbers[b]) ** 2
    ranked = list(order) if order else sorted(totals, key=lambda label: numbers[label])
    if set(totals) - set(ranked):
        raise InputError(
            "a label is not in the order", where="krippendorff_alpha", expected="all labels", mend="name them all"
        )
    place = {label: i for i, label in enumerate(ranked)}

    def ordinal(a: Hashable, b: Hashable) -> float:
        low, high = sorted((place[a], place[b]))
        between = math.fsum(totals.get(label, 0.0) for label in ranked[low : high + 1])
        return (between - (totals.get(a, 0.0) + totals.get(b, 0.0)) / 2) ** 2

    return ordinal
