"""``rollout`` on task folders: programs in sandboxes instead of calls in a world."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flightschool.cli import output
from flightschool.cli.references import fault_profile, terminal_policy, workspace_if_any
from flightschool.cli.scans import finding_row, keep_scan, scan_made, tell_findings

if TYPE_CHECKING:
    from flightschool.environments.terminal import TerminalTask, UnreadableTask
    from flightschool.rollouts.terminal import Episode, Result
    from flightschool.store import Workspace

__all__ = ["images_folder", "result_row", "rollout_folders"]

CACHE_NAME = "flightschool"


def rollout_folders(
    path: Path,
    policy_text: str,
    *,
    num: int,
    seed: int,
    perturb: str | None,
    keep_output: bool,
    condition: str = "",
    build_network: bool = False,
) -> None:
    """Let a policy attempt the tasks of a folder, and finish the verb.

    Under a condition of grading nothing is kept in the workspace: it tells of the tests, and not of the policy.
    """
    from flightschool.environments.terminal import TerminalTask
    from flightschool.errors import InputError
    from flightschool.rollouts.terminal import Episode, condition_of, find_tasks, run_episodes

    if fault_profile(perturb) is not None:
        raise InputError(
            "there is no weather in a terminal", where="--perturb", expected="clean", mend="leave the option out"
        )
    space = workspace_if_any()
    policy = terminal_policy(policy_text, space)
    images = images_folder(space)
    tasks = find_tasks(path)
    if condition:
        under = condition_of(condition)
        policy = under.of_policy(policy)
        tasks = [under.of_task(task) if isinstance(task, TerminalTask) else task for task in tasks]
        if space is not None:
            space.close()
            space = None
    run = "rollout" if space is None else _open_run(space, path, tasks, policy_text, seed)
    keep = space.store.put_blob if keep_output and space is not None else None
    with output.progress(f"{policy.name} in {path}", num) as bar:
        results = run_episodes(
            tasks,
            policy,
            num=num,
            seed=seed,
            run=run,
            images=images,
            keep_blob=keep,
            build_network=build_network,
            on_result=bar.tick,
        )
    made = [result.attempt for result in results if isinstance(result, Episode)]
    findings = scan_made(made, {}, None if space is None else space.store, str(path))
    if space is not None:
        _keep(space, results)
        keep_scan(space.store, run, findings)
        space.close()
    rows = [result_row(result, keep_output) for result in results]
    summary = _summary(rows, run)
    _tell(rows, summary)
    tell_findings(findings)
    told = {**summary, "scan": [finding_row(finding) for finding in findings]}
    output.finish(
        {"env": str(path), "policy": policy_text, "seed": seed, "episodes": rows, "summary": told},
        fell_short=summary["num_scored"] + summary["num_policy_failures"] == 0,
    )


def _open_run(
    space: Workspace, path: Path, tasks: Sequence[TerminalTask | UnreadableTask], policy_text: str, seed: int
) -> str:
    from flightschool.cli.runbook import TaskFolders, open_rollout
    from flightschool.digest import digest

    folders = TaskFolders(name=str(path), digest=digest([getattr(task, "digest", task.id) for task in tasks]))
    return open_rollout(space.store, folders, policy_text, seed, None)


def images_folder(space: Workspace | None) -> Path:
    """Where built images are kept: with the workspace's data, else in the user's cache."""
    if space is not None:
        return space.data / "images"
    cache = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME")
    if cache is None:
        return Path.cwd() / f".{CACHE_NAME}" / "images"
    below = Path(cache) if os.environ.get("XDG_CACHE_HOME") else Path(cache) / ".cache"
    return below / CACHE_NAME / "images"


def _keep(space: Workspace, results: Sequence[Result]) -> None:
    from flightschool.rollouts.terminal import Episode

    ended = [result for result in results if isinstance(result, Episode)]
    episodes = [one for episode in ended for one in (*episode.lost, episode)]
    space.store.put_many(("attempt", episode.attempt.id, episode.attempt) for episode in episodes)
    space.store.put_many(
        ("terminal-episode", episode.attempt.id, episode.details) for episode in episodes if episode.details
    )


def result_row(result: Result, with_output: bool) -> dict[str, Any]:
    """One episode in the shape of the command-line contract; what was not attempted has an outcome of its own."""
    from flightschool.cli.rollout import episode_row
    from flightschool.environments.terminal import UnreadableTask
    from flightschool.rollouts.terminal import NotRun

    if isinstance(result, NotRun):
        return _idle_row(result.task, f"needs_{result.need}", result.reason, result.task_digest)
    if isinstance(result, UnreadableTask):
        return _idle_row(result.id, "unreadable", f"{result.what} at {result.where}", None)
    lost = [{"id": a.id, "reason": a.reason.value, "detail": a.detail} for a in (one.attempt for one in result.lost)]
    row = {**episode_row(result.attempt), "detail": result.attempt.detail, "lost": lost}
    if result.details is not None:
        row["base"] = f"{result.details.base.image} stood in for by {result.details.base.stand_in}"
        row["stood_in"] = list(result.details.stood_in)
        row["networked"] = list(result.details.networked)
    return {**row, "stages": _stages(result, with_output)}


def _idle_row(task: str, outcome: str, reason: str, digest: str | None) -> dict[str, Any]:
    return {
        "id": None,
        "task": task,
        "outcome": outcome,
        "reason": reason,
        "cause": "task",
        "reward": None,
        "violations": [],
        "num_tool_calls": 0,
        "num_tokens": 0,
        "virtual_ms": 0.0,
        "wall_s": 0.0,
        "digest": digest,
    }


def _stages(episode: Episode, with_output: bool) -> list[dict[str, Any]]:
    found = []
    for stage in episode.details.stages if episode.details else ():
        graded = stage.graded
        row: dict[str, Any] = {
            "name": stage.name,
            "reward": graded.reward if graded else None,
            "problem": graded.problem if graded else "",
            "left_out": [{"path": one.path, "why": one.why} for one in graded.left_out] if graded else [],
        }
        if with_output:
            row |= {
                "end_state": stage.blob or stage.end_state,
                "output": stage.output,
                "tests_output": graded.output if graded else "",
                "limits": [{"limit": e.limit, "kept_by": e.mechanism, "bound": e.bound} for e in stage.enforcement],
            }
        found.append(row)
    return found


def _summary(rows: Sequence[dict[str, Any]], run: str) -> dict[str, Any]:
    outcomes = Counter(row["outcome"] for row in rows)
    rewards = [row["reward"]["total"] for row in rows if row["reward"] is not None]
    return {
        "run": run,
        "perturb": "clean",
        "num_episodes": len(rows),
        "num_scored": outcomes["scored"],
        "num_policy_failures": outcomes["policy_failure"],
        "num_infra_failures": outcomes["infra_failure"],
        "num_retries": sum(len(row.get("lost", ())) for row in rows),
        "num_not_run": sum(n for name, n in outcomes.items() if name.startswith("needs_") or name == "unreadable"),
        "success": sum(reward >= 1.0 for reward in rewards) / len(rewards) if rewards else None,
        "mean_reward": sum(rewards) / len(rewards) if rewards else None,
        "outcomes": dict(sorted(outcomes.items())),
    }


def _tell(rows: Sequence[dict[str, Any]], summary: dict[str, Any]) -> None:
    shown = [
        (
            row["task"],
            row["outcome"],
            row.get("detail") or row["reason"],
            "none" if row["reward"] is None else f"{row['reward']['total']:.2f}",
            f"{row['wall_s']:.2f}",
        )
        for row in rows[:40]
    ]
    output.table("", ("task", "outcome", "reason", "#reward", "#seconds"), shown)
    if len(rows) > len(shown):
        output.say(f"… and {len(rows) - len(shown)} more")
    success = "n/a" if summary["success"] is None else f"{summary['success']:.2f}"
    output.say(
        f"run {summary['run']}: success {success} over {summary['num_episodes']} episodes, "
        f"{summary['num_not_run']} not attempted, {summary['num_infra_failures']} lost to infrastructure "
        f"({summary['num_retries']} tried again)"
    )
