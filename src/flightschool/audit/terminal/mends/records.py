"""Records of a mend: what was rewritten, what was left, and where the copy lies."""

from __future__ import annotations

from flightschool.records import Record

__all__ = ["AppliedMend", "LeftFlaw", "MendReport"]


class AppliedMend(Record, frozen=True, kw_only=True):
    """One rewrite."""

    rule: str
    flaws: tuple[str, ...]
    """Classes that it is for."""
    file: str
    """The main file changed, relative to the folder."""
    what: str


class LeftFlaw(Record, frozen=True, kw_only=True):
    """A finding for which no safe rewrite is known, or none applied."""

    flaw: str
    where: str
    why: str


class MendReport(Record, frozen=True, kw_only=True):
    """The repaired copy of a task. Whether it is sound is for a new audit to say."""

    task: str
    folder: str
    """The repaired copy; empty: nothing was written, since no rule applied."""
    patch: str
    """The unified diff beside it; empty as above."""
    applied: tuple[AppliedMend, ...] = ()
    left: tuple[LeftFlaw, ...] = ()
