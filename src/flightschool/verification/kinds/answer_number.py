"""The final message states one number of a unit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from flightschool.records import Json, NumberAnswerCheck
from flightschool.verification.closeness import is_close
from flightschool.verification.kinds.base import Finding, Kind, show
from flightschool.verification.kinds.extract import part_after
from flightschool.verification.quantities import (
    Quantity,
    converted,
    is_duration,
    is_unit,
    quantities,
    with_durations,
)
from flightschool.verification.states import States

__all__ = ["ANSWER_NUMBER"]

_MOST_CHARACTERS = 100_000


def _judge(rule: NumberAnswerCheck, states: States) -> Finding:
    said = part_after(states.evidence.answer, rule.after)
    if said is None:
        return Finding(False, f"answer {show(states.evidence.answer)} lacks {show(rule.after)}")
    if len(said) > _MOST_CHARACTERS:
        return Finding(False, f"an answer of {len(said)} characters is not searched for a number")
    read = with_durations if is_duration(rule.unit) else quantities
    values = _values(rule, list(read(said, rule.decimal)))
    wanted = f"{_digits(rule.value)}{' ' + rule.unit if rule.unit else ''}"
    if not values:
        return Finding(False, f"answer {show(said)} states no such number; expected {wanted}")
    counted = values[-1:] if rule.which == "last" else values
    passed = all(_is_meant(value, rule) for value in counted)
    shown = ", ".join(map(_digits, values[:8]))
    return Finding(passed, f"answer states {shown}; expected {wanted}")


def _is_meant(value: float, rule: NumberAnswerCheck) -> bool:
    expected = float(rule.value)
    if not expected.is_integer():
        return is_close(value, expected, tolerance=rule.tolerance, relative=rule.relative)
    # the declaration holds its number as a float, which not every integer is: digits that were said are held alike
    found = int(float(value)) if isinstance(value, int) else value
    return is_close(found, int(expected), tolerance=rule.tolerance, relative=rule.relative)


def _digits(value: float) -> str:
    """All digits that tell a number from its neighbours."""
    return repr(value).removesuffix(".0")


def _values(rule: NumberAnswerCheck, found: Sequence[Quantity]) -> list[float]:
    """Numbers that could be meant: those of the unit's kind; if there are none, those without any unit."""
    if not rule.unit:
        return [quantity.value for quantity in found]
    with_unit = [converted(quantity, rule.unit) for quantity in found if quantity.unit]
    fitting = [value for value in with_unit if value is not None]
    return fitting or [quantity.value for quantity in found if not quantity.unit]


def _problem(rule: NumberAnswerCheck) -> str:
    if not math.isfinite(rule.value):
        return f"{rule.value} equals nothing"
    if rule.unit and not is_unit(rule.unit):
        return f"unit {rule.unit!r} is not known"
    if not 0.0 <= rule.tolerance < math.inf or not 0.0 <= rule.relative < 1.0:
        return "tolerance must be finite and not negative, relative below 1"
    return ""


def _expected(rule: NumberAnswerCheck) -> Iterator[Json]:
    yield int(rule.value) if rule.value.is_integer() else rule.value


ANSWER_NUMBER = Kind(_judge, _problem, _expected)
