"""``audit --report``: what the verb tells, as one page for people."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flightschool.cli import output
from flightschool.cli.audit_waived import waivers_of

__all__ = ["write_page_of"]


def write_page_of(
    out: Path | None,
    pool: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    was_run: bool,
    families: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write the page of an audit.

    Args:
        out: the file; None: no page is wanted.
        pool: what was audited, as it was named.
        rows: tasks in the shape of the command-line contract.
        was_run: whether more was done than reading.
        families: flaws that tasks share, in the shape of the contract.
    """
    if out is None:
        return
    from flightschool.reports import AuditedFolder, AuditPage, SharedFlaw, ShownWaiver, write_audit

    page = AuditPage(
        pool=pool,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        was_run=was_run,
        readers=tuple(dict.fromkeys(row["readers"] for row in rows if row.get("readers"))),
        tasks=tuple(
            AuditedFolder(
                id=row["id"],
                path=row["path"],
                verdict=row["verdict"],
                because=row.get("unaudited_because", ""),
                findings=tuple(_shown(found, row) for found in row["findings"]),
                equivalent_mutants=tuple(row["equivalent_mutants"]),
                num_repeats=row["repeats"]["num"],
                flake_bound=row["repeats"]["flake_rate_below"],
                waived=row["waived"] is not None,
            )
            for row in rows
        ),
        waivers=tuple(ShownWaiver(**{**one, "tasks": tuple(one["tasks"])}) for one in waivers_of(rows)),
        families=tuple(
            SharedFlaw(
                flaw=one["class"],
                line=one["line"],
                members=tuple(one["members"]),
                share=one["share"],
                num_confirmed=one["num_confirmed"],
            )
            for one in families
            if len(one["members"]) > 1
        ),
    )
    write_audit(page, out)
    output.say(f"page written to {out}")


def _shown(found: Mapping[str, Any], row: Mapping[str, Any]) -> Any:
    from flightschool.reports import ShownFinding

    evidence, replay = _evidence(found, row)
    return ShownFinding(
        flaw=found["class"],
        severity=found["severity"],
        confirmed=found["confirmed"],
        what=found["what"],
        where=found.get("where", ""),
        observed=found["evidence"]["observed"],
        evidence=evidence,
        replay=replay,
        mend=found["mend"],
    )


def _evidence(found: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[str, str]:
    """The evidence, and the command line that plays it again; what only works for another user has none."""
    evidence = found["evidence"]
    place = shlex.quote(row["path"])
    if evidence.get("script"):
        place = place if "/" in place else f"./{place}"  # without a slash it would be a name
        under = f" --grading-condition {evidence['condition']}" if evidence["condition"] else ""
        num = 20 if found["class"] == "flaky" else 1
        replay = f"flightschool rollout {place} --policy script:evidence.sh{under} -n {num}"
        return evidence["script"], "" if evidence["user"] else replay
    if evidence.get("actions"):
        text = json.dumps({"tasks": {row["id"]: evidence["actions"]}}, indent=1, ensure_ascii=False)
        words = f"--policy script:evidence.json --task {shlex.quote(row['id'])} -n 1"
        return text, f"flightschool rollout {place} {words}"
    return "", ""
