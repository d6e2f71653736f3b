"""Instants as traces write them, on one clock that begins with the episode."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from flightschool.records import Json

__all__ = ["Clock", "instant_ms"]

_UNITS = ((1e17, 1e-6), (1e14, 1e-3), (1e11, 1.0))
"""Epoch numbers from this size on, and what makes them milliseconds: nanoseconds, microseconds, milliseconds."""


def instant_ms(value: Json) -> float | None:
    """Milliseconds since 1970 of an ISO 8601 text or an epoch number (s, ms, µs or ns by its size); None if neither.

    A text without an offset is taken as UTC.
    """
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        known = math.isfinite(value) and value > 0
        return value * next((factor for least, factor in _UNITS if value >= least), 1000.0) if known else None
    if not isinstance(value, str) or not value:
        return None
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).timestamp() * 1000.0


class Clock:
    """Turns instants into milliseconds since the first of them.

    The first instant given is the origin: give the earliest first. Earlier ones come out negative, as recorded.
    """

    def __init__(self, origin_ms: float | None = None) -> None:
        self.origin_ms = origin_ms

    def at(self, value: Json) -> float | None:
        """Milliseconds since the origin; None where ``value`` is no instant."""
        found = instant_ms(value)
        if found is None:
            return None
        if self.origin_ms is None:
            self.origin_ms = found
        return round(found - self.origin_ms, 3)

    @property
    def started_at(self) -> str:
        """The origin as ISO 8601 in UTC; empty if there was no instant."""
        if self.origin_ms is None:
            return ""
        try:
            return datetime.fromtimestamp(self.origin_ms / 1000.0, UTC).isoformat(timespec="milliseconds")
        except (OverflowError, ValueError, OSError):
            return ""
