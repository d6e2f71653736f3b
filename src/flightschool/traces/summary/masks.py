"""Texts with their values masked, so that messages of one kind count as one."""

from __future__ import annotations

import re

from flightschool.records import Json

__all__ = ["error_class", "masked"]

_LONGEST = 100
_QUOTED = re.compile(r"(?<!\w)'[^'\n]{1,200}'|\"[^\"\n]{1,200}\"|`[^`\n]{1,200}`")
_VALUE = re.compile(r"\b[\w.\-/]*\d[\w.\-/]*\b")
_TOLD = ("error", "message", "detail", "details", "reason", "code", "type")


def masked(text: str) -> str:
    """The first line with quoted texts and everything that holds a digit as ``#``, cut to 100 characters."""
    line = next((part for part in text.splitlines() if part.strip()), "")
    return _VALUE.sub("#", _QUOTED.sub("#", line)).strip()[:_LONGEST]


def error_class(value: Json) -> str:
    """The kind of an error, from its text or from what an object of errors says."""
    for _ in range(4):
        if not isinstance(value, dict):
            break
        value = next((value[key] for key in _TOLD if value.get(key)), "")
    text = value if isinstance(value, str) else "" if value is None else str(value)
    return masked(text) or "no message"
