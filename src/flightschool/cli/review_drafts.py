"""``review drafts · sign · reject``: a person decides about each proposed check."""

from __future__ import annotations

from pathlib import Path

import typer

from flightschool.cli import output
from flightschool.cli.env_drafts import tell_drafts
from flightschool.cli.env_package import refresh
from flightschool.cli.references import actor, workspace

__all__ = ["drafts", "reject", "sign"]


def drafts(environment: str = typer.Argument(..., metavar="E", help="An environment with drafts.")) -> None:
    """List proposed checks and what was decided about them."""
    from flightschool.environments import load_drafts, load_record

    with workspace() as space:
        load_record(space.store, environment)
        found = load_drafts(space.store, environment)
    tell_drafts(found)
    decided = [one for one in found if one.status != "draft"]
    for one in decided:
        output.say(f"{one.id}: {one.status} by {one.by}: {one.reason}")
    output.finish({"env": environment, "drafts": found, "num_open": len(found) - len(decided)})


def sign(
    environment: str = typer.Argument(..., metavar="E", help="An environment with drafts."),
    draft: str = typer.Argument(..., metavar="ID", help="A draft, as `review drafts` names it."),
    reason: str = typer.Option(..., "--reason", help="Why it is right; kept in the audit log."),
    edit: Path | None = typer.Option(None, "--edit", help="TOML file with one [[check]] to sign instead."),
) -> None:
    """Sign a draft, as proposed or as edited: from then on it scores. The environment has another digest then."""
    from flightschool.verification import load_checks

    edited = load_checks(edit)[0] if edit is not None else None
    _decide(environment, draft, True, reason, edited)


def reject(
    environment: str = typer.Argument(..., metavar="E", help="An environment with drafts."),
    draft: str = typer.Argument(..., metavar="ID", help="A draft, as `review drafts` names it."),
    reason: str = typer.Option(..., "--reason", help="Why it is wrong; kept in the audit log."),
) -> None:
    """Reject a draft: it never scores, and is not proposed again."""
    _decide(environment, draft, False, reason, None)


def _decide(environment: str, draft: str, yes: bool, reason: str, edited: object) -> None:
    from flightschool.environments import decide, load_record
    from flightschool.governance import AuditLog
    from flightschool.records import CheckSpec

    check = edited if isinstance(edited, CheckSpec) else None
    with workspace() as space:
        before = load_record(space.store, environment).digest
        action = "draft check signed" if yes else "draft check rejected"
        decided = decide(space.store, environment, draft, sign=yes, by=actor(), reason=reason, edited=check)
        record = load_record(space.store, environment)
        digest = record.digest
        detail = {"draft": draft, "reason": reason, "edited": check is not None, "before": before, "after": digest}
        AuditLog(space.store).append(actor(), action, environment, detail)
        if digest != before:
            refresh(space, record)
    output.say(f"{draft}: {decided.status}" + (f"; {environment} is now {digest}" if digest != before else ""))
    output.finish({"env": environment, "draft": decided, "digest": digest})
