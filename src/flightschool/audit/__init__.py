"""Audit: does the reward of each task reward right work, all of it and nothing else?

Every task is tried by its own oracle, by cheats, by chance and by wrong variants of the oracle; the agent's view is
scanned for what should have to be read; judgements are repeated, here and in a separate process. Only a task that all
probes have seen and none accuses is ``sound``, and only sound tasks train.
"""

from flightschool.audit.auditing import Progress, audit_environment
from flightschool.audit.gate import AuditIndex, require_sound, save_audits
from flightschool.audit.probes import REQUIRED
from flightschool.audit.records import ProbeReport
from flightschool.audit.verdicts import environment_wide, verdict_of

__all__ = [
    "REQUIRED",
    "AuditIndex",
    "ProbeReport",
    "Progress",
    "audit_environment",
    "environment_wide",
    "require_sound",
    "save_audits",
    "verdict_of",
]
