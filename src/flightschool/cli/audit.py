"""``audit``: can the reward of these tasks be trusted?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from flightschool.cli import output
from flightschool.cli.references import open_environment, workspace_if_any
from flightschool.cli.verb import verb

if TYPE_CHECKING:
    from flightschool.records import TaskAudit

__all__ = ["register"]

MOST_SHOWN = 25


def register(app: typer.Typer) -> None:
    """Add the verb."""
    verb(app, "audit", example="flightschool audit desk --json")(audit)


def audit(
    environment: str = typer.Argument(..., metavar="E", help="Environment: a name, or a path."),
    task: list[str] = typer.Option([], "--task", help="Audit only this task; may be repeated."),
    seed: int = typer.Option(0, "--seed", help="Seed of the mutants and random policies."),
) -> None:
    """Audit the reward of every task; ends with 1 when any task is not sound.

    In a workspace the verdicts are kept: only tasks that are sound as they are now may train.
    """
    from flightschool.audit import audit_environment, save_audits
    from flightschool.records import AuditVerdict
    from flightschool.verification import current_reward

    space = workspace_if_any()
    world = open_environment(environment, space)
    tasks = [world.task(name) for name in task] or list(world.tasks())
    reward = current_reward(None if space is None else space.store)
    with output.progress(f"auditing {world.name}", len(tasks)) as bar:
        audits = audit_environment(world, composition=reward, tasks=tasks, seed=seed, progress=bar.tick)
    if space is not None:
        save_audits(space.store, audits)
        space.close()
    counts = Counter(found.verdict.value for found in audits)
    _tell(audits, counts)
    output.finish(
        {
            "env": world.name,
            "env_digest": world.digest,
            "tasks": list(audits),
            "counts": {verdict.value: counts[verdict.value] for verdict in AuditVerdict if counts[verdict.value]},
        },
        fell_short=any(found.verdict is not AuditVerdict.SOUND for found in audits),
    )


def _tell(audits: Sequence[TaskAudit], counts: Counter[str]) -> None:
    wrong = [found for found in audits if found.verdict.value != "sound"]
    rows = [
        (found.task, found.verdict.value, found.findings[0].what if found.findings else "")
        for found in wrong[:MOST_SHOWN]
    ]
    if rows:
        output.table("Not sound", ("task", "verdict", "first finding"), rows)
    if len(wrong) > len(rows):
        output.say(f"… and {len(wrong) - len(rows)} more; --json gives all of them with their evidence")
    output.say(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()) + f", of {len(audits)} tasks")
