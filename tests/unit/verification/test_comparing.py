"""One comparison for states, files and answers: tolerance, order, unit, ignored places."""

from __future__ import annotations

import json
import math
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.digest import digest
from flightschool.records import Comparison, Json
from flightschool.verification.comparing import MOST_FUZZY_ITEMS, comparison_problem, differences

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text(max_size=3)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
)


def same(found: Json, expected: Json, **how: object) -> bool:
    return not differences(found, expected, Comparison(**how))  # type: ignore[arg-type]


@given(values, st.sampled_from(["ordered", "set", "multiset"]), st.sampled_from([0.0, 0.5]))
@settings(max_examples=60, deadline=None)
def test_everything_equals_itself(value: Json, order: str, tolerance: float) -> None:
    assert same(value, value, order=order, tolerance=tolerance)
    assert same(json.loads(json.dumps(value)), value, order=order, tolerance=tolerance)


@pytest.mark.parametrize(
    ("found", "expected", "equal"),
    [
        (1, 1.0, True),
        (0.1 + 0.2, 0.3, True),
        (1, True, False),
        (True, 1, False),
        (0, False, False),
        ("1", 1, False),
        (None, 0, False),
        (math.nan, 1.0, False),
        (math.inf, 1e308, False),
        (10**400, 1.0, False),
        (10**400, 10**400, True),
        ({}, [], False),
        ("", None, False),
    ],
)
def test_scalars(found: Json, expected: Json, equal: bool) -> None:
    assert same(found, expected) is equal


def test_the_larger_of_two_tolerances_counts() -> None:
    assert same(10.4, 10, tolerance=0.5)
    assert not same(10.6, 10, tolerance=0.5)
    assert same(101, 100, relative=0.01)
    assert not same(101.1, 100, relative=0.01)
    assert same({"a": [10.4]}, {"a": [10]}, tolerance=0.5)


BIG = 10_000_000_001


@pytest.mark.parametrize(
    ("found", "expected", "how", "equal"),
    [
        (BIG, BIG + 8, {}, False),
        (float(BIG), BIG + 8, {}, False),  # 1e10 is no way around it
        (float(BIG), BIG, {}, True),
        (BIG - 1e-5, BIG, {}, True),  # the noise of a sum of floats
        (float(BIG), float(BIG + 8), {}, True),  # floats were declared
        (2**60 + 1, 2**60, {}, False),
        (BIG, BIG + 8, {"relative": 1e-8}, True),
        (BIG, BIG + 8, {"tolerance": 8}, True),
        (BIG, BIG + 9, {"tolerance": 8}, False),
        ([BIG], [BIG + 8], {"order": "set"}, False),
        ([float(BIG - 1)], [BIG], {"order": "set"}, False),
        ([BIG + 1e-6], [BIG], {"order": "multiset"}, True),
        ([{"id": float(BIG), "v": 1}], [{"id": BIG, "v": 1}], {"order": "by_key", "key": "id"}, True),
        ([{"id": BIG - 1, "v": 1}], [{"id": BIG, "v": 1}], {"order": "by_key", "key": "id"}, False),
        ([{"id": "a", "v": BIG + 1}], [{"id": "a", "v": BIG}], {"order": "by_key", "key": "id"}, False),
        (f"{BIG} g", BIG + 8, {"unit": "g"}, False),
        ("12345678901234567891 g", 12345678901234567891, {"unit": "g"}, True),
    ],
)
def test_whole_numbers_are_equal_exactly_unless_a_bound_is_declared(
    found: Json, expected: Json, how: dict[str, object], equal: bool
) -> None:
    assert same(found, expected, **how) is equal


def test_the_rule_for_whole_numbers_changed_no_digest_of_a_check() -> None:
    assert digest(Comparison()) == "sha256:c77105996b4803e0ea3d75bd5084b68582c1d85f45b83aaefa7cf5183343f58d"


def test_order_of_lists() -> None:
    assert not same([1, 2], [2, 1])
    assert same([1, 2], [2, 1], order="multiset")
    assert not same([1, 1, 2], [2, 1], order="multiset")
    assert same([1, 1, 2], [2, 1], order="set")
    assert not same([1, 2, 3], [2, 1], order="set")
    assert same([{"a": 1.0}, {"a": 2}], [{"a": 2}, {"a": 1}], order="multiset")


def test_items_found_by_key() -> None:
    how = {"order": "by_key", "key": "id"}
    expected = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
    assert same([{"id": 2, "v": "b"}, {"id": 1, "v": "a"}], expected, **how)
    for found in (
        [{"id": 2, "v": "b"}],
        [*expected, {"id": 3, "v": "c"}],
        [*expected, expected[0]],
        [*expected, "junk"],
        [{"id": 1, "v": "b"}, {"id": 2, "v": "a"}],
    ):
        assert not same(found, expected, **how)


def test_a_tolerance_is_not_transitive_so_items_are_matched_not_taken_in_turn() -> None:
    assert same([1.0, 2.0], [1.5, 0.2], order="multiset", tolerance=0.8)  # 1.0 must leave 1.5 to 2.0
    assert not same([1.0, 1.1], [1.5, 2.9], order="multiset", tolerance=0.8)


@given(st.lists(st.integers(0, 8), min_size=1, max_size=5), st.lists(st.integers(0, 8), min_size=1, max_size=5))
@settings(max_examples=80, deadline=None)
def test_the_matching_is_the_best_of_all_orders(found: list[int], expected: list[int]) -> None:
    def fits(order: tuple[int, ...]) -> bool:
        return all(abs(a - b) <= 1 for a, b in zip(order, expected, strict=True))

    by_hand = len(found) == len(expected) and any(map(fits, permutations(found)))
    assert same(found, expected, order="multiset", tolerance=1.0) is by_hand


def test_ignored_places() -> None:
    orders: list[dict[str, Json]] = [{"id": 1, "at": "now"}, {"id": 2, "at": "then"}]
    found = {"orders": orders, "log": "x", "extra": 1}
    expected = {"orders": [{"id": 1, "at": ""}, {"id": 2}], "log": "y"}
    ignore = ("orders.*.at", "log", "extra")
    assert same(found, expected, ignore=ignore)
    assert not same(found, expected, ignore=("orders.0.at", "log", "extra"))
    mixed = {"orders": orders[::-1], "log": "", "extra": None}
    assert same(mixed, expected, ignore=ignore, order="multiset")
    assert not same({**mixed, "orders": [{"id": 1}, {"id": 3}]}, expected, ignore=ignore, order="multiset")


def test_objects_may_have_more_keys_only_if_said() -> None:
    assert not same({"a": 1, "b": 2}, {"a": 1})
    assert same({"a": 1, "b": 2}, {"a": 1}, subset=True)
    assert same([{"a": 2, "b": 0}, {"a": 1}], [{"a": 1}, {"a": 2}], subset=True, order="multiset")
    assert not same({"b": 2}, {"a": 1}, subset=True)


def test_units_are_converted() -> None:
    assert same({"length": "12.5 km"}, {"length": 12500}, unit="m")
    assert same(12500, 12500, unit="m")
    assert not same("12.5 kg", 12.5, unit="m")
    assert not same("about 12.5 km", 12500, unit="m")
    assert same("77 °F", 25, unit="°C")


def test_a_difference_names_its_place() -> None:
    (found,) = differences({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, Comparison())
    assert str(found) == "a.0.b: found 1, expected 2"


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (Comparison(tolerance=-1.0), 1),
        (Comparison(tolerance=math.inf), 1),
        (Comparison(relative=1.0), 1),
        (Comparison(order="by_key"), []),
        (Comparison(key="id"), []),
        (Comparison(order="by_key", key="id"), [{"id": 1}, {"id": 1.0}]),
        (Comparison(order="by_key", key="id"), [{"name": 1}]),
        (Comparison(unit="furlong"), 1),
        (Comparison(ignore=("*",)), 1),
        (Comparison(ignore=("a..b",)), 1),
        (Comparison(), {"a": [math.nan]}),
        (Comparison(order="set", tolerance=1.0), [0] * (MOST_FUZZY_ITEMS + 1)),
    ],
)
def test_comparisons_that_could_not_be_made_are_told(how: Comparison, expected: Json) -> None:
    assert comparison_problem(how, expected)
    assert not comparison_problem(Comparison(), 1)


def test_hostile_values_end_in_a_difference() -> None:
    deep: Json = 0
    for _ in range(100_000):
        deep = [deep]
    assert not same(deep, [[1]])
    assert not same([deep], [[1]], order="multiset")
    assert not same(list(range(MOST_FUZZY_ITEMS + 1)), [1], order="set", tolerance=0.1)
    assert not same(["\ud800"], ["x"], order="set")
    assert differences([0] * 100_000, [1] * 100_000, Comparison(), most=5) != []
