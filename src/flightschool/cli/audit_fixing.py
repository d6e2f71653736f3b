"""``audit --fix``: repaired copies of folders with findings, audited as their originals were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flightschool.cli.audit_rows import Told, finding_row

if TYPE_CHECKING:
    from flightschool.audit.terminal import FolderAudit
    from flightschool.environments.terminal import TerminalTask

__all__ = ["fix_folders"]


def fix_folders(into: Path, told: Told, examine: Callable[[TerminalTask], FolderAudit]) -> None:
    """Write repaired copies of folders with findings, audit the copies, and tell it in their rows.

    Args:
        into: folder for the copies.
        told: audits of the originals; their rows get ``mended``.
        examine: audits a copy.
    """
    by_path = {row["path"]: row for row in told.rows}
    for audit in told.audits:
        if audit.findings:
            by_path[audit.path]["mended"] = _fixed(into / audit.id, audit, examine)


def _fixed(place: Path, audit: FolderAudit, examine: Callable[[TerminalTask], FolderAudit]) -> dict[str, Any]:
    from flightschool.audit.terminal.mends import mend
    from flightschool.audit.terminal.proposing.standing import unread_copy
    from flightschool.environments.terminal import read_folder
    from flightschool.errors import InputError

    try:
        report = mend(read_folder(Path(audit.path)), audit.findings, place)
    except InputError as error:
        return {"path": "", "why_not": str(error)}
    if not report.folder:
        return {"path": "", "why_not": "no finding of a class with a safe rewrite"}
    again = unread_copy(examine(read_folder(place)), audit)
    return {
        "path": report.folder,
        "patch": report.patch,
        "applied": [{"rule": made.rule, "file": made.file, "what": made.what} for made in report.applied],
        "verdict": again.verdict.value,
        "unaudited_because": again.unaudited_because,
        "findings": [finding_row(found) for found in again.findings],
    }
