"""The gate before training: only tasks with a sound audit of their present digest pass.

Audits are kept by (environment, task digest, verifier digest): changing a word of the task or a cell of a check makes
it a task that no one has audited. Audits of task folders are kept by the digest of the folder's content.

A finding on the whole environment shuts the gate for the tasks that it spared, too: whether there is one is asked of
*all* audits of the environment, not of those of the tasks at the gate, which would be the spared ones.

Who overrides the gate is kept for each task that passes by it (``waivers``): the tasks that are not sound, or all of
them where the whole environment is suspect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from flightschool.audit.terminal.records import FolderAudit
from flightschool.audit.verdicts import environment_wide, verifier_digest
from flightschool.audit.waivers import keep_waiver, kept_waiver
from flightschool.errors import FlightschoolError, GateError
from flightschool.governance import AuditLog, Override, override
from flightschool.protocols import Environment, Store
from flightschool.records import AuditVerdict, Finding, Task, TaskAudit

__all__ = [
    "AuditIndex",
    "FolderTask",
    "folder_audits",
    "folder_waiver",
    "kept_folder_audit",
    "require_sound",
    "require_sound_folders",
    "save_audits",
    "save_folder_audit",
    "task_waiver",
]

KIND = "audit"
FOLDER_KIND = "folder-audit"
MOST_NAMED = 12


def save_audits(store: Store, audits: Iterable[TaskAudit]) -> None:
    """Keep audits; an earlier audit of the same digests is replaced."""
    for audit in audits:
        store.put(KIND, _key(audit.environment, audit.task_digest, audit.verifier_digest), audit)


def save_folder_audit(store: Store, audit: FolderAudit) -> None:
    """Keep the audit of a task folder, unless its content could not be read; an earlier one of it is replaced."""
    if audit.digest:
        store.put(FOLDER_KIND, audit.digest, audit)


def kept_folder_audit(store: Store, digest: str) -> FolderAudit | None:
    """What is kept of a folder's content; None: nothing."""
    return store.get(FOLDER_KIND, digest, FolderAudit) if digest and store.has(FOLDER_KIND, digest) else None


def folder_waiver(store: Store, digest: str) -> Override | None:
    """Who let a folder of this content pass, and why; None: nobody."""
    return kept_waiver(store, digest)


def task_waiver(store: Store, audit: TaskAudit) -> Override | None:
    """Who let an environment's task train as it was audited, and why; None: nobody."""
    return kept_waiver(store, _key(audit.environment, audit.task_digest, audit.verifier_digest))


class AuditIndex:
    """Finds the audit of a task as it is now.

    Args:
        store: the workspace's store.
        environment: the environment whose tasks are asked for.
    """

    def __init__(self, store: Store, environment: Environment) -> None:
        self._store = store
        self._environment = environment

    def find(self, task: Task) -> TaskAudit | None:
        """The audit of this task with these checks, or None when there is none."""
        key = self.key(task)
        return self._store.get(KIND, key, TaskAudit) if self._store.has(KIND, key) else None

    def key(self, task: Task) -> str:
        """Under which the audit of the task as it is now, and a waiver of it, are kept."""
        verifier = verifier_digest(self._environment.reference(task.id))
        return _key(self._environment.name, task.digest, verifier)

    def all(self) -> tuple[TaskAudit, ...]:
        """The audits of all tasks of the environment that have one as they are now."""
        found: list[TaskAudit] = []
        for task in self._environment.tasks():
            with suppress(FlightschoolError):  # a task whose sealed side cannot be read has no audit as it is now
                audit = self.find(task)
                found += [audit] if audit is not None else []
        return tuple(found)

    def verdict(self, task: Task) -> AuditVerdict:
        """The task's verdict; ``unaudited`` when no audit is known."""
        audit = self.find(task)
        return audit.verdict if audit is not None else AuditVerdict.UNAUDITED

    def sound(self, tasks: Sequence[Task]) -> tuple[Task, ...]:
        """Those that may train, in their order."""
        return tuple(task for task in tasks if self.verdict(task) is AuditVerdict.SOUND)


def require_sound(
    store: Store, environment: Environment, tasks: Sequence[Task], *, actor: str = "", reason: str = ""
) -> tuple[TaskAudit, ...]:
    """Let tasks pass to training.

    Args:
        store: the workspace's store.
        environment: where the tasks come from.
        tasks: tasks that shall train.
        actor: who overrides a refusal; needs ``reason``, and is written to the audit log.
        reason: why.

    Returns:
        The audits of the tasks (of those that have one, after an override).

    Raises:
        GateError: a task is barred or unaudited, or a finding concerns the whole environment, and no one overrides.
        InputError: an override without a name or without a reason.
    """
    index = AuditIndex(store, environment)
    found = [_AtGate(task.id, index.key(task), index.find(task)) for task in tasks]
    return _pass(store, environment.name, found, environment_wide(index.all()), actor, reason)


class FolderTask(Protocol):
    """What the gate must know of a task folder (``environments.terminal.TerminalTask`` is one)."""

    @property
    def id(self) -> str:
        """For people."""
        ...

    @property
    def digest(self) -> str:
        """Of the folder's content."""
        ...


def folder_audits(store: Store, tasks: Iterable[FolderTask]) -> list[tuple[str, TaskAudit | None]]:
    """(id, audit of the folder's present content, or None) of each task."""
    kept = ((task, kept_folder_audit(store, task.digest)) for task in tasks)
    return [(task.id, None if audit is None else _as_task(audit, task)) for task, audit in kept]


def require_sound_folders(
    store: Store,
    pool: str,
    tasks: Sequence[FolderTask],
    *,
    among: Sequence[FolderTask] = (),
    actor: str = "",
    reason: str = "",
) -> tuple[TaskAudit, ...]:
    """Let task folders pass to training (see ``require_sound``).

    Args:
        store: the workspace's store, which ``flightschool audit`` wrote to.
        pool: name of the pool, for the refusal and the log.
        tasks: tasks that shall train.
        among: all tasks of the pool; a flaw that half of these share shuts the gate. The tasks themselves by default.
        actor: who overrides a refusal; needs ``reason``.
        reason: why.

    Raises:
        GateError, InputError: as ``require_sound``.
    """
    whole = [audit for _, audit in folder_audits(store, among or tasks) if audit is not None]
    audits = folder_audits(store, tasks)
    found = [_AtGate(task.id, task.digest, audit) for task, (_, audit) in zip(tasks, audits, strict=True)]
    return _pass(store, pool, found, environment_wide(whole), actor, reason)


def _as_task(audit: FolderAudit, task: FolderTask) -> TaskAudit:
    findings = (Finding(probe=f.flaw, severity=f.severity, what=f.what, evidence=f.observed) for f in audit.findings)
    return TaskAudit(
        environment=audit.path,
        task=task.id,
        task_digest=audit.digest,
        verifier_digest="",
        verdict=audit.verdict,
        findings=tuple(findings),
    )


class _AtGate(NamedTuple):
    """A task that is to pass."""

    id: str
    key: str
    """Of its audit; empty: its content could not be read."""
    audit: TaskAudit | None

    @property
    def verdict(self) -> AuditVerdict:
        return self.audit.verdict if self.audit is not None else AuditVerdict.UNAUDITED


def _pass(
    store: Store,
    place: str,
    found: Sequence[_AtGate],
    wide: Sequence[Finding],
    actor: str,
    reason: str,
) -> tuple[TaskAudit, ...]:
    audits = tuple(one.audit for one in found if one.audit is not None)
    refused = [one for one in found if one.verdict is not AuditVerdict.SOUND]
    if not refused and not wide:
        return audits
    refusal = _refusal(place, [f"{one.id} ({one.verdict})" for one in refused], [finding.what for finding in wide])
    if not (actor or reason):
        raise refusal
    waived = override(AuditLog(store), "audit", f"{place}: {refusal.what}", actor, reason)
    keep_waiver(store, [one.key for one in (found if wide else refused) if one.key], waived)
    return audits


def _refusal(environment: str, refused: Sequence[str], wide: Sequence[str]) -> GateError:
    named = ", ".join(refused[:MOST_NAMED]) + (f" and {len(refused) - MOST_NAMED} more" if refused[MOST_NAMED:] else "")
    counts = Counter(one.rsplit("(", 1)[1].rstrip(")") for one in refused)
    parts = [f"{len(refused)} task(s) are not sound: {named}"] if refused else []
    parts += [f"the whole environment is suspect: {what}" for what in wide]
    return GateError(
        "; ".join(parts),
        where=f"environment {environment}" + (f" ({dict(counts)})" if counts else ""),
        expected="every task that trains audited as sound, as it is now",
        mend="run the audit, mend or leave out the tasks named; or override with a name and a reason",
    )


def _key(environment: str, task_digest: str, verifier_digest: str) -> str:
    return f"{environment}/{task_digest}/{verifier_digest}"
