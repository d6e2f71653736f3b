"""``screen``: which tasks carry signal for the model that is to be trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from flightschool.cli import output
from flightschool.cli.references import actor, fault_profile, open_environment, policy, workspace
from flightschool.cli.verb import verb

if TYPE_CHECKING:
    from flightschool.protocols import Environment
    from flightschool.records import Attempt, ScreeningDecision, Task
    from flightschool.screening import TrainingPool
    from flightschool.store import SqlStore

__all__ = ["register"]

MOST_SHOWN = 20


def register(app: typer.Typer) -> None:
    """Add the verb."""
    verb(app, "screen", example="flightschool screen desk --policy model:./my-model --budget 128")(screen)


def screen(
    pool: str = typer.Argument(..., metavar="E", help="Environment whose pool is screened: a name, or a path."),
    policy_text: str = typer.Option(..., "--policy", help="The policy that is to be trained, see rollout --help."),
    budget: int = typer.Option(256, "--budget", min=1, help="Most rollouts to spend."),
    group_size: int = typer.Option(8, "--group-size", min=2, help="Members of a training group."),
    threshold: float = typer.Option(0.2, "--threshold", min=0.0, max=1.0, help="Least probability of signal."),
    perturb: str | None = typer.Option(None, "--perturb", help="Fault profile of the rollouts."),
    seed: int = typer.Option(0, "--seed", help="Seed of the choice of tasks and of the rollouts."),
    reason: str = typer.Option(
        "", "--override", help="Screen unaudited or unmeasured tasks, for this reason (logged)."
    ),
) -> None:
    """Screen the sound tasks that no suite measures; ends with 1 when none is admitted.

    A task is admitted when a training group on it will probably hold both better and worse attempts.
    """
    from flightschool.governance import known_error
    from flightschool.rollouts import EpisodeRunner, run_attempts
    from flightschool.screening import measure_funnel, save_decisions
    from flightschool.screening import screen as decide
    from flightschool.verification import current_reward

    with workspace() as space:
        world = open_environment(pool, space)
        profile = fault_profile(perturb)
        chosen = policy(policy_text, world, space)
        candidates, tasks, num_sound = _pool(world, space.store, reason)
        known = known_error(space.store, world.digest)
        runner = EpisodeRunner(world, current_reward(space.store), run="screening")
        with output.progress(f"screening {world.name}", budget) as bar:

            def roll(tasks: Sequence[Task], seed: int) -> list[Attempt]:
                return run_attempts(runner, tasks, chosen, seed=seed, weather_profile=profile, on_attempt=bar.tick)

            decisions = decide(
                tasks,
                roll,
                policy=chosen.name,
                group_size=group_size,
                budget=budget,
                threshold=threshold,
                seed=seed,
                noise=(0.0, 0.0) if known is None else known.noise,
            )
        save_decisions(space.store, decisions)
    funnel = measure_funnel(candidates, num_sound, decisions)
    _tell(decisions)
    output.say(
        f"{funnel.pool} in the pool, {funnel.sound} sound, {funnel.screened} screened with {funnel.num_rollouts} "
        f"rollouts, {funnel.admitted} admitted"
    )
    if known is not None:
        output.say(f"signal is freed of the verifier's errors, as sheet {known.sheet} measured them")
    output.finish(
        {
            "env": world.name,
            "policy": policy_text,
            "seed": seed,
            "tasks": decisions,
            "funnel": funnel,
            "verifier_error": known,
        },
        fell_short=funnel.admitted == 0,
    )


def _pool(world: Environment, store: SqlStore, reason: str) -> tuple[int, TrainingPool, int]:
    """Number of candidates, the pool to screen, and how many of the candidates are sound."""
    from flightschool.audit import AuditIndex
    from flightschool.errors import GateError
    from flightschool.screening import TrainingPool
    from flightschool.stations import frozen_suites

    suites = frozen_suites(store, world.name)
    families = {family for suite in suites for share in suite.strata for family in share.families}
    candidates = [task for task in world.tasks() if task.family not in families]
    sound = AuditIndex(store, world).sound(candidates)
    if reason and not suites:
        return (
            len(candidates),
            TrainingPool.unmeasured(candidates, store=store, actor=actor(), reason=reason),
            len(sound),
        )
    if reason:
        from flightschool.governance import AuditLog, override

        override(AuditLog(store), "audit", world.name, actor(), reason)
    elif not sound:
        raise GateError(
            "no task of the pool is audited and sound",
            where=f"environment {world.name}",
            expected="an audit of the tasks as they are now",
            mend=f"run: flightschool audit {world.name}",
        )
    chosen = candidates if reason else list(sound)
    return len(candidates), TrainingPool(chosen, suites=suites, environment=world), len(sound)


def _tell(decisions: Sequence[ScreeningDecision]) -> None:
    ranked = sorted(decisions, key=lambda decision: -decision.signal_probability)
    rows = [
        (d.task, "yes" if d.admitted else "no", f"{d.signal_probability:.2f}", f"{d.mean_reward:.2f}", d.num_rollouts)
        for d in ranked[:MOST_SHOWN]
    ]
    output.table("Most signal first", ("task", "admitted", "#signal", "#mean reward", "#rollouts"), rows)
