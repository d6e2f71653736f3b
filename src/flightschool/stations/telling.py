"""What stations tell whoever watches. The command line draws it; nothing else depends on it."""

from __future__ import annotations

from typing import Protocol

from flightschool.training.progress import StepProgress

__all__ = ["Quiet", "Tell"]


class Tell(Protocol):
    """Receives progress."""

    def station(self, title: str) -> None:
        """A station begins."""
        ...

    def tick(self, done: int, total: int) -> None:
        """``done`` of ``total`` within the station."""
        ...

    def step(self, row: StepProgress) -> None:
        """An optimizer step was made."""
        ...

    def note(self, text: str) -> None:
        """A fact worth a line."""
        ...


class Quiet:
    """Tells nobody."""

    def station(self, title: str) -> None:
        """Ignored."""

    def tick(self, done: int, total: int) -> None:
        """Ignored."""

    def step(self, row: StepProgress) -> None:
        """Ignored."""

    def note(self, text: str) -> None:
        """Ignored."""
