"""Numbers and units as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightschool.verification.quantities import in_unit, number_of, quantities


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1,234.5 km", [(1234.5, "km")]),
        ("1 234 567 B", [(1234567.0, "B")]),
        ("€ 12 and 3 $", [(12.0, "€"), (3.0, "$")]),
        ("−3 °C, then -4", [(-3.0, "°C"), (-4.0, "")]),
        ("3-5 bar", [(3.0, ""), (5.0, "bar")]),
        ("order P-10 or x15", []),
        ("version 1.2.3", []),
        ("It is 2.15 bar.", [(2.15, "bar")]),
        ("There are 15.", [(15.0, "")]),
        ("15 parts of 20", [(15.0, ""), (20.0, "")]),
        ("40 % (3e2 kHz)", [(40.0, "%"), (300.0, "kHz")]),
        ("1,23 m", []),
        ("12 m²", [(12.0, "")]),
        ("٣", [(3.0, "")]),
        ("9" * 200, []),
        ("USD 12.5 and 3 Swiss francs", [(12.5, "USD"), (3.0, "Swiss francs")]),
        ("12 euros 3 times", [(12.0, "euros"), (3.0, "")]),
        ("EUR 12.5 (USD 13.75)", [(12.5, "EUR"), (13.75, "USD")]),
        ("all 15, top 3", [(15.0, ""), (3.0, "")]),
        ("-€12, $3-$5", [(-12.0, "€"), (3.0, "$"), (5.0, "$")]),
        ("5 US\u00a0dollars", [(5.0, "US dollars")]),
    ],
)
def test_what_is_read(text: str, found: list[tuple[float, str]]) -> None:
    assert [(q.value, q.unit) for q in quantities(text)] == found


def test_a_comma_may_be_the_decimal_point() -> None:
    assert [(q.value, q.unit) for q in quantities("1.234,5 km und 0,25", ",")] == [(1234.5, "km"), (0.25, "")]


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("12.5 km", "m", 12500.0),
        ("90 min", "h", 1.5),
        ("1 lb", "g", 453.59237),
        ("212 °F", "°C", 100.0),
        ("273.15 K", "°C", 0.0),
        ("36 km/h", "m/s", 10.0),
        ("1 GiB", "MiB", 1024.0),
        ("5", "kg", 5.0),
        ("5 kg", "m", None),
        ("5 €", "$", None),
        ("five", "kg", None),
        ("5 or 6 kg", "kg", None),
        ("USD 12.5", "USD", 12.5),
        ("1 h 45 min", "min", 105.0),
        ("1d2h30m", "h", 26.5),
        ("-2 h 30 min", "h", -2.5),
        ("2 h 90 min", "h", None),
    ],
)
def test_conversion_by_hand(text: str, unit: str, value: float | None) -> None:
    assert in_unit(text, unit) == (pytest.approx(value, abs=1e-9) if value is not None else None)


@given(st.floats(-1e6, 1e6).map(lambda x: round(x, 3)), st.sampled_from(["m", "kg", "°C", "s"]))
def test_numbers_survive_being_written(value: float, unit: str) -> None:
    found = number_of(f"{value:.3f} {unit}")
    assert found is not None
    assert found.value == pytest.approx(value)
    assert found.unit == unit


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    assert all(abs(q.value) <= float("inf") for q in quantities(text))
