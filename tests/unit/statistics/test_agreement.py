"""Agreement beyond chance: published examples, definitions by brute force, and libraries where there are any."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import needs

from flightschool.errors import InputError
from flightschool.statistics import cohen_kappa, fleiss_kappa, krippendorff_alpha

LEVELS: tuple[Literal["nominal", "ordinal", "interval"], ...] = ("nominal", "ordinal", "interval")


def test_cohens_kappa_by_hand() -> None:
    """50 proposals: both yes 20, both no 15, only A 5, only B 10: p_o = .7, p_e = .5·.6 + .5·.4 = .5, κ = .4."""
    first = ["y"] * 20 + ["y"] * 5 + ["n"] * 10 + ["n"] * 15
    second = ["y"] * 20 + ["n"] * 5 + ["y"] * 10 + ["n"] * 15
    assert cohen_kappa(first, second) == pytest.approx(0.4)


FLEISS_1971 = [
    (0, 0, 0, 0, 14), (0, 2, 6, 4, 2), (0, 0, 3, 5, 6), (0, 3, 9, 2, 0), (2, 2, 8, 1, 1),
    (7, 7, 0, 0, 0), (3, 2, 6, 3, 0), (2, 5, 3, 2, 2), (6, 5, 2, 1, 0), (0, 2, 2, 3, 7),
]  # fmt: skip


def test_fleiss_kappa_of_a_published_table() -> None:
    """Ten subjects, fourteen raters, five categories: κ = .210."""
    ratings = [[label for label, n in enumerate(row) for _ in range(n)] for row in FLEISS_1971]
    assert fleiss_kappa(ratings) == pytest.approx(0.210, abs=5e-4)


KRIPPENDORFF_2011 = (
    (1, 1, None, 1), (2, 2, 3, 2), (3, 3, 3, 3), (3, 3, 3, 3), (2, 2, 2, 2), (1, 2, 3, 4),
    (4, 4, 4, 4), (1, 1, 2, 1), (2, 2, 2, 2), (None, 5, 5, 5), (None, None, 1, 1), (None, None, 3, None),
)  # fmt: skip
"""Four observers, twelve units, missing data: from "Computing Krippendorff's alpha-reliability", section C."""


def test_alpha_of_a_published_table() -> None:
    assert krippendorff_alpha(KRIPPENDORFF_2011) == pytest.approx(0.743, abs=5e-4)
    assert krippendorff_alpha(KRIPPENDORFF_2011, "ordinal") == pytest.approx(0.815, abs=5e-4)
    assert krippendorff_alpha(KRIPPENDORFF_2011, "interval") == pytest.approx(0.849, abs=5e-4)
    by_name = [[None if v is None else "edcba"[v - 1] for v in row] for row in KRIPPENDORFF_2011]
    assert krippendorff_alpha(by_name, "ordinal", order="abcde") == pytest.approx(0.815, abs=5e-4)


tables = st.integers(2, 4).flatmap(
    lambda raters: st.lists(st.lists(st.integers(0, 2), min_size=raters, max_size=raters), min_size=2, max_size=7)
)


@given(tables)
@settings(max_examples=80, deadline=None)
def test_nominal_alpha_is_its_definition_by_pairs(table: list[list[int]]) -> None:
    every = [label for row in table for label in row]
    within = [a != b for row in table for a, b in itertools.permutations(row, 2)]
    across = [a != b for a, b in itertools.permutations(every, 2)]
    found = krippendorff_alpha(table)
    if not any(across):
        assert math.isnan(found)
    else:
        assert found == pytest.approx(1 - (sum(within) / len(within)) / (sum(across) / len(across)))


@given(tables)
@settings(max_examples=40, deadline=None)
def test_neither_order_of_raters_nor_names_of_labels_matter(table: list[list[int]]) -> None:
    other = [["abc"[label] for label in reversed(row)] for row in reversed(table)]
    for measure in (fleiss_kappa, krippendorff_alpha):
        assert measure(other) == pytest.approx(measure(table), nan_ok=True)
    first, second = [row[0] for row in table], [row[1] for row in table]
    assert cohen_kappa(second, first) == pytest.approx(cohen_kappa(first, second), nan_ok=True)


def test_full_agreement_is_one_and_one_label_alone_says_nothing() -> None:
    table = [[1, 1], [2, 2]]
    assert fleiss_kappa(table) == krippendorff_alpha(table) == cohen_kappa([1, 2], [1, 2]) == 1.0
    same = [[1, 1], [1, 1]]
    assert math.isnan(fleiss_kappa(same))
    assert math.isnan(krippendorff_alpha(same))
    assert math.isnan(cohen_kappa([1, 1], [1, 1]))


REFUSED: tuple[Callable[[], float], ...] = (
    lambda: cohen_kappa([], []),
    lambda: cohen_kappa([1], [1, 2]),
    lambda: fleiss_kappa([]),
    lambda: fleiss_kappa([[1]]),
    lambda: fleiss_kappa([[1, 2], [1]]),
    lambda: krippendorff_alpha([[1, None], [None, 2]]),
    lambda: krippendorff_alpha([["a", "b"]], "interval"),
    lambda: krippendorff_alpha([["a", "b"]], "ordinal", order=("a",)),
)


@pytest.mark.parametrize("call", REFUSED)
def test_what_cannot_be_computed_is_refused(call: Callable[[], float]) -> None:
    with pytest.raises(InputError):
        call()


def test_alpha_is_that_of_the_library() -> None:
    library = needs.package("krippendorff")
    found = np.array([[np.nan if v is None else v for v in row] for row in KRIPPENDORFF_2011], dtype=float).T
    for level in LEVELS:
        by_library = library.alpha(reliability_data=found, level_of_measurement=level)
        assert krippendorff_alpha(KRIPPENDORFF_2011, level) == pytest.approx(by_library)
