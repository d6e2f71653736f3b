"""Orders of rows: which the instruction asks for, which come with the inputs, and which are the reference's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from flightschool.audit.terminal.in_view import InView

__all__ = ["ANY_ORDER", "alphabetical", "asks_for_order", "is_free"]

ANY_ORDER: Final = re.compile(
    r"any order|order (?:does not|doesn't|is not|isn't|need not) (?:matter|important|relevant|be)"
    r"|order is (?:irrelevant|free)"
    r"|regardless of (?:the )?order|unordered|in no particular order|as a set\b|arbitrary order|whatever order",
    re.I,
)
_ORDER: Final = re.compile(
    r"\bsort|\border(?:ed|ing)\b|\bin (?:[\w'-]+ ){0,6}?order\b|\border(?:s)? (?:by|of|as|in which|from)\b"
    r"|\b(?:same|file|input|original|given|this|that|their|its|the|an?|build|old) order\b|ascending"
    r"|descending|alphabetic"
    r"|\bfirst\b|\blast\b|\bthen\b|sequence|\brank|\btop\b|chronolog|\bin place\b|\brevers|line by line|in turn"
    r"|increasing|decreasing|\b\w+est\b|\bmost\b|\bleast\b",
    re.I,
)
_NO_ORDER: Final = re.compile(
    r"database|\bsqlite|\bSQL\b|\btables\b|files? (?:below|under|in|beneath)|distinct|unique|\bset of\b|\bprocesses\b",
    re.I,
)
"""Sources whose rows have no order of their own."""
_ALPHABETICAL: Final = re.compile(r"alphabetical(?:ly)?|dictionary order", re.I)
_BYTES: Final = re.compile(
    r"\bASCII|\bbytes?\b|\bC locale|LC_ALL|code ?points?|\bcase\b|lexicograph|capital|upper|lower|`?sort`", re.I
)
_WORDS: Final = re.compile(r"[^\s,;|]+")


def asks_for_order(instruction: str) -> bool:
    """Whether the instruction may speak of an order; nouns like ``customers and orders`` do not."""
    return _ORDER.search(instruction) is not None


def is_free(rows: Sequence[str], view: InView) -> bool:
    """Whether rows come from where there is no order, and stand in none that suggests itself.

    An order suggests itself if it is that of an input, or the alphabet's; right work may well keep to it, and a test
    that demands it is not plainly wrong.
    """
    if len(rows) < 2 or not _NO_ORDER.search(view.instruction) or list(rows) == sorted(rows):
        return False
    return not any(_follows(rows, text.splitlines()) for text in view.inputs.values())


def _follows(rows: Sequence[str], lines: Sequence[str]) -> bool:
    """Whether some field of all rows stands in a text in the rows' order."""
    fields = [_WORDS.findall(row) for row in rows]
    if not all(fields) or len(lines) > 20_000:
        return False
    first: dict[str, int] = {}
    for place, line in enumerate(lines):
        for word in _WORDS.findall(line):
            first.setdefault(word, place)
    for column in range(min(map(len, fields))):
        places = [first.get(row[column], -1) for row in fields]
        if places[0] >= 0 and all(a < b for a, b in pairwise(places)):
            return True
    return False


def alphabetical(rows: Sequence[str], instruction: str) -> list[str]:
    """Rows in the alphabet's order whatever their case, where bytes put them otherwise; empty: no such choice."""
    if not _ALPHABETICAL.search(instruction) or _BYTES.search(instruction) or len(rows) < 2:
        return []
    if list(rows) != sorted(rows) or any(not row[:1].isalpha() for row in rows):
        return []
    other = sorted(rows, key=lambda row: (row.casefold(), row))
    return other if other != list(rows) else []
