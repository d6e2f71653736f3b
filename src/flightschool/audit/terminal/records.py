"""What the audit of a task folder finds: one flaw, where it stands, how it was shown, and the mend."""

from __future__ import annotations

from flightschool.records import AuditVerdict, Record, Severity

__all__ = ["FlawFinding", "FolderAudit"]


class FlawFinding(Record, frozen=True, kw_only=True):
    """One flaw of one task folder.

    A barring finding about an exploit must be ``confirmed``: something was run and was rewarded. What was only read
    is a warning, with the reason why it could not be confirmed in ``observed``.
    """

    flaw: str
    """Slug of ``FLAWS``."""
    severity: Severity
    accuses: AuditVerdict
    what: str
    """One sentence that names what is wrong in this task."""
    where: str = ""
    """File of the folder and line (``tests/test.sh:4``), if it stands somewhere."""
    confirmed: bool = False
    """Whether the script was executed and did what ``what`` says."""
    script: str = ""
    """Program that, run as the policy of this task, shows the flaw again from itself alone."""
    user: str = ""
    """The account that the script ran as; empty: the task's own agent user."""
    condition: str = ""
    """Condition under which the script's work is graded (``rollout --grading-condition``); empty: none of its own."""
    observed: str = ""
    """What was seen: reward, end of the output, or why it could not be confirmed."""
    confidence: float = 1.0
    """0..1: 1 for what was executed."""
    mend: str = ""
    """What the task's author should change."""


class FolderAudit(Record, frozen=True, kw_only=True):
    """Result of auditing one task folder."""

    id: str
    """Path of the folder relative to what was named."""
    path: str
    digest: str
    """Of the folder's content."""
    verdict: AuditVerdict
    findings: tuple[FlawFinding, ...] = ()
    unaudited_because: str = ""
    """Why some of it could not be examined, if so."""
    num_episodes: int = 0
    """Plays and gradings, each in fresh sandboxes."""
    wall_s: float = 0.0
    num_repeats: int = 0
    """Plays of the reference solution."""
    flake_bound: float = 1.0
    """Exact upper bound (95 %) of the share of these that fail."""
    not_applicable: tuple[str, ...] = ()
    """Attacks that were not played since they cannot matter here: their name, and why."""
    notes: tuple[str, ...] = ()
    """What accuses no one: conditions that could not be tried, attacks that passed once and not again."""
    equivalent_mutants: tuple[str, ...] = ()
    """Changes of the reference's work that turned out to be the same work; their passing says nothing."""
    readers: str = ""
    """The models that proposed programs and weighed findings; empty: none was asked."""
