"""``runs show`` of a training: its steps, the episodes behind a step, and one episode message by message."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flightschool.cli import output
from flightschool.cli.scans import finding_row, tell_findings
from flightschool.errors import NotFoundError

if TYPE_CHECKING:
    from flightschool.audit.trajectories import TrajectoryFinding
    from flightschool.governance import Override
    from flightschool.records import Attempt, EpisodeGroup
    from flightschool.store import Workspace

__all__ = [
    "show_episode",
    "show_kept",
    "show_step",
    "show_training",
    "tell_overrides",
    "training_folders",
    "training_row",
]

LONGEST_MESSAGE = 600


def training_folders(space: Workspace) -> list[Path]:
    """Folders of all trainings; beside them lie models that imitation made."""
    root = space.data / "runs"
    return sorted(path.parent for path in root.glob("*/run.json"))


def training_row(folder: Path) -> dict[str, Any]:
    """A training in one row."""
    from flightschool.training.folders import RunFolder

    files = RunFolder(folder)
    newest = files.newest_checkpoint()
    finished = files.result.is_file()
    return {
        "id": folder.name,
        "state": "finished" if finished else "unfinished",
        "step": newest[1].step if newest is not None else 0,
        "model": str(files.model) if files.model.is_dir() else None,
    }


def show_training(folder: Path, waived: Sequence[Override], findings: Sequence[TrajectoryFinding]) -> None:
    """Its steps, what was mended on the way, what the scan found, and every gate that someone overrode."""
    from flightschool.training.folders import RunFolder
    from flightschool.training.incidents import read_incidents

    files = RunFolder(folder)
    summary, steps, incidents = training_row(folder), _steps(folder), read_incidents(files.incidents)
    started_with = _started_with(files.start)
    output.say(f"{summary['id']}: {summary['state']}, step {summary['step']}")
    if started_with and started_with.get("unaudited"):
        output.say(f"trained on unaudited tasks: “{started_with['unaudited']}”", style="yellow")
    columns = ("#step", "#success", "#reward", "#tokens", "#staleness")
    keys = ("step", "success", "reward_total", "completion_tokens", "staleness_mean")
    output.table("", columns, [[_short(step.get(key)) for key in keys] for step in steps])
    for incident in incidents:
        output.say(f"{incident.kind}: {incident.what}", style="yellow")
    tell_overrides(waived)
    tell_findings(findings)
    output.finish(
        {
            "run": summary,
            "steps": steps,
            "started_with": started_with,
            "incidents": incidents,
            "overrides": waived,
            "scan": [finding_row(finding) for finding in findings],
        }
    )


def tell_overrides(waived: Sequence[Override]) -> None:
    """Say which gates were overridden, by whom and why."""
    for row in waived:
        told = f"{row.gate} gate overridden by {row.name} at {row.at}: “{row.reason}” ({row.subject[:200]})"
        output.say(told, style="yellow")


def show_step(folder: Path, step: int) -> None:
    """The episodes that the figures of a step are made of."""
    rows = [row for row in _steps(folder) if row["step"] == step and row.get("groups")]
    if not rows:
        raise NotFoundError(
            f"the training has no step {step} with episodes",
            where=folder.name,
            expected=f"a step of {[row['step'] for row in _steps(folder)] or 'a run that has stepped'}",
            mend=f"see flightschool runs show {folder.name}",
        )
    wanted = rows[-1]["groups"]
    found = {group.id: group for group in _groups(folder) if group.id in set(wanted)}
    episodes = [_episode_row(found[name], member) for name in wanted if name in found for member in found[name].members]
    output.say(f"{folder.name} step {step}: {len(wanted)} groups, {len(episodes)} episodes")
    output.table(
        "",
        ("episode", "task", "outcome", "#reward", "#tokens", "#calls", "reason"),
        [
            (
                e["id"],
                e["task"],
                e["outcome"],
                _short(e["reward"]),
                str(e["num_tokens"]),
                str(e["num_calls"]),
                e["reason"],
            )
            for e in episodes
        ],
    )
    output.finish({"run": folder.name, "step": step, "groups": wanted, "episodes": episodes})


def show_kept(folder: Path) -> None:
    """The batches that were skipped and kept, with what in them is not finite."""
    from flightschool.training.folders import RunFolder
    from flightschool.training.kept import kept_members, read_kept

    batches = []
    for batch in read_kept(RunFolder(folder).kept):
        rows = kept_members(batch)
        output.table(
            f"skipped at step {batch.step}, incarnation {batch.incarnation}: {batch.name}",
            ("episode", "not finite", "#advantage", "#tokens", "#least logprob", "#oldest step"),
            [
                (
                    row.attempt,
                    ", ".join(row.not_finite) or "nothing that was sampled or credited",
                    *(_short(v) for v in (row.advantage, row.num_tokens, row.least_logprob, row.oldest_step)),
                )
                for row in rows
            ],
        )
        batches.append({"name": batch.name, "incarnation": batch.incarnation, "step": batch.step, "members": rows})
    if not batches:
        output.say(f"{folder.name}: every step was finite, nothing was kept")
    output.finish({"run": folder.name, "kept": batches})


def show_episode(folder: Path, episode: str) -> None:
    """One episode of a training."""
    for group in _groups(folder):
        for member in group.members:
            if member.id == episode:
                _tell_episode(group, member)
                return
    raise NotFoundError(
        f"the training has no episode {episode!r}",
        where=folder.name,
        expected="an id as runs show --step lists it",
        mend=f"see flightschool runs show {folder.name} --step N",
    )


def _tell_episode(group: EpisodeGroup, member: Attempt) -> None:
    row = _episode_row(group, member)
    output.say(f"{member.id}: {row['outcome']}, {row['reason']}, reward {_short(row['reward'])}", style="bold")
    for message in member.messages:
        calls = "".join(f" → {call.name}({json.dumps(call.arguments)})" for call in message.tool_calls)
        output.say(f"{message.role:>9}: {message.content[:LONGEST_MESSAGE]}{calls}")
    for check in member.verdict.checks if member.verdict else ():
        output.say(f"{'passed' if check.passed else 'FAILED':>9}: {check.id}")
    output.finish({**row, "messages": member.messages, "verdict": member.verdict})


def _episode_row(group: EpisodeGroup, member: Attempt) -> dict[str, Any]:
    return {
        "id": member.id,
        "group": group.id,
        "task": group.task,
        "outcome": str(member.outcome),
        "reason": str(member.reason),
        "reward": None if member.reward is None else member.reward.total,
        "num_tokens": member.num_completion_tokens,
        "num_calls": len(member.events),
        "noise": member.noise,
    }


def _groups(folder: Path) -> Iterator[EpisodeGroup]:
    from flightschool.training.folders import RunFolder
    from flightschool.training.journal import Finished, read_journal

    journal = RunFolder(folder).journal
    if journal.is_file():
        yield from (entry.group for entry in read_journal(journal) if isinstance(entry, Finished))


def _steps(folder: Path) -> list[dict[str, Any]]:
    from flightschool.training.folders import RunFolder

    metrics = RunFolder(folder).metrics
    lines = metrics.read_text(encoding="utf-8").splitlines() if metrics.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def _started_with(path: Path) -> Any:
    return msgspec.json.decode(path.read_bytes()) if path.is_file() else None


def _short(value: object) -> str:
    return "none" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
