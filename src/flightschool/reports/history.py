"""Scores of a suite over its versions, as one offline page: a line in each version, and none across a border."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup, escape

from flightschool.records import Record
from flightschool.reports.numbers import compact
from flightschool.reports.render import write_page
from flightschool.reports.svg import element, path_of, svg

__all__ = ["HistoryScore", "HistoryVersion", "history_chart", "write_history"]

_WIDTH, _HEIGHT = 760.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 48.0, 14.0, 26.0, 40.0
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 50rem; padding: 0 1rem;
  color: #1c1c1c; background: #fff }
svg { width: 100%; height: auto } text { font: 11px system-ui, sans-serif; fill: currentColor }
.grid { stroke: #ddd } .border { stroke: #b00; stroke-dasharray: 5 4 } .line { fill: none; stroke: #456 }
.whisker { stroke: #456 } .point { fill: #246 } .told { fill: #b00 }
@media (prefers-color-scheme: dark) { body { color: #e8e8e8; background: #161616 } .grid { stroke: #444 }
  .line, .whisker { stroke: #9bd } .point { fill: #9cf } .border { stroke: #f77 } .told { fill: #f77 } }
"""


class HistoryScore(Record, frozen=True, kw_only=True):
    """Success of one evaluation."""

    label: str
    policy: str
    value: float
    low: float
    high: float


class HistoryVersion(Record, frozen=True, kw_only=True):
    """One version of a suite with its scores, oldest first."""

    suite: str
    because: str = ""
    anchors: int = 0
    scores: tuple[HistoryScore, ...] = ()


def history_chart(versions: Sequence[HistoryVersion]) -> Markup:
    """The chart: versions side by side, each with a line of its own.

    Raises:
        ValueError: no version.
    """
    if not versions:
        raise ValueError("no version of the suite")
    slots = [max(1, len(version.scores)) for version in versions]
    step = (_WIDTH - _LEFT - _RIGHT) / sum(slots)
    parts, x = [_axis()], _LEFT
    for number, (version, size) in enumerate(zip(versions, slots, strict=True)):
        if number:
            parts.append(_border(x, version.anchors))
        parts.append(_version(version, x, step))
        x += size * step
    label = "success by version; scores across the borders are not comparable"
    return svg(_WIDTH, _HEIGHT, label, *parts)


def write_history(title: str, versions: Sequence[HistoryVersion], out: Path) -> None:
    """Write the page, whole or not at all. Raises ``OSError`` when the place cannot be written."""
    rows = Markup("").join(
        element(
            "li",
            f"{version.suite}: {len(version.scores)} evaluations"
            + (f", {version.anchors} anchors shared with the version before" if number else "")
            + (f"; {version.because}" if version.because else ""),
        )
        for number, version in enumerate(versions)
    )
    text = Markup(
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{title}</title><style>{style}</style></head>"
        "<body><h1>{title}</h1><p>Success weighted by traffic, 95 % intervals. {warning}</p>{chart}<ul>{rows}</ul>"
        "</body></html>\n"
    ).format(
        title=escape(f"History of {title}"),
        style=Markup(_STYLE),
        warning="Scores across the dashed borders are not comparable." if len(versions) > 1 else "",
        chart=history_chart(versions),
        rows=rows,
    )
    write_page(str(text), out)


def _y(value: float) -> float:
    return _HEIGHT - _BOTTOM - min(1.0, max(0.0, value)) * (_HEIGHT - _TOP - _BOTTOM)


def _axis() -> Markup:
    rows = []
    for tick in _TICKS:
        rows.append(element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=_y(tick), y2=_y(tick), cls="grid"))
        rows.append(element("text", compact(tick), x=_LEFT - 8, y=_y(tick) + 4, text_anchor="end"))
    return element("g", *rows)


def _border(x: float, anchors: int) -> Markup:
    line = element("line", x1=x, x2=x, y1=_TOP - 8, y2=_HEIGHT - _BOTTOM, cls="border")
    told = element("text", f"not comparable ({anchors} anchors)", x=x, y=_TOP - 12, text_anchor="middle", cls="told")
    return element("g", line, told)


def _version(version: HistoryVersion, left: float, step: float) -> Markup:
    points = [(left + (place + 0.5) * step, _y(score.value)) for place, score in enumerate(version.scores)]
    marks = []
    for (x, y), score in zip(points, version.scores, strict=True):
        told = element("title", f"{score.label} {score.policy}: {score.value:.3f} ({score.low:.3f}, {score.high:.3f})")
        whisker = element("line", x1=x, x2=x, y1=_y(score.low), y2=_y(score.high), cls="whisker")
        marks.append(element("g", told, whisker, element("circle", cx=x, cy=y, r=4, cls="point")))
    line = [element("path", d=path_of(points), cls="line")] if len(points) > 1 else []
    middle = left + max(1, len(points)) * step / 2
    name = element("text", version.suite, x=middle, y=_HEIGHT - 14, text_anchor="middle")
    return element("g", *line, *marks, name)
