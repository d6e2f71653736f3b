"""Patterns of ``.dockerignore``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightschool.environments.terminal.ignoring import IgnoreRules

PATHS = ["a.log", "b/a.log", "b/c/a.log", "b/keep.log", "tmp", "tmp/x", "b/tmp/x", "README.md", "a-b", "[x]", "b/c.txt"]


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("", []),
        ("# a.log\n\n  \n", []),
        ("*.log", ["a.log"]),
        ("**/*.log", ["a.log", "b/a.log", "b/c/a.log", "b/keep.log"]),
        ("*/*.log", ["b/a.log", "b/keep.log"]),
        ("tmp/", ["tmp", "tmp/x"]),
        ("/tmp", ["tmp", "tmp/x"]),
        ("./b/../tmp", ["tmp", "tmp/x"]),
        ("**/tmp", ["tmp", "tmp/x", "b/tmp/x"]),
        ("b/**", ["b/a.log", "b/c/a.log", "b/keep.log", "b/tmp/x", "b/c.txt"]),
        ("b\n!b/keep.log", ["b/a.log", "b/c/a.log", "b/tmp/x", "b/c.txt"]),
        ("!b/keep.log\nb", ["b/a.log", "b/c/a.log", "b/keep.log", "b/tmp/x", "b/c.txt"]),
        ("*\n!b", ["a.log", "tmp", "tmp/x", "README.md", "a-b", "[x]"]),
        ("a?b", ["a-b"]),
        ("[a-b].log", ["a.log"]),
        ("[^b].log", ["a.log"]),
        ("\\[x]", ["[x]"]),
        ("[", []),
        (".", []),
        ("readme.md", []),
    ],
)
def test_patterns(text: str, left_out: list[str]) -> None:
    rules = IgnoreRules(text)
    assert [path for path in PATHS if rules(path)] == left_out
    assert rules.kept(PATHS) == [path for path in PATHS if path not in left_out]


@given(st.text(alphabet="ab*?[]^-!\\/.~&|# \n", max_size=20), st.text(alphabet="ab/.", min_size=1, max_size=8))
def test_any_text_is_a_set_of_rules(text: str, path: str) -> None:
    assert IgnoreRules(text)(path) in (True, False)
    assert not IgnoreRules(text + "\n!**")(path)
