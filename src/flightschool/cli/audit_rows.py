"""Audits of task folders in the shape of the command-line contract."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from flightschool.cli import output
from flightschool.cli.audit_waived import waived_row, waivers_of

if TYPE_CHECKING:
    from flightschool.audit.terminal import FlawFinding, FolderAudit
    from flightschool.protocols import Store

__all__ = ["Told", "audit_row", "finding_row", "tell_people"]

MOST_SHOWN = 40


@dataclass
class Told:
    """What was found so far; evidence is held once, in the rows."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    audits: list[FolderAudit] = field(default_factory=list)
    """Without their evidence."""
    verdicts: Counter[str] = field(default_factory=Counter)

    def add(self, audit: FolderAudit) -> None:
        """One more."""
        self.rows.append(audit_row(audit))
        self.verdicts[audit.verdict.value] += 1
        slim = [msgspec.structs.replace(found, script="") for found in audit.findings]
        self.audits.append(msgspec.structs.replace(audit, findings=tuple(slim)))

    def waive(self, store: Store) -> None:
        """Say of each task who let its present content pass against the audit's advice."""
        from flightschool.audit import folder_waiver

        for row in self.rows:
            row["waived"] = waived_row(folder_waiver(store, row["digest"]))

    def summary(self, wall_s: float) -> dict[str, Any]:
        """Counts over all, and the flaws that several tasks share; ``wall_s`` is what the whole took."""
        return {
            "num_tasks": len(self.rows),
            "verdicts": dict(sorted(self.verdicts.items())),
            "num_episodes": sum(row["num_episodes"] for row in self.rows),
            "wall_s": wall_s,
            "task_s": sum(row["wall_s"] for row in self.rows),
            "families": _families(self.audits),
            "waivers": waivers_of(self.rows),
        }


def _families(audits: Sequence[FolderAudit]) -> list[dict[str, Any]]:
    """Flaws that several tasks share, each told once with all its members."""
    from flightschool.audit.terminal.families import group_by_flaw

    return [
        {
            "class": family.flaw,
            "line": family.line,
            "members": list(family.members),
            "share": family.share,
            "num_confirmed": family.num_confirmed,
            "severity": family.severity.value,
        }
        for family in group_by_flaw(audits)
    ]


def audit_row(audit: FolderAudit) -> dict[str, Any]:
    """One audit."""
    return {
        "id": audit.id,
        "path": audit.path,
        "verdict": audit.verdict.value,
        "findings": [finding_row(found) for found in audit.findings],
        "digest": audit.digest,
        "waived": None,
        "unaudited_because": audit.unaudited_because,
        "repeats": {"num": audit.num_repeats, "flake_rate_below": audit.flake_bound, "level": 0.95},
        "not_applicable": list(audit.not_applicable),
        "equivalent_mutants": list(audit.equivalent_mutants),
        "notes": list(audit.notes),
        "readers": audit.readers,
        "num_episodes": audit.num_episodes,
        "wall_s": audit.wall_s,
    }


def finding_row(found: FlawFinding) -> dict[str, Any]:
    """One finding."""
    return {
        "class": found.flaw,
        "severity": found.severity.value,
        "confirmed": found.confirmed,
        "accuses": found.accuses.value,
        "what": found.what,
        "where": found.where,
        "evidence": {
            "script": found.script,
            "user": found.user,
            "condition": found.condition,
            "observed": found.observed,
        },
        "confidence": found.confidence,
        "mend": found.mend,
    }


def tell_people(told: Told) -> None:
    """A table of what is not sound, repaired copies, and the counts."""
    wrong = [row for row in told.rows if row["verdict"] != "sound"]
    shown = [(row["id"], row["verdict"], _first(row)) for row in wrong[:MOST_SHOWN]]
    if shown:
        output.table("Not sound", ("task", "verdict", "first finding"), shown)
    if len(wrong) > len(shown):
        output.say(f"… and {len(wrong) - len(shown)} more; --json gives all of them with their evidence")
    for row in told.rows:
        if "mended" in row and row["mended"].get("path"):
            output.say(f"repaired copy of {row['id']}: {row['mended']['path']} ({row['mended']['verdict']})")
    played = Counter((row["repeats"]["num"], row["repeats"]["flake_rate_below"]) for row in told.rows)
    for (num, bound), tasks in sorted(played.items()):
        if num and bound < 1.0:
            output.say(f"{num} plays of the reference exclude a flake rate above {bound:.1%} (95 %): {tasks} task(s)")
    counts = ", ".join(f"{count} {verdict}" for verdict, count in told.verdicts.most_common())
    output.say(f"{counts}, of {len(told.rows)} tasks")


def _first(row: dict[str, Any]) -> str:
    barring = [found for found in row["findings"] if found["severity"] == "barring"]
    if barring:
        return str(barring[0]["what"])
    return str(row["unaudited_because"] or (row["findings"][0]["what"] if row["findings"] else ""))
