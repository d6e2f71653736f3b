"""Records of the screening room."""

from __future__ import annotations

from flightschool.records import Record

__all__ = ["Funnel"]


class Funnel(Record, frozen=True, kw_only=True):
    """How many tasks were left at each gate, and what it cost to know."""

    pool: int
    """Tasks that the freeze left to train on."""
    sound: int
    """Of these, audited and found sound."""
    screened: int
    """Of these, decided with evidence: rollouts of their own or of their family."""
    admitted: int
    """Of these, likely enough to carry reward variance."""
    num_rollouts: int
    """Attempts spent, infra failures included."""
    num_scored: int
    """Attempts that were evidence."""
