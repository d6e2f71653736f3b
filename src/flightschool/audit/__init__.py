"""Audit: does the reward of each task reward right work, all of it and nothing else?

Every task is tried by its own oracle, by cheats, by chance and by wrong variants of the oracle; the agent's view is
scanned for what should have to be read; judgements are repeated, here and in a separate process. Only a task that all
probes have seen and none accuses is ``sound``, and only sound tasks train.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightschool.lazy import on_first_use

if TYPE_CHECKING:
    from flightschool.audit.auditing import Progress, audit_environment
    from flightschool.audit.flake_rate import repeats_to_exclude
    from flightschool.audit.gate import (
        AuditIndex,
        FolderTask,
        folder_audits,
        folder_waiver,
        kept_folder_audit,
        require_sound,
        require_sound_folders,
        save_audits,
        save_folder_audit,
        task_waiver,
    )
    from flightschool.audit.probes import REQUIRED
    from flightschool.audit.records import ProbeReport, TaskReports
    from flightschool.audit.resuming import open_journal
    from flightschool.audit.verdicts import environment_wide, verdict_of
    from flightschool.audit.viewing import view_environment
else:
    __getattr__ = on_first_use(__name__)

__all__ = [
    "REQUIRED",
    "AuditIndex",
    "FolderTask",
    "ProbeReport",
    "Progress",
    "TaskReports",
    "audit_environment",
    "environment_wide",
    "folder_audits",
    "folder_waiver",
    "kept_folder_audit",
    "open_journal",
    "repeats_to_exclude",
    "require_sound",
    "require_sound_folders",
    "save_audits",
    "save_folder_audit",
    "task_waiver",
    "verdict_of",
    "view_environment",
]
