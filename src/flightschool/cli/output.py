"""Where the words go: people read stderr, programs read exactly one JSON object on stdout.

While a verb runs under ``--json``, ``sys.stdout`` points at stderr, so that a library that prints cannot spoil the
one object. Verbs hand their result to ``finish``; ``main`` writes it when the verb is over. Text from traces,
tools and models is data: control characters are shown, never sent to the terminal, and markup is not interpreted.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TextIO

import msgspec
import typer

from flightschool.errors import FlightschoolError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress, TaskID

__all__ = ["SCHEMA", "Output", "current", "finish", "plain", "progress", "say", "session", "table", "wrapped"]

SCHEMA = 1
"""Version of every JSON object that a verb prints."""
WIDTH_OF_LOGS = 120
"""Columns where stderr is no terminal."""


@dataclass
class Output:
    """How one command line talks; made by ``main``, one a process."""

    json_mode: bool = False
    payload: dict[str, Any] | None = None
    """What goes to stdout at the end."""
    consoles: list[Console] = field(default_factory=list)

    @property
    def console(self) -> Console:
        """The console on stderr, made at first use (rich takes its time to import)."""
        if not self.consoles:
            from rich.console import Console

            width = None if sys.stderr.isatty() else WIDTH_OF_LOGS
            self.consoles.append(
                Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True, width=width)
            )
        return self.consoles[0]


_current = Output()


def current() -> Output:
    """The output of the command line that is running."""
    return _current


@contextlib.contextmanager
def session(json_mode: bool) -> Iterator[Output]:
    """Run one command line: keeps stdout clean under ``--json`` and writes the one object at the end."""
    global _current  # noqa: PLW0603 one command line a process; tests run several, one after the other
    _current = Output(json_mode=json_mode)
    stdout = sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr) if json_mode else contextlib.nullcontext():
            yield _current
    finally:
        if json_mode and _current.payload is not None:
            _write(stdout, _current.payload)


def _write(stream: TextIO, payload: Mapping[str, Any]) -> None:
    stream.write(json.dumps(_finite(msgspec.to_builtins(payload, str_keys=True)), ensure_ascii=False) + "\n")
    stream.flush()


def _finite(value: Any) -> Any:
    """JSON knows no NaN and no infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def finish(payload: Mapping[str, Any], *, fell_short: bool = False) -> None:
    """Hand over a verb's result. ``fell_short``: what was examined is not good enough, so the verb ends with 1."""
    _current.payload = {"schema": SCHEMA, **payload}
    if fell_short:
        raise typer.Exit(1)


def plain(text: object) -> str:
    """``text`` with control characters made visible: data of other people's making must not drive the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in str(text))


def say(text: object, style: str = "") -> None:
    """One line (or a renderable of rich) for people."""
    console = _current.console
    shown: RenderableType = plain(text) if isinstance(text, str) else text  # type: ignore[assignment]
    if isinstance(shown, str) and console.is_terminal:
        shown = wrapped(shown, console.width)
    console.print(shown, style=style or None)


def wrapped(text: str, width: int) -> str:
    """``text`` broken between words, each line indented as the first of its paragraph.

    A word that is longer than the line (a path, most often) is left to the terminal, so that it is copied as one.
    """
    return "\n".join(_broken(line, width) if len(line) > width else line for line in text.split("\n"))


def _broken(line: str, width: int) -> str:
    indent = line[: len(line) - len(line.lstrip(" "))]
    return textwrap.fill(
        line,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
        expand_tabs=False,
    )


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table for people. Columns whose name begins with ``#`` hold numbers and are set flush right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=plain(title) if title else None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.startswith("#") else "left"
        shown.add_column(column.removeprefix("#"), justify=justify, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(plain(cell)) for cell in row))
    _current.console.print(shown)


class Ticker:
    """One progress bar; ``tick`` moves it."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar = bar
        self._task = task

    def tick(self, *_: object) -> None:
        """One more item is done. Takes and ignores anything, so that it serves as a callback."""
        self._bar.advance(self._task)

    def at(self, num_done: int, total: int) -> None:
        """So many of so many are done."""
        self._bar.update(self._task, completed=num_done, total=total)


@contextlib.contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Ticker]:
    """A progress bar on stderr, seen on terminals only."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = _current.console
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(plain(what), total=total)
        yield Ticker(bar, task)


def show_error(error: FlightschoolError) -> None:
    """The one error of a command line: the contract's object under ``--json``, else a short panel on stderr."""
    if _current.json_mode:
        _current.payload = {"schema": SCHEMA, "error": error.as_dict()}
        return
    facts = [(name, plain(value)) for name, value in error.as_dict().items() if name != "what" and value]
    console = _current.console
    if not console.is_terminal:
        say("error: " + plain(error.what))
        for name, value in facts:
            say(f"  {name}: {value}")
        return
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for name, value in facts:
        grid.add_row(Text(name, style="dim"), Text(value))
    body = Table.grid(padding=(0, 0, 1 if facts else 0, 0))
    body.add_row(Text(plain(error.what), style="bold"))
    body.add_row(grid)
    console.print(Panel(body, title="error", title_align="left", border_style="red", expand=False))
