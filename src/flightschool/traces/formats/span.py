"""A span with plain attributes, whatever wrote it."""

from __future__ import annotations

import msgspec

from flightschool.records import Json

__all__ = ["Span", "revived"]


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One span, attributes decoded."""

    trace: str
    id: str
    parent: str
    name: str
    start_ns: int
    end_ns: int
    """Equal to ``start_ns`` if the span never ended; before it where the clock went back, which is named later."""
    attributes: dict[str, Json]
    events: tuple[tuple[str, dict[str, Json]], ...]
    """Name and attributes of the span's events, in order."""
    failed: bool
    """Whether the status code says error."""
    dropped: bool
    """Whether the exporter had to leave attributes out."""
    where: str


def revived(row: Json) -> Span:
    """A span from the builtins that ``msgspec.to_builtins`` made of it."""
    return msgspec.convert(row, Span)
