"""Overrides: a gate may be passed against its advice, but not without a name, a reason and a line in the log."""

from __future__ import annotations

from collections.abc import Iterable

from flightschool.errors import InputError
from flightschool.governance.audit_log import AuditLog
from flightschool.records import Record

__all__ = ["Override", "distinct", "override", "overrides"]

ACTION = "override"


class Override(Record, frozen=True, kw_only=True):
    """A gate that was passed against its advice; shown on every report it touches."""

    name: str
    """Who takes the responsibility."""
    reason: str
    gate: str
    """Which gate: ``audit``, ``screening``, ``freeze`` …"""
    subject: str
    """What was let through."""
    at: str
    """When, ISO 8601 UTC."""
    entry: str
    """Digest of the log entry that records it."""


def override(log: AuditLog, gate: str, subject: str, actor: str, reason: str) -> Override:
    """Write an override to the log and return it; the caller passes the gate only after that.

    Raises:
        InputError: no gate, no actor or no reason.
        StoreError: the log cannot be written, in which case the gate stays shut.
    """
    for name, value in (("gate", gate), ("actor", actor), ("reason", reason)):
        if not value.strip():
            raise InputError(
                f"an override needs a {name}",
                where=f"override of {gate or 'a gate'} for {subject!r}",
                expected="the gate, a person's name and the reason",
                mend=f"say the {name}; it is kept in the audit log",
            )
    entry = log.append(actor.strip(), ACTION, subject, {"gate": gate, "reason": reason.strip()})
    return Override(
        name=entry.actor, reason=reason.strip(), gate=gate, subject=subject, at=entry.at, entry=entry.digest
    )


def overrides(log: AuditLog) -> tuple[Override, ...]:
    """All overrides that the log holds, oldest first, for reports."""
    return tuple(
        Override(
            name=entry.actor,
            reason=str(entry.detail["reason"]),
            gate=str(entry.detail["gate"]),
            subject=entry.subject,
            at=entry.at,
            entry=entry.digest,
        )
        for entry in log.entries()
        if entry.action == ACTION
    )


def distinct(found: Iterable[Override]) -> tuple[Override, ...]:
    """Each override once, as it was first made: a job that is gone on with passes its gates, and logs it, again."""
    first: dict[tuple[str, str, str, str], Override] = {}
    for row in found:
        first.setdefault((row.gate, row.subject, row.name, row.reason), row)
    return tuple(first.values())
