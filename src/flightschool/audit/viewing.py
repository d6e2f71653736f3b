"""The static pass over an environment: reads what the agent is shown, plays nothing, acquits no one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flightschool.audit.mends import mend_of
from flightschool.audit.neighbourhood import Neighbourhood
from flightschool.audit.probes import leak
from flightschool.audit.probes.base import barring, unfinished, warning
from flightschool.audit.verdicts import verifier_digest
from flightschool.audit.view import agent_view, leaks, secrets_of
from flightschool.protocols import Environment
from flightschool.records import AuditVerdict, Finding, Severity, Task, TaskAudit

__all__ = ["view_environment"]


def view_environment(
    environment: Environment, tasks: Sequence[Task] | None = None, seed: int = 0
) -> tuple[TaskAudit, ...]:
    """Look for values that the checks expect in instruction, guidance, examples and descriptions of tools.

    Returns:
        One audit a task: *leaking*, or *unaudited*, since nothing was executed.
    """
    neighbourhood = Neighbourhood(environment, seed)
    return tuple(_viewed(environment, neighbourhood, task) for task in tasks or environment.tasks())


def _viewed(environment: Environment, neighbourhood: Neighbourhood, task: Task) -> TaskAudit:
    reference = neighbourhood.references.get(task.id)
    findings: list[Finding] = []
    if reference is None:
        findings.append(unfinished("reference", neighbourhood.unreadable.get(task.id, "")))
    else:
        view = agent_view(task, neighbourhood.shown(task))
        for place, secret in leaks(view, secrets_of(task, reference, (), neighbourhood.specs)):
            tells = neighbourhood.texts.tells(view[place], secret)
            told = (leak.NAME, f"{secret[1]!r}, needed by {secret[0]}, stands in the agent's view", f"place: {place}")
            found = barring(*told) if tells else warning(*told)
            findings.append(msgspec.structs.replace(found, mend=mend_of(leak.NAME), confidence=0.8))
        for place, pair in leak.listed(task, view, neighbourhood):  # whether it must be read, only playing tells
            found = warning(leak.NAME, leak.as_told(pair), f"place: {place}")
            findings.append(msgspec.structs.replace(found, mend=mend_of(leak.NAME), confidence=0.5))
    leaking = any(finding.severity is Severity.BARRING for finding in findings)
    return TaskAudit(
        environment=environment.name,
        task=task.id,
        task_digest=task.digest,
        verifier_digest=verifier_digest(reference),
        verdict=AuditVerdict.LEAKING if leaking else AuditVerdict.UNAUDITED,
        findings=tuple(findings),
    )
