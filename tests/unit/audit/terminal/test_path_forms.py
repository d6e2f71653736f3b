"""Equivalent paths: which forms are made, and which of them the instruction calls as good."""

from __future__ import annotations

import pytest
from tests.unit.audit.terminal.one_output import one_output

from flightschool.audit.terminal.in_view import InView
from flightschool.audit.terminal.path_forms import path_forms
from flightschool.audit.terminal.rewriting import rewrites_of

RELATIVE, DOTTED, THROUGH = "data/x.txt\n", "./data/x.txt\n", "/app/../app/data/x.txt\n"


def forms(
    instruction: str, text: str = "/app/data/x.txt\n", kind: str = "text", workdir: str = "/app"
) -> dict[str, bool]:
    view = InView(instruction=instruction, inputs={"/app/data/x.txt": "1\n", "/srv/y": "2\n"}, workdir=workdir)
    return {text: bars for text, _, bars in path_forms(one_output(text, kind), view)}


@pytest.mark.parametrize(
    "words",
    [
        "Any path that leads to the file is fine, also a relative one from /app.",
        "Any valid path to it is accepted.",
    ],
)
def test_any_path_makes_every_form_as_good(words: str) -> None:
    assert forms(f"Write the path of the largest file. {words}") == {RELATIVE: True, DOTTED: True, THROUGH: True}


@pytest.mark.parametrize(
    "words",
    ["A relative path is fine.", "Write it absolute or relative to /app.", "The path in the answer may be relative."],
)
def test_a_relative_path_may_be_allowed_alone(words: str) -> None:
    assert forms(f"Find the largest file. {words}") == {RELATIVE: True, DOTTED: True, THROUGH: False}


@pytest.mark.parametrize(
    ("instruction", "found"),
    [
        ("Write the path of the largest file.", {RELATIVE: False, DOTTED: False, THROUGH: False}),
        ("Write the absolute path of the largest file.", {THROUGH: False}),
        ("Write the path. A relative path is not accepted.", {RELATIVE: False, DOTTED: False, THROUGH: False}),
        ("Report any path that is allowed by the rules.", {RELATIVE: False, DOTTED: False, THROUGH: False}),
        ("Write its canonical path. Any path is fine.", {}),
    ],
)
def test_what_is_not_said_to_be_as_good_only_warns(instruction: str, found: dict[str, bool]) -> None:
    assert forms(instruction) == found


def test_only_paths_of_this_world_are_written_in_another_form() -> None:
    text = '{"file": "/app/data/x.txt", "route": "/api/v1/items", "url": "http://h/app/data/x.txt"}\n'
    changed = text.replace('"/app/data/x.txt"', '"data/x.txt"')
    assert next(iter(forms("Write the report.", text, "json"))) == changed
    assert forms("Write the routes.", "/api/v1/items\n") == {}
    assert "../srv/y\n" in forms("Write the path.", "/srv/y\n")


def test_a_base_is_taken_from_the_words() -> None:
    assert "x.txt\n" in forms("Write the path, relative to /app/data is fine.")


def test_forms_of_paths_are_among_the_rewrites_of_an_output() -> None:
    view = InView(instruction="Any path is fine.", inputs={"/app/data/x.txt": ""}, workdir="/app")
    found = {
        one.data.decode(): one.bars
        for one in rewrites_of(one_output("/app/data/x.txt\n", "text"), view.instruction, view)
    }
    assert found[RELATIVE]
