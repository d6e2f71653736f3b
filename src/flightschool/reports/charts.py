"""The charts of the report: learning curves, paired intervals, histogram, funnel.

Before is always a hollow mark, after a filled one, so that no chart needs its colours to be told apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from flightschool.records import Measurement
from flightschool.reports.numbers import compact, interval
from flightschool.reports.svg import element, nice_ticks, path_of, svg

__all__ = ["Series", "histogram", "line_chart", "paired_intervals"]

WIDTH, HEIGHT = 340.0, 190.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 10.0, 10.0, 30.0
MOST_MARKS = 60


@dataclass(frozen=True)
class Series:
    """One line: ``points`` are (step, value), ``tone`` 1 to 4 picks colour and dash."""

    name: str
    points: tuple[tuple[float, float], ...]
    tone: int = 1


@dataclass(frozen=True)
class _Frame:
    """Data to drawing coordinates."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        span = (self.x_high - self.x_low) or 1.0
        return LEFT + (value - self.x_low) / span * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        span = (self.y_high - self.y_low) or 1.0
        return HEIGHT - BOTTOM - (value - self.y_low) / span * (HEIGHT - TOP - BOTTOM)


def line_chart(title: str, series: Sequence[Series], *, x_label: str, y_bounds: tuple[float, float] | None) -> Markup:
    """Lines over steps. ``y_bounds`` fixes the axis where the scale has a meaning (0..1), else it fits the data.

    Raises:
        ValueError: no series has a point.
    """
    xs = [x for line in series for x, _ in line.points]
    ys = [y for line in series for _, y in line.points]
    if not xs:
        raise ValueError(f"nothing to draw in {title!r}")
    low, high = y_bounds if y_bounds is not None else (min(0.0, *ys), max(ys))
    low, high = min(low, *ys), max(high, *ys)
    ticks = nice_ticks(low, high)
    frame = _Frame(min(xs), max(xs), ticks[0], ticks[-1])
    parts = [_y_axis(frame, ticks), _x_axis(frame, x_label)]
    marks = "mark" if len(series) == 1 and len(xs) <= MOST_MARKS else "hover"
    parts += [_line(frame, line, marks) for line in series]
    return svg(WIDTH, HEIGHT, title, *parts)


def _line(frame: _Frame, line: Series, mark_class: str) -> Markup:
    """A line with one mark a point; where marks would crowd they are invisible and only carry their tooltip."""
    points = [(frame.x(x), frame.y(y)) for x, y in line.points]
    marks = [
        element(
            "circle", element("title", f"{line.name}, step {x:g}: {compact(y)}"), cx=px, cy=py, r=2.6, cls=mark_class
        )
        for (px, py), (x, y) in zip(points, line.points, strict=True)
    ]
    return element("g", element("path", d=path_of(points), cls="line"), *marks, cls=f"tone{line.tone}")


def _y_axis(frame: _Frame, ticks: Sequence[float]) -> Markup:
    rows = []
    for tick in ticks:
        y = frame.y(tick)
        rows.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, cls="grid"))
        rows.append(element("text", compact(tick), x=LEFT - 7, y=y + 3.5, text_anchor="end"))
    return element("g", *rows)


def _x_axis(frame: _Frame, label: str) -> Markup:
    wanted = [tick for tick in nice_ticks(frame.x_low, frame.x_high, most=7) if frame.x_low <= tick <= frame.x_high]
    ticks = [tick for tick in wanted if float(tick).is_integer()] or [frame.x_low]
    # The axis label shares the line of the ticks at the right end, so ticks that would touch it are left out.
    # It names the last value itself, so that the reader knows where the axis ends.
    ending = f"{label} {frame.x_high:g}" if label and frame.x_high > frame.x_low else label
    edge = WIDTH - RIGHT - 6.2 * len(ending) - 8 if ending else WIDTH
    marks = [
        element("text", f"{tick:g}", x=frame.x(tick), y=HEIGHT - BOTTOM + 17, text_anchor="middle")
        for tick in ticks
        if frame.x(tick) < edge
    ]
    name = element("text", ending, x=WIDTH - RIGHT, y=HEIGHT - BOTTOM + 17, text_anchor="end", cls="axis")
    return element("g", *marks, name)


def histogram(title: str, counts: Mapping[int, int], *, x_label: str, unit: str) -> Markup:
    """Bars over whole numbers, gaps included."""
    if not counts:
        raise ValueError(f"nothing to draw in {title!r}")
    keys = range(min(counts), max(counts) + 1)
    total = sum(counts.values()) or 1
    ticks = nice_ticks(0.0, max(counts.values()) / total, most=4)
    frame = _Frame(keys[0] - 0.5, keys[-1] + 0.5, 0.0, ticks[-1])
    width = min(40.0, (WIDTH - LEFT - RIGHT) / len(keys) * 0.72)
    bars = []
    for key in keys:
        share = counts.get(key, 0) / total
        top = frame.y(share)
        told = f"{key}: {counts.get(key, 0):,} {unit} ({share:.1%})"
        bars.append(
            element(
                "rect",
                element("title", told),
                x=frame.x(key) - width / 2,
                y=top,
                width=width,
                height=max(0.0, HEIGHT - BOTTOM - top),
                cls="bar",
            )
        )
    return svg(WIDTH, HEIGHT, title, _share_axis(frame, ticks), _x_axis(frame, x_label), *bars)


def _share_axis(frame: _Frame, ticks: Sequence[float]) -> Markup:
    rows = []
    for tick in ticks:
        y = frame.y(tick)
        rows.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, cls="grid"))
        rows.append(element("text", f"{tick:.0%}", x=LEFT - 7, y=y + 3.5, text_anchor="end"))
    return element("g", *rows)


def paired_intervals(before: Measurement, after: Measurement, low: float, high: float) -> Markup:
    """Before (hollow) and after (filled) with their intervals, one above the other, on an axis from low to high.

    Holds no text, so that it may be stretched to the width of its cell.
    """
    width, height, pad = 220.0, 30.0, 7.0
    span = (high - low) or 1.0

    def x(value: float) -> float:
        return pad + (min(max(value, low), high) - low) / span * (width - 2 * pad)

    def row(side: str, measured: Measurement, y: float) -> Markup:
        told = element("title", f"{side}: {interval(measured)}")
        whisker = element("line", x1=x(measured.low), x2=x(measured.high), y1=y, y2=y, cls="whisker")
        mark = element("circle", cx=x(measured.value), cy=y, r=4.2, cls="point")
        return element("g", told, whisker, mark, cls=side)

    quarter = [low + span * part / 4 for part in range(5)]
    grid = [element("line", x1=x(at), x2=x(at), y1=2, y2=height - 2, cls="grid") for at in quarter]
    label = f"before {interval(before)}, after {interval(after)}"
    return svg(width, height, label, *grid, row("before", before, 9.5), row("after", after, 20.5), cls="range")
