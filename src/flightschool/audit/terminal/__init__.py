"""Auditing task folders whose policies execute code.

``examine_folder`` audits one by running it, ``audit_folders`` many; ``static`` holds the pass that only reads,
``mends`` what repairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightschool.lazy import on_first_use

if TYPE_CHECKING:
    from flightschool.audit.terminal.auditing import audit_folders
    from flightschool.audit.terminal.examining import examine_folder
    from flightschool.audit.terminal.families import FlawFamily, group_by_flaw
    from flightschool.audit.terminal.flaws import FLAWS, Flaw
    from flightschool.audit.terminal.journal import Journal
    from flightschool.audit.terminal.records import FlawFinding, FolderAudit
else:
    __getattr__ = on_first_use(__name__)

__all__ = [
    "FLAWS",
    "Flaw",
    "FlawFamily",
    "FlawFinding",
    "FolderAudit",
    "Journal",
    "audit_folders",
    "examine_folder",
    "group_by_flaw",
]
