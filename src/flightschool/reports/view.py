"""From report data to what the template shows: numbers worded, charts drawn, empty parts left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup

from flightschool.records import Finding, Measurement
from flightschool.reports.charts import Series, histogram, line_chart, paired_intervals
from flightschool.reports.episodes import Side, side
from flightschool.reports.numbers import bounds, number, signed
from flightschool.reports.records import Control, CurvePoint, Headline, ReportData, StratumRow

__all__ = ["Page", "page"]

MOST_EXAMPLES = 12
MOST_FINDINGS = 40


@dataclass(frozen=True)
class Tile:
    """A headline number."""

    label: str
    before: str
    before_bounds: str
    after: str
    after_bounds: str
    unit: str
    gain: str
    gain_bounds: str
    tone: str
    """``better``, ``worse`` or ``open``: whether the interval of the difference leaves out zero, and on which side."""
    note: str
    range: Markup


@dataclass(frozen=True)
class Chart:
    """A drawing with its words."""

    title: str
    note: str
    drawing: Markup
    legend: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class PairRow:
    """One row of a paired table."""

    name: str
    detail: str
    trained: bool
    before: str
    after: str
    gain: str
    gain_bounds: str
    tone: str
    range: Markup


@dataclass(frozen=True)
class PairTable:
    """All strata under one weather."""

    weather: str
    rows: tuple[PairRow, ...]


@dataclass(frozen=True)
class Bar:
    """One stage of the funnel."""

    name: str
    count: str
    percent: float
    note: str


@dataclass(frozen=True)
class Example:
    """An episode pair."""

    title: str
    instruction: str
    before: Side
    after: Side


@dataclass(frozen=True)
class Page:
    """All that the template needs."""

    data: ReportData
    verdict: str
    tiles: tuple[Tile, ...]
    tables: tuple[PairTable, ...]
    charts: tuple[Chart, ...]
    funnel: tuple[Bar, ...]
    control: PairRow | None
    examples: tuple[Example, ...]
    num_examples_left_out: int
    num_audited_left_out: int

    @staticmethod
    def played(finding: Finding) -> str:
        """The actions of a finding on one line."""
        calls = [f"{call.name} {call.arguments}" for turn in finding.actions for call in turn.tool_calls]
        said = finding.actions[-1].content if finding.actions else ""
        return "; ".join([*calls, *([repr(said)] if said else [])])


def page(data: ReportData) -> Page:
    """Everything worked out, nothing decided about looks."""
    shown = data.examples[:MOST_EXAMPLES]
    return Page(
        data=data,
        verdict=data.summary or _sentence(data.headlines),
        tiles=tuple(_tile(headline) for headline in data.headlines),
        tables=_tables(data.strata),
        charts=_charts(data),
        funnel=_funnel(data),
        control=_control(data.control) if data.control is not None else None,
        examples=tuple(
            Example(
                title=pair.title,
                instruction=pair.instruction,
                before=side("Before", pair.before),
                after=side("After", pair.after),
            )
            for pair in shown
        ),
        num_examples_left_out=len(data.examples) - len(shown),
        num_audited_left_out=max(0, len(data.audited) - MOST_FINDINGS),
    )


def _sentence(headlines: tuple[Headline, ...]) -> str:
    if not headlines:
        return "This report holds no measurement."
    first = headlines[0]
    text = (
        f"{first.label} went from {number(first.before.value, first.before.unit)} "
        f"to {number(first.after.value, first.after.unit)}"
    )
    gain = first.gain
    if gain is None:
        return f"{text}, on {first.after.num_items} tasks."
    where = f"{signed(gain.value, gain.unit)}, 95 % interval {bounds(gain, difference=True)}, {gain.num_items} tasks"
    reliable = gain.low > 0 or gain.high < 0
    judged = (
        "The interval leaves out zero." if reliable else "The interval includes zero: this is not a reliable change."
    )
    return f"{text}: a paired difference of {where}. {judged}"


def _tone(gain: Measurement | None, higher_is_better: bool) -> str:
    if gain is None or gain.low <= 0 <= gain.high:
        return "open"
    return "better" if (gain.low > 0) is higher_is_better else "worse"


def _tile(headline: Headline) -> Tile:
    before, after, gain = headline.before, headline.after, headline.gain
    share = not after.unit and max(before.high, after.high) <= 1
    top = 1.0 if share else max(before.high, after.high) * 1.05
    return Tile(
        label=headline.label,
        before=number(before.value, before.unit, show_unit=False),
        before_bounds=bounds(before),
        after=number(after.value, after.unit, show_unit=False),
        after_bounds=bounds(after),
        unit=after.unit,
        gain="" if gain is None else signed(gain.value, gain.unit),
        gain_bounds="" if gain is None else bounds(gain, difference=True),
        tone=_tone(gain, headline.higher_is_better),
        note=headline.note,
        range=paired_intervals(before, after, 0.0, top or 1.0),
    )


def _pair_row(
    name: str, detail: str, trained: bool, before: Measurement, after: Measurement, gain: Measurement
) -> PairRow:
    return PairRow(
        name=name,
        detail=detail,
        trained=trained,
        before=number(before.value),
        after=number(after.value),
        gain=signed(gain.value),
        gain_bounds=bounds(gain, difference=True),
        tone=_tone(gain, True),
        range=paired_intervals(before, after, 0.0, 1.0),
    )


def _tables(rows: tuple[StratumRow, ...]) -> tuple[PairTable, ...]:
    weathers = list(dict.fromkeys(row.weather for row in rows))
    return tuple(
        PairTable(
            weather=weather,
            rows=tuple(
                _pair_row(row.stratum, _detail(row), row.trained, row.before, row.after, row.gain)
                for row in sorted(rows, key=lambda row: not row.trained)
                if row.weather == weather
            ),
        )
        for weather in weathers
    )


def _detail(row: StratumRow) -> str:
    tasks = f"{row.gain.num_items} tasks"
    return f"{tasks}, {row.weight:.0%} of traffic" if row.weight else tasks


def _control(control: Control) -> PairRow:
    return _pair_row(
        "rewards shuffled", f"{control.num_steps} steps", False, control.before, control.after, control.gain
    )


def _charts(data: ReportData) -> tuple[Chart, ...]:
    charts = [
        _curve(
            data,
            "Reward by term",
            "mean of the step's groups",
            (("total", 1), ("outcome", 2), ("process", 3), ("latency", 4)),
        ),
        _curve(data, "Success", "share of scored attempts", (("success", 1),)),
        _curve(data, "Completion length", "sampled tokens an attempt", (("num_tokens", 1),)),
        _curve(data, "Entropy", "nats a token", (("entropy", 1),)),
        _curve(data, "Staleness", "steps between sampling and training", (("staleness", 1),)),
    ]
    shown = [chart for chart in charts if chart is not None]
    if data.staleness:
        drawing = histogram("Staleness of trained tokens", data.staleness, x_label="", unit="tokens")
        shown.append(
            Chart(title="Staleness of trained tokens", note="share of tokens by age in steps", drawing=drawing)
        )
    return tuple(shown)


_READ: dict[str, Callable[[CurvePoint], float | None]] = {
    "total": lambda point: point.reward,
    "outcome": lambda point: point.outcome,
    "process": lambda point: point.process,
    "latency": lambda point: point.latency,
    "success": lambda point: point.success,
    "num_tokens": lambda point: point.num_tokens,
    "entropy": lambda point: point.entropy,
    "staleness": lambda point: point.staleness,
}
_SHARES = {"total", "success"}


def _curve(data: ReportData, title: str, note: str, names: tuple[tuple[str, int], ...]) -> Chart | None:
    lines = []
    for name, tone in names:
        read = _READ[name]
        points = tuple((float(p.step), value) for p in data.curve if (value := read(p)) is not None)
        if points:
            lines.append(Series(name=name, points=points, tone=tone))
    if not lines:
        return None
    share = names[0][0] in _SHARES
    drawing = line_chart(title, lines, x_label="step", y_bounds=(0.0, 1.0) if share else None)
    legend = tuple((line.name, line.tone) for line in lines) if len(lines) > 1 else ()
    return Chart(title=title, note=note, drawing=drawing, legend=legend)


def _funnel(data: ReportData) -> tuple[Bar, ...]:
    most = max((stage.count for stage in data.funnel), default=0) or 1
    return tuple(
        Bar(name=stage.name, count=f"{stage.count:,}", percent=round(100 * stage.count / most, 2), note=stage.note)
        for stage in data.funnel
    )
