"""Numbers, ticks and coordinates of the charts."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.records import Measurement
from flightschool.reports.charts import Series, histogram, line_chart, paired_intervals
from flightschool.reports.numbers import bounds, compact, number, signed
from flightschool.reports.svg import element, nice_ticks

finite = st.floats(min_value=-1e6, max_value=1e6, allow_nan=False)


@given(low=finite, width=st.floats(min_value=1e-3, max_value=1e6), most=st.integers(3, 8))
@settings(max_examples=50, deadline=None)
def test_ticks_cover_the_range_evenly_and_are_few(low: float, width: float, most: int) -> None:
    ticks = nice_ticks(low, low + width, most)
    step = ticks[1] - ticks[0]
    assert ticks[0] <= low + step * 1e-6
    assert ticks[-1] >= low + width - step * 1e-6
    assert 2 <= len(ticks) <= most + 2
    assert all(b - a == pytest.approx(step, rel=1e-3) for a, b in itertools.pairwise(ticks))


def test_ticks_are_round() -> None:
    assert nice_ticks(0.0, 1.0) == [0.0, 0.5, 1.0]
    assert nice_ticks(0.0, 137.0) == [0.0, 50.0, 100.0, 150.0]
    assert nice_ticks(3.0, 3.0)[0] <= 3.0
    with pytest.raises(ValueError, match="finite"):
        nice_ticks(0.0, float("nan"))


def test_numbers_are_worded_with_units_and_real_minus_signs() -> None:
    assert number(0.9449) == "0.94"
    assert number(2140.4, "ms") == "2,140\u202fms"
    assert number(12.5, "ms") == "12.5\u202fms"
    assert number(float("nan")) == "n/a"
    assert number(-0.001) == "0.00"
    assert signed(0.3) == "+0.30"
    assert signed(-0.3) == "\u22120.30"
    assert signed(0.0) == "0.00"
    assert compact(12_500) == "12.5k"
    latency = Measurement(name="latency", value=2, low=1.5, high=2.5, num_items=3, unit="s")
    assert bounds(latency) == "1.5 to 2.5\u202fs"


def test_line_chart_puts_the_extremes_at_the_edges() -> None:
    drawing = str(line_chart("t", [Series("s", ((0, 0.0), (10, 1.0)))], x_label="step", y_bounds=(0.0, 1.0)))
    assert 'd="M44,160L330,10"' in drawing
    assert "s, step 10: 1" in drawing


def test_line_chart_refuses_to_draw_nothing() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        line_chart("empty", [], x_label="step", y_bounds=None)


def test_constant_series_can_be_drawn() -> None:
    drawing = str(line_chart("t", [Series("s", ((3, 0.0),))], x_label="step", y_bounds=None))
    assert "nan" not in drawing.lower()


@pytest.mark.parametrize(("steps", "ending"), [((1, 2), "step 2"), ((1, 5, 12), "step 12"), ((3,), "step")])
def test_the_axis_names_where_it_ends(steps: tuple[int, ...], ending: str) -> None:
    drawing = str(line_chart("t", [Series("s", tuple((s, 0.5) for s in steps))], x_label="step", y_bounds=(0.0, 1.0)))
    assert f">{ending}</text>" in drawing


def test_histogram_shows_gaps_and_shares() -> None:
    drawing = str(histogram("ages", {0: 3, 2: 1}, x_label="", unit="tokens"))
    assert drawing.count("<rect") == 3
    assert "0: 3 tokens (75.0%)" in drawing
    assert "1: 0 tokens (0.0%)" in drawing


def test_intervals_beyond_the_axis_are_held_at_its_ends() -> None:
    before = Measurement(name="b", value=0.0, low=-0.2, high=0.1, num_items=4)
    after = Measurement(name="a", value=1.0, low=0.9, high=1.4, num_items=4)
    drawing = str(paired_intervals(before, after, 0.0, 1.0))
    xs = [float(x) for x in re.findall(r'(?:cx|x1|x2)="([-\d.]+)"', drawing)]
    assert min(xs) == 7.0
    assert max(xs) == 213.0


def test_attributes_are_escaped() -> None:
    assert str(element("text", '<b>"', x='"><script>')) == '<text x="&#34;&gt;&lt;script&gt;">&lt;b&gt;&#34;</text>'
