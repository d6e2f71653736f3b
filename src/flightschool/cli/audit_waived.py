"""Who let tasks pass against the audit's advice: said beside every verdict that it concerns, and at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flightschool.cli import output

if TYPE_CHECKING:
    from flightschool.governance import Override

__all__ = ["tell_waivers", "waived_row", "waivers_of"]

MOST_NAMED = 8


def waived_row(waived: Override | None) -> dict[str, Any] | None:
    """A waiver in the shape of the command-line contract."""
    return None if waived is None else {"name": waived.name, "reason": waived.reason, "at": waived.at}


def waivers_of(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each waiver once, with the tasks of these rows that it concerns."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        waived = row["waived"]
        if waived is not None:
            key = (waived["name"], waived["reason"], waived["at"])
            found.setdefault(key, {**waived, "tasks": []})["tasks"].append(row["id"])
    return list(found.values())


def tell_waivers(rows: Sequence[Mapping[str, Any]]) -> None:
    """Say who waived what, when and why."""
    for one in waivers_of(rows):
        named = ", ".join(one["tasks"][:MOST_NAMED])
        more = f" and {len(one['tasks']) - MOST_NAMED} more" if len(one["tasks"]) > MOST_NAMED else ""
        output.say(f"waived by {one['name']} at {one['at']}: {named}{more}: {one['reason']}", style="yellow")
