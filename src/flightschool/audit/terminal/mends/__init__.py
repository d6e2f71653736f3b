"""Mends: a repaired copy of a task's folder for the classes of flaws that have a safe rewrite."""

from flightschool.audit.terminal.mends.mending import mend
from flightschool.audit.terminal.mends.records import AppliedMend, LeftFlaw, MendReport

__all__ = ["AppliedMend", "LeftFlaw", "MendReport", "mend"]
