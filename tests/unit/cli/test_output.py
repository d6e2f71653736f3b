"""What people read is what was written: no markup, no emoji, in help and on progress bars."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from flightschool.cli import output
from flightschool.cli.help_text import literal


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("review", "label"), "rollout-0001:a:b:0:0 right"),
        (("review", "sign"), "one [[check]] to sign"),
        (("rollout",), "run:RUN[@STEP]"),
    ],
)
def test_help_is_shown_letter_by_letter(run: Any, words: tuple[str, ...], shown: str) -> None:
    assert shown in re.sub(r"[\s│]+", " ", run(*words, "--help").out)


@pytest.mark.parametrize("text", ["a:b:c:smile:", "[[check]] [red]x[/red]", "12:30, e.g. : or ::", "E|PATH... [a-z]"])
def test_literal_text_is_rendered_as_it_is(text: str) -> None:
    assert Text.from_markup(literal(text)).plain == text


def test_a_progress_bar_shows_names_as_they_are() -> None:
    shown = io.StringIO()
    with output.session(json_mode=False) as now:
        now.consoles.append(Console(file=shown, force_terminal=True, markup=False, emoji=False, width=100))
        with output.progress("auditing ./a:b:c [red]", 1) as bar:
            bar.tick()
    assert "auditing ./a:b:c [red]" in shown.getvalue()


def test_lines_break_between_words_and_keep_their_indent_and_paths() -> None:
    path = "/a/" + "long-folder/" * 4 + "file"
    text = f"short\n    attempts at the same task scored alike {path}"
    assert output.wrapped(text, 30).split("\n") == [
        "short",
        "    attempts at the same task",
        "    scored alike",
        f"    {path}",
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_only_terminals_break_lines(terminal: bool) -> None:
    shown = io.StringIO()
    with output.session(json_mode=False) as now:
        now.consoles.append(Console(file=shown, force_terminal=terminal, color_system=None, width=20, soft_wrap=True))
        output.say("attempts at the same task")
    assert shown.getvalue() == ("attempts at the same\ntask\n" if terminal else "attempts at the same task\n")
