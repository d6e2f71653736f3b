"""The training as a person watches it: one panel with every figure that matters, its course, and what is healthy."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from flightschool.training import StepProgress

__all__ = ["TrainingView", "spark"]

WIDTH = 24
"""Steps that a course shows."""
_BLOCKS = "▁▂▃▄▅▆▇█"
_LIT = "bold"
_WARN = "yellow"

_Figure = Callable[["StepProgress"], float]


def spark(values: Sequence[float], low: float | None = None, high: float | None = None) -> str:
    """A course of values as blocks; between the smallest and the largest of them unless bounds are given."""
    if not values:
        return ""
    low = min(values) if low is None else low
    high = max(values) if high is None else high
    if high <= low:
        return _BLOCKS[0] * len(values)
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round(top * min(1.0, max(0.0, (value - low) / (high - low))))] for value in values)


def duration(seconds: float) -> str:
    """``42 s``, ``3 min 05``, ``2 h 14``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d}"
    return f"{whole // 3600} h {whole % 3600 // 60:02d}"


class TrainingView:
    """Collects steps, draws the panel. Reads the clock, so that it lives between two steps."""

    def __init__(self) -> None:
        self._rows: deque[StepProgress] = deque(maxlen=WIDTH)
        self._notes: deque[str] = deque(maxlen=3)
        self._told_at = time.monotonic()

    def step(self, row: StepProgress) -> None:
        """A step was made."""
        self._rows.append(row)
        self._told_at = time.monotonic()

    def note(self, text: str) -> None:
        """Something was mended."""
        self._notes.append(text)

    def __rich__(self) -> RenderableType:
        """The panel; nothing before the first step."""
        from rich.console import Group
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        if not self._rows:
            return Text("")
        row = self._rows[-1]
        table = Table.grid(padding=(0, 2))
        table.add_column()
        table.add_column(justify="right")
        table.add_column()
        table.add_column()
        for name, value, course, remark, style in self._lines(row):
            table.add_row(name, Text(value, style=style or _LIT), Text(course, style="cyan"), Text(remark, style="dim"))
        since = time.monotonic() - self._told_at
        head = Text.assemble(
            ("training ", _LIT),
            f"step {row.step} of {row.num_steps}  ",
            (_bar(row.step / row.num_steps), "green"),
            f"  {duration(row.wall_s + since)} gone, about {duration(row.eta_s - since)} left",
        )
        notes = [Text(f"  {note}", style=_WARN) for note in self._notes]
        return Panel(Group(head, Text(""), table, *notes), expand=False, border_style="dim")

    def _course(self, figure: _Figure, low: float | None = None, high: float | None = None) -> str:
        return spark([figure(row) for row in self._rows], low, high)

    def _lines(self, row: StepProgress) -> list[tuple[str, str, str, str, str]]:
        """(name, value, course, remark, style)."""
        stats = row.stats
        return [
            ("pass rate", f"{row.success:.0%}", self._course(lambda r: r.success, 0.0, 1.0), _groups(row), ""),
            ("reward", f"{row.reward_total:.3f}", self._course(lambda r: r.reward_total), _by_term(row), ""),
            (
                "length",
                f"{row.completion_tokens:.0f} tok",
                self._course(lambda r: r.completion_tokens),
                f"{row.tool_calls:.1f} tool calls, {row.virtual_ms / 1000:.1f} s virtual an episode",
                "",
            ),
            (
                "entropy",
                f"{stats.entropy:.2f}",
                self._course(lambda r: r.stats.entropy),
                f"nats a token, at temperature {row.temperature:.2f}",
                "",
            ),
            (
                "staleness",
                f"{row.staleness_mean:.2f} steps",
                self._course(lambda r: r.staleness_mean, 0.0),
                _ages(row),
                _WARN if row.expired_token_share else "",
            ),
            (
                "off-policy",
                f"ESS {stats.ess:.0%}",
                self._course(lambda r: r.stats.ess, 0.0, 1.0),
                f"k3 {stats.k3:.1e} nats, clipped {stats.clip_share:.1%}, truncated {stats.tis_share:.1%}",
                _WARN if stats.ess < 0.9 else "",
            ),
            *self._teacher(row),
            (
                "gradient",
                "skipped" if row.skipped else f"{stats.grad_norm:.2f}",
                self._course(lambda r: r.stats.grad_norm),
                f"loss {stats.loss:+.4f}, {stats.num_trained_tokens} tokens trained",
                _WARN if row.skipped else "",
            ),
            (
                "pace",
                f"{row.tokens_per_s:.0f} tok/s",
                self._course(lambda r: r.tokens_per_s, 0.0),
                "sampled tokens consumed",
                "",
            ),
            (
                "busy",
                f"{1 - row.trainer_idle:.0%}",
                self._course(lambda r: 1 - r.trainer_idle, 0.0, 1.0),
                f"trainer; generation {1 - row.generation_idle:.0%}; step {row.batch_inflation:.1f}× as large as asked",
                "",
            ),
        ]

    def _teacher(self, row: StepProgress) -> list[tuple[str, str, str, str, str]]:
        """How far the policy is from its teacher; nothing where there is none."""
        if not row.num_teacher_tokens:
            return []
        course = self._course(lambda r: r.teacher_kl, 0.0)
        remark = f"reverse KL to the teacher, nats a token; {row.teacher_clip_share:.1%} of tokens at a bound"
        return [("teacher", f"{row.teacher_kl:.3f}", course, remark, "")]


def _bar(share: float, width: int = 20) -> str:
    filled = round(max(0.0, min(1.0, share)) * width)
    return "━" * filled + "╌" * (width - filled)


def _groups(row: StepProgress) -> str:
    failed = f", {row.num_infra_failures} lost to infrastructure" if row.num_infra_failures else ""
    return f"{row.num_groups} groups with a gradient, {row.num_zero_advantage} without{failed}"


def _by_term(row: StepProgress) -> str:
    terms = f"outcome {row.reward_outcome:.2f}, process {row.reward_process:+.2f}, latency {row.reward_latency:+.2f}"
    if row.reward_thinking:
        terms += f", thinking {row.reward_thinking:+.2f}"
    if row.reward_turns:
        terms += f", turns {row.reward_turns:+.2f}"
    return f"{terms}, gate {row.reward_gate:.2f}"


def _ages(row: StepProgress) -> str:
    total = sum(row.staleness_histogram.values())
    shares = ", ".join(f"age {age}: {n / total:.0%}" for age, n in sorted(row.staleness_histogram.items()) if total)
    return shares + (f"; {row.expired_token_share:.1%} EXPIRED" if row.expired_token_share else "")
