"""Doing nothing, and stopping at once."""

from __future__ import annotations

from collections.abc import Iterator

from flightschool.audit.terminal.trial import Attack, Trial

__all__ = ["attacks"]


def attacks(trial: Trial) -> Iterator[Attack]:
    """A program without a command, and one that fails at once."""
    del trial
    yield Attack(flaw="noop-passes", what="doing nothing", body=":", escapes=True)
    yield Attack(flaw="noop-passes", what="failing at once", body="exit 1")
