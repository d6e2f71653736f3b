"""Canaries: a string that stands in every exported copy of a suite and nowhere else.

A training corpus (or a model's own words) that holds a suite's canary has met the suite. The string is made from the
suite's digest, so nobody need remember it, and it can be looked for without the suite's text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from flightschool.lineage.texts import Text

__all__ = ["canaries_in", "canary", "suites_met"]

_PREFIX = "flightschool-suite-canary"
_PATTERN = re.compile(rf"{_PREFIX} ([0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})", re.IGNORECASE)


def canary(suite_digest: str) -> str:
    """The canary of a suite: the prefix, and a GUID from its digest."""
    hexes = hashlib.sha256(f"{_PREFIX}\0{suite_digest}".encode()).hexdigest()
    return f"{_PREFIX} {hexes[:8]}-{hexes[8:12]}-{hexes[12:16]}-{hexes[16:20]}-{hexes[20:32]}"


def canaries_in(text: str) -> tuple[str, ...]:
    """All canaries in a text, each once, in order."""
    return tuple(dict.fromkeys(f"{_PREFIX} {match.group(1).lower()}" for match in _PATTERN.finditer(text)))


def suites_met(texts: Iterable[Text], suite_digests: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Suite digest → ids of the texts that hold its canary; suites that were not met are left out."""
    known = {canary(digest): digest for digest in suite_digests}
    found: dict[str, list[str]] = {}
    for text in texts:
        for one in canaries_in(text.text):
            if one in known:
                found.setdefault(known[one], []).append(text.id)
    return {digest: tuple(ids) for digest, ids in found.items()}
