"""What of an answer is read: all of it, or what follows a marker."""

from __future__ import annotations

__all__ = ["part_after"]


def part_after(answer: str, marker: str) -> str | None:
    """What follows the last ``marker``, whatever its case; the whole answer without one; None if it is not said."""
    if not marker:
        return answer
    # casefold can change lengths ("ß"): the place is found in a form that keeps them
    place = answer.lower().rfind(marker.lower())
    if len(answer.lower()) != len(answer):
        place = answer.rfind(marker)
    return None if place < 0 else answer[place + len(marker) :]
