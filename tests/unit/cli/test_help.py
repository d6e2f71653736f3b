"""Help of every verb at 80 columns: lines break where the next word no longer fits, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from flightschool.cli.help_text import flowing
from flightschool.cli.main import command_tree

COLUMNS = 80
TEXT_WIDTH = COLUMNS - 2
"""Prose is padded by one column on either side."""


def below(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, verb in getattr(command, "commands", {}).items():
        yield from below(verb, (*path, name))


ALL = list(below(command_tree()))


def paragraphs(help_text: str) -> list[list[str]]:
    """Lines of the prose above the panels, paragraph by paragraph, without the padding."""
    prose = help_text[: help_text.index("╭")]
    return [[line.strip() for line in part.splitlines()] for part in re.split(r"\n\s*\n", prose.strip())]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))


@pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(words) or "flightschool")
@pytest.mark.usefixtures("narrow")
def test_help_wraps_only_where_the_next_word_does_not_fit(words: tuple[str, ...], run: Any) -> None:
    shown = run(*words, "--help").out
    assert max(map(len, shown.splitlines())) <= COLUMNS
    for lines in paragraphs(shown):
        for line, following in pairwise(lines):
            assert len(line) + 1 + len(following.split()[0]) > TEXT_WIDTH, f"{line!r} could take a word more"


@pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(words) or "flightschool")
@pytest.mark.usefixtures("narrow")
def test_nothing_in_the_panels_is_cut_off(words: tuple[str, ...], run: Any) -> None:
    shown = run(*words, "--help").out
    assert "…" not in shown[shown.index("╭") :], "a word longer than its column is cut: put spaces behind its commas"


def test_flowing_text_keeps_paragraphs_and_nothing_else_of_the_lines() -> None:
    assert flowing("One\n    line.\n\n    Another,\n    long one.\n") == "One line.\n\nAnother, long one."
