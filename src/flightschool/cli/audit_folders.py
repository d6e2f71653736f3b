"""``audit`` on task folders: read, attacked, judged; finished ones are kept, so that a run that was stopped goes on."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flightschool.cli import output
from flightschool.cli.audit_admitting import Admitting
from flightschool.cli.audit_report import write_page_of
from flightschool.cli.references import existing_path, workspace_if_any
from flightschool.cli.rollout_folders import CACHE_NAME

if TYPE_CHECKING:
    from flightschool.audit.terminal import FlawFinding, FolderAudit
    from flightschool.environments.terminal import TerminalTask, UnreadableTask
    from flightschool.store import Workspace

__all__ = ["ReaderNames", "audit_folders_verb", "audit_row", "data_folder"]

MOST_SHOWN = 40


@dataclass(frozen=True, kw_only=True)
class ReaderNames:
    """The models that read folders, as the user named them; empty: none."""

    proposer: str = ""
    checker: str = ""

    def check(self, *, static: bool) -> None:
        """Refuse what cannot be meant. Raises ``InputError``."""
        from flightschool.errors import InputError

        if self.checker and not self.proposer:
            raise InputError(
                "nothing is proposed, so nothing is weighed",
                where="--checker",
                expected="--proposer beside it",
                mend="name the model that proposes programs",
            )
        if self.proposer and static:
            raise InputError(
                "what a model proposes is run",
                where="--proposer",
                expected="an audit that runs",
                mend="leave --static out",
            )


def audit_folders_verb(
    paths: Sequence[str],
    *,
    static: bool,
    fix: Path | None,
    repeats: int,
    fresh: bool,
    seed: int,
    admitting: Admitting,
    report: Path | None,
    readers: ReaderNames,
) -> None:
    """Audit the tasks of folders, and finish the verb.

    Args:
        paths: as the user named them.
        static: read only.
        fix: folder for repaired copies; None: none are made.
        repeats: plays of each reference.
        fresh: forget what was finished earlier.
        seed: of the plays.
        admitting: what is to be listed as fit to train on.
        report: file for a page; None: none is wanted.
        readers: models that read the folders.
    """
    from flightschool.audit import save_folder_audit
    from flightschool.audit.terminal.auditing import audit_folders
    from flightschool.audit.terminal.journal import Journal, journal_name
    from flightschool.audit.terminal.proposing import open_readers

    for path in paths:
        _check(path)
    readers.check(static=static)
    space = workspace_if_any()
    admitting.check(static=static, in_workspace=space is not None)
    data = data_folder(space)
    name = journal_name("\n".join(str(Path(path).resolve()) for path in paths))
    mode = "read" if static else f"run {repeats} {seed}"
    journal = Journal(data / "audits" / name, mode, fresh=fresh)
    told = _Told()
    from flightschool.environments.terminal import count_tasks

    num_tasks = sum(count_tasks(Path(path)) for path in paths)
    with (
        open_readers(readers.proposer, readers.checker) as models,
        output.progress(f"auditing {', '.join(paths)}", num_tasks) as bar,
    ):

        def on_audit(audit: FolderAudit) -> None:
            told.add(audit)
            if space is not None and not static:  # what only was read must not replace what was run
                save_folder_audit(space.store, audit)
            bar.tick()

        audit_folders(
            _tasks(paths),
            images=data / "images",
            journal=journal,
            static_only=static,
            repeats=repeats,
            seed=seed,
            readers=models,
            readers_journal=None if models is None else Journal(data / "audits" / name, f"{mode} {models.mode}"),
            on_audit=on_audit,
        )
    if fix is not None:
        _fix(fix, told, data, static, repeats, seed)
    _tell(told.rows, told.verdicts)
    admitted = admitting.admit(", ".join(paths), told.audits, space)
    if space is not None:
        space.close()
    summary = told.summary()
    write_page_of(report, ", ".join(paths), told.rows, was_run=not static, families=summary["families"])
    payload = {"tasks": told.rows, "summary": summary, **({} if admitted is None else {"admitted": admitted})}
    output.finish(payload, fell_short=set(told.verdicts) != {"sound"})


@dataclass
class _Told:
    """What was found so far; evidence is held once, in the rows."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    audits: list[FolderAudit] = field(default_factory=list)
    """Without their evidence."""
    verdicts: Counter[str] = field(default_factory=Counter)

    def add(self, audit: FolderAudit) -> None:
        self.rows.append(audit_row(audit))
        self.verdicts[audit.verdict.value] += 1
        slim = [msgspec.structs.replace(found, script="") for found in audit.findings]
        self.audits.append(msgspec.structs.replace(audit, findings=tuple(slim)))

    def summary(self) -> dict[str, Any]:
        return {
            "num_tasks": len(self.rows),
            "verdicts": dict(sorted(self.verdicts.items())),
            "num_episodes": sum(row["num_episodes"] for row in self.rows),
            "wall_s": sum(row["wall_s"] for row in self.rows),
            "families": _families(self.audits),
        }


def _check(path: str) -> None:
    from flightschool.errors import InputError

    if not existing_path(path, "task folder").is_dir():
        raise InputError("not a folder", where=path, expected="a task folder or one that holds tasks", mend="check it")


def _tasks(paths: Sequence[str]) -> Iterator[TerminalTask | UnreadableTask]:
    """Tasks of all that was named, one in memory at a time; ids are relative to the name that they were found under."""
    from flightschool.environments.terminal import iter_tasks

    for path in paths:
        yield from iter_tasks(Path(path))


def data_folder(space: Workspace | None) -> Path:
    """Where images and finished audits are kept: with the workspace's data, else in the user's cache."""
    if space is not None:
        return space.data
    cache = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME")
    if cache is None:
        return Path.cwd() / f".{CACHE_NAME}"
    below = Path(cache) if os.environ.get("XDG_CACHE_HOME") else Path(cache) / ".cache"
    return below / CACHE_NAME


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


# ------------------------------------------------------------------------------------------------ rows


def audit_row(audit: FolderAudit) -> dict[str, Any]:
    """One audit in the shape of the command-line contract."""
    return {
        "id": audit.id,
        "path": audit.path,
        "verdict": audit.verdict.value,
        "findings": [_finding(found) for found in audit.findings],
        "digest": audit.digest,
        "unaudited_because": audit.unaudited_because,
        "repeats": {"num": audit.num_repeats, "flake_rate_below": audit.flake_bound, "level": 0.95},
        "not_applicable": list(audit.not_applicable),
        "notes": list(audit.notes),
        "readers": audit.readers,
        "num_episodes": audit.num_episodes,
        "wall_s": audit.wall_s,
    }


def _finding(found: FlawFinding) -> dict[str, Any]:
    return {
        "class": found.flaw,
        "severity": found.severity.value,
        "confirmed": found.confirmed,
        "accuses": found.accuses.value,
        "what": found.what,
        "where": found.where,
        "evidence": {"script": found.script, "user": found.user, "observed": found.observed},
        "confidence": found.confidence,
        "mend": found.mend,
    }


# ------------------------------------------------------------------------------------------------ repairing


def _fix(into: Path, told: _Told, data: Path, static: bool, repeats: int, seed: int) -> None:
    """Write repaired copies of folders with findings, audit the copies, and tell it in their rows."""
    from flightschool.audit.terminal.auditing import audit_folders
    from flightschool.audit.terminal.mends import mend
    from flightschool.environments.terminal import read_folder
    from flightschool.errors import InputError

    by_path = {row["path"]: row for row in told.rows}
    for audit in told.audits:
        if not audit.findings:
            continue
        place = into / audit.id
        try:
            report = mend(read_folder(Path(audit.path)), audit.findings, place)
        except InputError as error:
            by_path[audit.path]["mended"] = {"path": "", "why_not": str(error)}
            continue
        if not report.folder:
            by_path[audit.path]["mended"] = {"path": "", "why_not": "no finding of a class with a safe rewrite"}
            continue
        again: list[FolderAudit] = []
        audit_folders(
            [read_folder(place)],
            images=data / "images",
            static_only=static,
            repeats=repeats,
            seed=seed,
            on_audit=again.append,
        )
        left = [_finding(found) for found in again[0].findings]
        by_path[audit.path]["mended"] = {
            "path": report.folder,
            "patch": report.patch,
            "applied": [{"rule": made.rule, "file": made.file, "what": made.what} for made in report.applied],
            "verdict": again[0].verdict.value,
            "findings": left,
        }


# ------------------------------------------------------------------------------------------------ people


def _tell(rows: Sequence[dict[str, Any]], verdicts: Counter[str]) -> None:
    wrong = [row for row in rows if row["verdict"] != "sound"]
    shown = [(row["id"], row["verdict"], _first(row)) for row in wrong[:MOST_SHOWN]]
    if shown:
        output.table("Not sound", ("task", "verdict", "first finding"), shown)
    if len(wrong) > len(shown):
        output.say(f"… and {len(wrong) - len(shown)} more; --json gives all of them with their evidence")
    for row in rows:
        if "mended" in row and row["mended"].get("path"):
            output.say(f"repaired copy of {row['id']}: {row['mended']['path']} ({row['mended']['verdict']})")
    output.say(", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common()) + f", of {len(rows)} tasks")


def _first(row: dict[str, Any]) -> str:
    barring = [found for found in row["findings"] if found["severity"] == "barring"]
    if barring:
        return str(barring[0]["what"])
    return str(row["unaudited_because"] or (row["findings"][0]["what"] if row["findings"] else ""))
