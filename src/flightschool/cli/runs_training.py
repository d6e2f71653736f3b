"""``runs show`` of a training: its steps, the episodes behind a step, and one episode message by message."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flightschool.cli import output
from flightschool.cli.scans import finding_row, tell_findings
from flightschool.errors import NotFoundError, StoreError

if TYPE_CHECKING:
    from flightschool.audit.trajectories import TrajectoryFinding
    from flightschool.governance import Override
    from flightschool.records import Attempt, EpisodeGroup
    from flightschool.store import Workspace
    from flightschool.training.folders import RunFolder
    from flightschool.training.lines import UnreadableLine
    from flightschool.training.messages import Manifest

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
    result = _result(files)
    state = "unfinished" if result is None else "finished"
    try:
        newest = files.newest_checkpoint()
    except StoreError:  # what is wrong is told where the run is gone on with; other runs are listed all the same
        newest, state = None, state if state == "finished" else "damaged"
    return {
        "id": folder.name,
        "state": state,
        "step": _last_step(result or {}, newest[1] if newest is not None else None),
        "stopped": (result or {}).get("stopped"),
        "model": str(files.model) if files.model.is_dir() else None,
    }


def _result(files: RunFolder) -> dict[str, Any] | None:
    """What a finished run wrote last; empty where this version cannot read it, None where there is none."""
    if not files.result.is_file():
        return None
    try:
        return msgspec.json.decode(files.result.read_bytes(), type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def _last_step(result: dict[str, Any], newest: Manifest | None) -> int:
    """Optimizer steps that are kept: a finished run has no checkpoint any more, its result tells."""
    with contextlib.suppress(LookupError, TypeError):
        return int(result["manifest"]["step"])
    return newest.step if newest is not None else 0


def show_training(folder: Path, waived: Sequence[Override], findings: Sequence[TrajectoryFinding]) -> None:
    """Its steps, what was mended on the way, what the scan found, and every gate that someone overrode."""
    from flightschool.training.folders import RunFolder
    from flightschool.training.incidents import read_incidents

    files = RunFolder(folder)
    unreadable: list[str] = []
    summary, steps = training_row(folder), _steps(folder, unreadable.append)
    incidents = read_incidents(files.incidents, unreadable.append)
    started_with = _started_with(files.start)
    why = f" ({summary['stopped']})" if summary["stopped"] else ""
    output.say(f"{summary['id']}: {summary['state']}{why}, step {summary['step']}")
    if started_with and started_with.get("unaudited"):
        output.say(f"trained on unaudited tasks: “{started_with['unaudited']}”", style="yellow")
    columns = ("#row", "#step", "#success", "#reward", "#tokens", "#staleness", "")
    keys = ("number", "step", "success", "reward_total", "completion_tokens", "staleness_mean")
    output.table("", columns, [[*(_short(step.get(key)) for key in keys), _fate(step)] for step in steps])
    if steps:
        output.say(f"a step's episodes: flightschool runs show {folder.name} --step N")
    for incident in incidents:
        output.say(f"{incident.kind}: {incident.what}", style="yellow")
    for told in unreadable:
        output.say(told, style="yellow")
    tell_overrides(waived)
    tell_findings(findings)
    output.finish(
        {
            "run": summary,
            "steps": steps,
            "started_with": started_with,
            "incidents": incidents,
            "unreadable": unreadable,
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
    """The episodes that the figures of a step are made of: of every row that bears its number, in the order of writing.

    Raises:
        NotFoundError: no row with episodes bears it.
    """
    told = _steps(folder, lambda line: output.say(line, style="yellow"))
    rows = [row for row in told if row["step"] == step and row.get("groups")]
    if not rows:
        raise NotFoundError(
            f"the training has no step {step} with episodes",
            where=folder.name,
            expected=f"a step of {list(dict.fromkeys(row['step'] for row in told)) or 'a run that has stepped'}",
            mend=f"see flightschool runs show {folder.name}",
        )
    wanted = list(dict.fromkeys(name for row in rows for name in row["groups"]))  # a group can be consumed anew
    found = {group.id: group for group in _groups(folder) if group.id in set(wanted)}
    episodes = {name: [_episode_row(found[name], m) for m in found[name].members] for name in wanted if name in found}
    for row in rows:
        _tell_episodes(folder.name, row, [e for name in row["groups"] for e in episodes.get(name, ())])
    keys = ("number", "incarnation", "attempt", "skipped", "rolled_back", "groups")
    output.finish(
        {
            "run": folder.name,
            "step": step,
            "rows": [{key: row[key] for key in keys} for row in rows],
            "groups": wanted,
            "episodes": [episode for group in episodes.values() for episode in group],
        }
    )


def _tell_episodes(run: str, row: dict[str, Any], episodes: Sequence[dict[str, Any]]) -> None:
    fate = _fate(row)
    place = f"row {row['number']}{f', {fate}' if fate else ''}"
    output.say(f"{run} step {row['step']} ({place}): {len(row['groups'])} groups, {len(episodes)} episodes")
    output.table(
        "",
        ("episode", "task", "outcome", "#reward", "#tokens", "#calls", "reason"),
        [
            (
                e["id"].removeprefix(f"{run}:"),  # so that it is whole on a narrow terminal, and can be copied
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
    """One episode of a training, by its id with or without the run's name before it."""
    for group in _groups(folder):
        for member in group.members:
            if member.id in (episode, f"{folder.name}:{episode}"):
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


def _steps(folder: Path, unreadable: UnreadableLine) -> list[dict[str, Any]]:
    from flightschool.training.folders import RunFolder
    from flightschool.training.lines import read_lines

    decode = msgspec.json.Decoder(dict[str, Any]).decode
    rows = read_lines(RunFolder(folder).metrics, decode, unreadable)
    return [
        {"number": place, **row, **fate} for place, (row, fate) in enumerate(zip(rows, _fates(rows), strict=True), 1)
    ]


def _fates(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Which attempt at its step each row was, and whether a later start of the run began before it and so undid it."""
    first: dict[int, int] = {}
    for row in rows:
        first.setdefault(row["incarnation"], _version_to_make(row))
    attempts: Counter[int] = Counter()
    for row in rows:
        version = _version_to_make(row)
        attempts[version] += 1
        undone = any(start > row["incarnation"] and made <= version for start, made in first.items())
        yield {"attempt": attempts[version], "rolled_back": undone}


def _version_to_make(row: dict[str, Any]) -> int:
    """A step that was skipped bears the number of the one before it."""
    return int(row["step"]) + bool(row["skipped"])


def _fate(row: dict[str, Any]) -> str:
    """What sets a row apart from a step that was made once and stayed."""
    said = [
        f"step {_version_to_make(row)} skipped" if row["skipped"] else "",
        f"attempt {row['attempt']}" if row["attempt"] > 1 else "",
        f"start {row['incarnation']}" if row["incarnation"] else "",
        "rolled back" if row["rolled_back"] else "",
    ]
    return ", ".join(part for part in said if part)


def _started_with(path: Path) -> Any:
    return msgspec.json.decode(path.read_bytes()) if path.is_file() else None


def _short(value: object) -> str:
    return "none" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
