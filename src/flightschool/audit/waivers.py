"""Waivers: what was let pass against the audit's advice, kept by the very content that it was said of.

The log of the workspace has every override as a line of text. What reports print is kept here, by the key of an audit:
with a changed word of a task, or another check, nobody has waived anything.
"""

from __future__ import annotations

from collections.abc import Iterable

from flightschool.governance import Override
from flightschool.protocols import Store

__all__ = ["keep_waiver", "kept_waiver"]

KIND = "waiver"


def keep_waiver(store: Store, keys: Iterable[str], waived: Override) -> None:
    """Keep who let pass what these keys name, and why; a job that is gone on with says the same again."""
    for key in keys:
        known = kept_waiver(store, key)
        if known is None or (known.name, known.reason) != (waived.name, waived.reason):
            store.put(KIND, key, waived)


def kept_waiver(store: Store, key: str) -> Override | None:
    """The last waiver of what the key names; None: nobody waived it as it is now."""
    return store.get(KIND, key, Override) if key and store.has(KIND, key) else None
