"""Texts that are compared, and the forms in which they are: as they are, normalised, with numbers masked, in pieces."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar

from flightschool.records import Record

__all__ = ["Origin", "Text", "masked", "normalised", "pieces", "words_of"]

_WORD = re.compile(r"[^\W_]+")
_JOINED = re.compile(r"[^\W_]+(?:[-_./:][^\W_]+)*")
MASK = "#"

T = TypeVar("T")


class Origin(StrEnum):
    """Where a text came from."""

    TASK = "task"
    TRACE = "trace"  # a recorded or demonstrated episode
    REWARD = "reward"  # a datum of a reward model or a judge


class Text(Record, frozen=True, kw_only=True):
    """One text with its name."""

    id: str
    origin: Origin = Origin.TASK
    text: str
    context: str = ""
    """House rules that the text stands under. One wording under two rules is two tasks: see ``rules.ruled_apart``."""


def normalised(text: str) -> str:
    """Words without case, accents of form, signs and layout (Unicode NFKC)."""
    return " ".join(words_of(text))


def masked(text: str) -> str:
    """Normalised, with whatever holds a digit (numbers, ids, dates) replaced by one mark: the template behind it."""
    found: list[str] = []
    for match in _JOINED.finditer(unicodedata.normalize("NFKC", text).casefold()):
        holds_digit = any(sign.isdigit() for sign in match.group())
        found += [MASK] if holds_digit else _WORD.findall(match.group())
    return " ".join(found)


def words_of(text: str) -> list[str]:
    """Words of the normalised text, in order."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def pieces(items: Sequence[T], size: int) -> list[tuple[T, ...]]:
    """All runs of ``size`` neighbours; the whole, if it is shorter (nothing, if it is empty)."""
    if len(items) <= size:
        return [tuple(items)] if items else []
    return [tuple(items[start : start + size]) for start in range(len(items) - size + 1)]
