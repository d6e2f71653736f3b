"""``log verify``: the audit log of who did what, and whether anyone changed it."""

from __future__ import annotations

import typer

from flightschool.cli import output
from flightschool.cli.references import workspace
from flightschool.cli.verb import group, verb

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    log = group(app, "log", "The audit log: every override and every freeze, in a chain of digests.")
    verb(log, "verify", example="flightschool log verify")(verify)


def verify() -> None:
    """Check the chain of the audit log; ends with 1 when an entry was changed, removed or put in."""
    from flightschool.errors import FlightschoolError
    from flightschool.governance import AuditLog

    with workspace() as space:
        try:
            num_entries = AuditLog(space.store).verify()
        except FlightschoolError as error:
            output.say(error, style="red")
            output.finish({"ok": False, "num_entries": None, "broken": error.as_dict()}, fell_short=True)
            return
    output.say(f"{num_entries} entries, the chain is whole")
    output.finish({"ok": True, "num_entries": num_entries, "broken": None})
