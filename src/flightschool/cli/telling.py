"""Progress of a whole job, as a person sees it: one line a station, a bar while it works, a panel while it trains.

Terminals get a panel that is drawn anew (see ``training_view``); everything else gets a line an optimizer step.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from flightschool.cli import output

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.progress import Progress, TaskID

    from flightschool.cli.training_view import TrainingView
    from flightschool.training import StepProgress

__all__ = ["LiveTell"]

BAR_WIDTH = 24
DRAWN_PER_S = 2


class LiveTell:
    """Draws on stderr: bars and a panel on terminals, plain lines everywhere. Use as a context manager."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._live: Live | None = None
        self._bars: Progress | None = None
        self._bar: TaskID | None = None
        self._view: TrainingView | None = None
        self._title = ""
        self._headed = False

    def __enter__(self) -> LiveTell:
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = output.current().console
        if console.is_terminal:
            self._bars = Progress(
                TextColumn("        {task.description}", markup=False),
                BarColumn(bar_width=BAR_WIDTH),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=console,
            )
            self._live = Live(
                get_renderable=self._drawn, console=console, transient=True, refresh_per_second=DRAWN_PER_S
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def station(self, title: str) -> None:
        """A station begins."""
        self._clear()
        self._leave_panel()
        self._title = title
        self._line(title, style="bold")

    def tick(self, done: int, total: int) -> None:
        """Move the bar."""
        if self._bars is None:
            return
        if self._bar is None:
            self._bar = self._bars.add_task(output.plain(self._title), total=total)
        self._bars.update(self._bar, completed=done, total=total)

    def step(self, row: StepProgress) -> None:
        """One optimizer step."""
        if self._live is not None:
            from flightschool.cli.training_view import TrainingView

            self._view = self._view or TrainingView()
            self._view.step(row)
            return
        if not self._headed:  # a resumed run begins at any step
            self._headed = True
            self._line(
                "        step  success  reward  tokens  calls  temp  entropy  stale  tok/s  groups  idle", style="dim"
            )
        self._line(
            f"        {row.step:>4}  {_bar(row.success)} {row.success:4.2f}  {row.reward_total:6.3f}  "
            f"{row.completion_tokens:6.1f}  {row.tool_calls:5.2f}  {row.temperature:4.2f}  {row.stats.entropy:7.3f}  "
            f"{row.staleness_mean:5.2f}  {row.tokens_per_s:5.0f}  {row.num_groups}+{row.num_zero_advantage}  "
            f"{row.trainer_idle:4.0%}  eta {row.eta_s:.0f} s"
        )

    def note(self, text: str) -> None:
        """A fact worth a line."""
        self._clear()
        if self._view is not None:
            self._view.note(text)
        self._line(f"        {text}")

    def _drawn(self) -> RenderableType:
        from rich.console import Group

        parts: list[RenderableType] = [] if self._view is None else [self._view]
        if self._bars is not None and self._bar is not None:
            parts.append(self._bars.get_renderable())
        return Group(*parts)

    def _leave_panel(self) -> None:
        """The training is over: its last panel stays above what follows."""
        if self._view is not None:
            output.current().console.print(self._view)
            self._view = None

    def _clear(self) -> None:
        if self._bars is not None and self._bar is not None:
            self._bars.remove_task(self._bar)
        self._bar = None

    def _line(self, text: str, style: str = "") -> None:
        seconds = time.monotonic() - self._started
        stamp = f"{seconds:6.1f}s " if style == "bold" else ""
        output.say(stamp + text, style=style)


def _bar(share: float, width: int = 10) -> str:
    filled = round(max(0.0, min(1.0, share)) * width)
    return "█" * filled + "·" * (width - filled)
