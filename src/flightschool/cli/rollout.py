"""``rollout``: a policy attempts tasks, and every attempt is recorded and can be replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flightschool.cli import output
from flightschool.cli.references import fault_profile, is_path, open_environment, policy, workspace_if_any
from flightschool.cli.scans import finding_row, keep_scan, scan_made, tell_findings
from flightschool.cli.verb import verb
from flightschool.cli.votes import tell_votes, votes_on
from flightschool.errors import InputError

if TYPE_CHECKING:
    from flightschool.records import Attempt, Task

__all__ = ["episode_row", "register", "spread"]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    verb(app, "rollout", example="flightschool rollout desk --policy oracle -n 8 --perturb noisy")(rollout)


def rollout(
    environment: str = typer.Argument(..., metavar="E", help="Environment: a name, a path, or task folders."),
    policy_text: str = typer.Option(
        ...,
        "--policy",
        help="oracle, noop, random, constant:FILE, script:FILE, model:DIR, run:RUN[@STEP], openai:URL#MODEL or "
        "anthropic:URL#MODEL.",
    ),
    num: int = typer.Option(8, "-n", "--num", min=1, help="Episodes; tasks repeat when there are fewer of them."),
    task: list[str] = typer.Option([], "--task", help="Only this task of an environment; may be repeated."),
    perturb: str | None = typer.Option(None, "--perturb", help="Fault profile: clean, noisy, storm, or a path."),
    seed: int = typer.Option(0, "--seed", help="Same seed, same episodes."),
    keep_output: bool = typer.Option(False, "--keep-output", help="Keep end states; of task folders tell output."),
    grading_condition: str = typer.Option(
        "",
        "--grading-condition",
        help="Grade task folders under a condition of the audit, such as later, locale-c or busy.",
    ),
    build_network: bool = typer.Option(
        False, "--build-network", help="Lend this machine's network to builds of task folders that fetch."
    ),
) -> None:
    """Let a policy attempt tasks. In a workspace every attempt is kept, for replay and for reports."""
    if is_path(environment) and Path(environment).is_dir():
        from flightschool.cli.rollout_folders import rollout_folders

        if task:
            raise InputError(
                "tasks of folders are named by their paths", where="--task", expected="a path", mend="name the folder"
            )
        rollout_folders(
            Path(environment),
            policy_text,
            num=num,
            seed=seed,
            perturb=perturb,
            keep_output=keep_output,
            condition=grading_condition,
            build_network=build_network,
        )
        return
    if grading_condition:
        raise InputError(
            "an environment is graded under one condition",
            where="--grading-condition",
            expected="task folders",
            mend="leave it out",
        )
    if build_network:
        raise InputError(
            "an environment builds nothing", where="--build-network", expected="task folders", mend="leave it out"
        )
    _rollout_environment(environment, policy_text, num=num, names=task, perturb=perturb, seed=seed, keep=keep_output)


def _rollout_environment(
    name: str, policy_text: str, *, num: int, names: Sequence[str], perturb: str | None, seed: int, keep: bool
) -> None:
    from flightschool.audit.trajectories import facts_of
    from flightschool.rollouts import EpisodeRunner, run_attempts
    from flightschool.verification import current_reward

    space = workspace_if_any()
    profile = fault_profile(perturb)
    world = open_environment(name, space)
    chosen = policy(policy_text, world, space)
    tasks = spread([world.task(one) for one in names] or world.tasks(), num, seed)
    run = "rollout"
    if space is not None:
        from flightschool.cli.runbook import open_rollout

        run = open_rollout(space.store, world, policy_text, seed, profile)
    keep_blob = space.store.put_blob if keep and space is not None else None
    reward = current_reward(None if space is None else space.store)
    runner = EpisodeRunner(world, reward, run=run, keep_blob=keep_blob)
    with output.progress(f"{chosen.name} in {world.name}", len(tasks)) as bar:
        attempts = run_attempts(runner, tasks, chosen, seed=seed, weather_profile=profile, on_attempt=bar.tick)
    store = None if space is None else space.store
    findings = scan_made(attempts, facts_of(world, {t.id: t for t in tasks}.values()), store, world.name)
    if space is not None:
        space.store.put_many(("attempt", attempt.id, attempt) for attempt in attempts)
        keep_scan(space.store, run, findings)
        space.close()
    else:
        output.say("not in a workspace: the episodes are shown, not kept")
    summary = _summary(attempts, run, profile.label if profile else "clean")
    _tell(attempts, summary)
    votes = votes_on(attempts)
    tell_votes(votes)
    tell_findings(findings)
    output.finish(
        {
            "env": world.name,
            "policy": policy_text,
            "seed": seed,
            "episodes": [episode_row(attempt) for attempt in attempts],
            "summary": {**summary, "votes": votes, "scan": [finding_row(finding) for finding in findings]},
        },
        fell_short=summary["num_scored"] + summary["num_policy_failures"] == 0,
    )


def spread(tasks: Sequence[Task], num: int, seed: int) -> list[Task]:
    """``num`` tasks in a seeded order, stratum by stratum in turn; they repeat once all were taken."""
    from flightschool.digest import derive_random

    if not tasks:
        raise InputError("the environment has no tasks", expected="at least one task", mend="build it from more traces")
    by_stratum: dict[str, list[Task]] = {}
    for task in tasks:
        by_stratum.setdefault(task.stratum, []).append(task)
    for stratum, members in by_stratum.items():
        derive_random("rollout-order", seed, stratum).shuffle(members)
    order: list[Task] = []
    for row in range(max(len(members) for members in by_stratum.values())):
        order += [members[row] for members in by_stratum.values() if row < len(members)]
    return [order[index % len(order)] for index in range(num)]


def episode_row(attempt: Attempt) -> dict[str, Any]:
    """One attempt in the shape of the command-line contract."""
    reward = attempt.reward
    terms = ("outcome", "process", "latency", "gate", "total")
    return {
        "id": attempt.id,
        "task": attempt.task,
        "outcome": attempt.outcome.value,
        "reason": attempt.reason.value,
        "cause": attempt.cause,
        "reward": None if reward is None else {term: getattr(reward, term) for term in terms},
        "violations": list(attempt.verdict.violations) if attempt.verdict is not None else [],
        "num_tool_calls": len(attempt.events),
        "num_tokens": attempt.num_completion_tokens,
        "virtual_ms": attempt.timings.virtual_ms,
        "wall_s": attempt.timings.wall_s,
        "digest": attempt.digest,
    }


def _summary(attempts: Sequence[Attempt], run: str, noise: str) -> dict[str, Any]:
    outcomes = Counter(attempt.outcome.value for attempt in attempts)
    rewards = [attempt.reward for attempt in attempts if attempt.reward is not None]
    judged = [attempt for attempt in attempts if attempt.reward is not None]

    def mean(values: Sequence[float]) -> float | None:
        return sum(values) / len(values) if values else None

    return {
        "run": run,
        "perturb": noise,
        "num_episodes": len(attempts),
        "num_scored": outcomes["scored"],
        "num_policy_failures": outcomes["policy_failure"],
        "num_infra_failures": outcomes["infra_failure"],
        "success": mean([float(reward.success) for reward in rewards]),
        "mean_reward": mean([reward.total for reward in rewards]),
        "num_violating": sum(1 for a in judged if a.verdict is not None and a.verdict.violations),
        "mean_virtual_ms": mean([attempt.timings.virtual_ms for attempt in judged]),
    }


def _tell(attempts: Sequence[Attempt], summary: dict[str, Any]) -> None:
    rows = [
        (
            attempt.task,
            attempt.outcome.value,
            attempt.reason.value,
            "none" if attempt.reward is None else f"{attempt.reward.total:.2f}",
            len(attempt.events),
            f"{attempt.timings.virtual_ms:,.0f}",
        )
        for attempt in attempts[:20]
    ]
    output.table("", ("task", "outcome", "reason", "#reward", "#calls", "#virtual ms"), rows)
    if len(attempts) > len(rows):
        output.say(f"… and {len(attempts) - len(rows)} more")
    success = "n/a" if summary["success"] is None else f"{summary['success']:.2f}"
    output.say(
        f"run {summary['run']}: success {success} over {summary['num_episodes']} episodes under {summary['perturb']}, "
        f"{summary['num_violating']} with a violation, {summary['num_infra_failures']} lost to infrastructure"
    )
