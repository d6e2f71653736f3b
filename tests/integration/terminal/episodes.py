"""What comes of running one task."""

from __future__ import annotations

from typing import Any

from flightschool.rollouts.terminal import Episode


def only(results: list[Any]) -> Episode:
    (result,) = results
    assert isinstance(result, Episode), result
    return result
