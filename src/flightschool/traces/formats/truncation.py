"""The marks that exporters leave where they cut a text."""

from __future__ import annotations

import re

__all__ = ["looks_truncated"]

_TRUNCATED = re.compile(
    r"(?:\[|<|\()\s*(?:\.{3}|…)?\s*truncated[^\])>]{0,40}(?:\]|>|\))\s*$|(?:\.{3}|…)\s*truncated\s*$", re.I
)


def looks_truncated(text: str) -> bool:
    """Whether a text ends in a marker that exporters leave where they cut."""
    return _TRUNCATED.search(text[-80:]) is not None
