"""``audit --admit``: the task folders that may train, as a list for whoever trains on them.

Trainers of other projects read task folders themselves. What they are handed is this list: it holds nothing that did
not pass the gate of ``audit.require_sound_folders``, and the digest of each folder as it was audited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flightschool.cli import output
from flightschool.cli.references import actor
from flightschool.errors import GateError, InputError

if TYPE_CHECKING:
    from flightschool.audit.terminal import FolderAudit
    from flightschool.store import SqlStore, Workspace

__all__ = ["Admitting"]


@dataclass(frozen=True, kw_only=True)
class Admitting:
    """What is to be listed as fit to train on, and against whose advice."""

    file: Path | None
    """The list; None: none is wanted."""
    waive: tuple[str, ...]
    """Ids of tasks that train though they are not sound."""
    reason: str
    """Why these do, or why a flaw of the whole pool is borne."""

    def check(self, *, static: bool, in_workspace: bool) -> None:
        """Refuse what cannot be meant. Raises ``InputError``."""
        if self.file is None and (self.waive or self.reason):
            raise InputError(
                "nothing is admitted, so nothing can be waived",
                where="--waive, --reason",
                expected="--admit FILE beside them",
                mend="name the file for the list",
            )
        if self.file is not None and static:
            raise InputError(
                "what was only read is never sound",
                where="--admit",
                expected="an audit that runs",
                mend="leave --static out",
            )
        if (self.waive or self.reason) and not in_workspace:
            raise InputError(
                "a waiver is written to the audit log of a workspace, and there is none",
                where="--waive, --reason",
                expected="a workspace around the working directory",
                mend="flightschool init DIR, then audit in it",
            )

    def admit(self, pool: str, audits: Sequence[FolderAudit], space: Workspace | None) -> dict[str, Any] | None:
        """Write the list of tasks that may train, unless the gate refuses; what is told of it.

        Args:
            pool: name of the pool, for the refusal and the log.
            audits: of all its tasks, just made.
            space: holds audits and log; None: there is no workspace.

        Raises:
            InputError: a task is waived that is none of the pool, that cannot be read, or without a reason.
        """
        from flightschool.records import AuditVerdict

        if self.file is None:
            return None
        unknown = [one for one in self.waive if one not in {audit.id for audit in audits}]
        if unknown:
            raise InputError(
                f"task {unknown[0]!r} is waived, and is none of the pool",
                where="--waive",
                expected="ids as the audit tells them",
                mend="correct it",
            )
        unread = [audit for audit in audits if audit.id in self.waive and not audit.digest]
        if unread:
            raise InputError(
                f"task {unread[0].id!r} is waived, and {unread[0].unaudited_because}",
                where=unread[0].path,
                expected="a folder whose content has a digest: what trains must be what was admitted",
                mend=f"mend the folder, or leave out --waive {unread[0].id}",
            )
        chosen = [audit for audit in audits if audit.verdict is AuditVerdict.SOUND or audit.id in self.waive]
        name = actor() if self.waive or self.reason else ""
        refused = _refused(pool, chosen or audits, audits, space, name, self.reason)
        if refused is not None:
            output.say(f"no list was written: {refused.what}", style="yellow")
            return {"file": "", "num_tasks": 0, "refused": refused.as_dict()}
        self._write(self.file, pool, chosen, name)
        output.say(f"{self.file}: {len(chosen)} of {len(audits)} tasks may train")
        return {"file": str(self.file), "num_tasks": len(chosen), "refused": None}

    def _write(self, file: Path, pool: str, chosen: Sequence[FolderAudit], name: str) -> None:
        rows = [
            {"id": one.id, "path": str(Path(one.path).resolve()), "digest": one.digest, "verdict": one.verdict.value}
            for one in chosen
        ]
        override = {"name": name, "reason": self.reason, "tasks": list(self.waive)} if name else None
        made_at = datetime.now(UTC).isoformat(timespec="seconds")
        made = {"schema": output.SCHEMA, "pool": pool, "made_at": made_at, "tasks": rows, "override": override}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=2) + b"\n")


def _refused(
    pool: str,
    chosen: Sequence[FolderAudit],
    among: Sequence[FolderAudit],
    space: Workspace | None,
    name: str,
    reason: str,
) -> GateError | None:
    """Why the gate is shut; None: it is open, or somebody overrode it."""
    from flightschool.audit import require_sound_folders

    store = _store(space, among)
    try:
        require_sound_folders(store, pool, chosen, among=among, actor=name, reason=reason)
    except GateError as refused:
        return refused
    finally:
        if space is None:
            store.close()
    return None


def _store(space: Workspace | None, audits: Sequence[FolderAudit]) -> SqlStore:
    """The workspace's, which has the audits; else one in memory."""
    from flightschool.audit import save_folder_audit
    from flightschool.store import SqlStore

    if space is not None:
        return space.store
    store = SqlStore("sqlite://")
    for audit in audits:
        save_folder_audit(store, audit)
    return store
