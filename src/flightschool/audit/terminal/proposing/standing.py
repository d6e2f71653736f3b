"""What readers said of a folder stands when the same content is audited again without them."""

from __future__ import annotations

from msgspec.structs import replace

from flightschool.audit.terminal.records import FolderAudit
from flightschool.audit.terminal.verdicts import folder_verdict

__all__ = ["unread_copy", "with_reading"]


def with_reading(audit: FolderAudit, earlier: FolderAudit | None) -> FolderAudit:
    """An audit by the probes alone, with what readers found earlier in the same content.

    Probes do not see what readers see, so their silence clears nothing; and an accusation that readers weighed and
    dropped is not raised again by the same probe. What the probes find that is not in the earlier audit is added.

    Args:
        audit: just made. One by readers stands for itself.
        earlier: what is kept of the same digest; None: nothing.
    """
    if audit.readers or earlier is None or not earlier.readers or earlier.digest != audit.digest:
        return audit
    known = {(found.flaw, found.what) for found in earlier.findings}
    findings = (*earlier.findings, *(found for found in audit.findings if (found.flaw, found.what) not in known))
    return replace(
        audit,
        findings=findings,
        verdict=folder_verdict(findings, unaudited=bool(audit.unaudited_because)),
        notes=tuple(dict.fromkeys((*audit.notes, *earlier.notes))),
        readers=earlier.readers,
    )


def unread_copy(copy: FolderAudit, original: FolderAudit) -> FolderAudit:
    """The audit of a repaired copy: nobody but readers can tell that what readers found is gone."""
    if copy.readers or not original.readers:
        return copy
    return replace(
        copy,
        verdict=folder_verdict(copy.findings, unaudited=True),
        unaudited_because=copy.unaudited_because
        or "the original was read by models and the copy was not: audit it with --proposer",
    )
