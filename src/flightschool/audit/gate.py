"""The gate before training: only tasks with a sound audit of their present digest pass.

Audits are kept by (environment, task digest, verifier digest): changing a word of the task or a cell of a check makes
it a task that no one has audited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from flightschool.audit.verdicts import environment_wide, verifier_digest
from flightschool.errors import GateError
from flightschool.governance import AuditLog, override
from flightschool.protocols import Environment, Store
from flightschool.records import AuditVerdict, Task, TaskAudit

__all__ = ["AuditIndex", "require_sound", "save_audits"]

KIND = "audit"
MOST_NAMED = 12


def save_audits(store: Store, audits: Iterable[TaskAudit]) -> None:
    """Keep audits; an earlier audit of the same digests is replaced."""
    for audit in audits:
        store.put(KIND, _key(audit.environment, audit.task_digest, audit.verifier_digest), audit)


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
        verifier = verifier_digest(self._environment.reference(task.id))
        key = _key(self._environment.name, task.digest, verifier)
        return self._store.get(KIND, key, TaskAudit) if self._store.has(KIND, key) else None

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
    found = [(task, index.find(task)) for task in tasks]
    audits = tuple(audit for _, audit in found if audit is not None)
    refused = [
        f"{task.id} ({audit.verdict if audit is not None else AuditVerdict.UNAUDITED})"
        for task, audit in found
        if audit is None or audit.verdict is not AuditVerdict.SOUND
    ]
    wide = environment_wide(audits)
    if not refused and not wide:
        return audits
    refusal = _refusal(environment.name, refused, [finding.what for finding in wide])
    if not (actor or reason):
        raise refusal
    override(AuditLog(store), "audit", f"{environment.name}: {refusal.what}", actor, reason)
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
