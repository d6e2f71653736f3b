"""Result files of tau-bench: one JSON array of ``{task_id, trial, reward, info, traj}``.

The format keeps the simulated user's brief and the ground-truth actions under ``info.task``; both go into the hint.
A reward of 1 is a success. Tool errors are texts that begin with "Error".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flightschool.traces.formats.assembly import assemble, converse
from flightschool.traces.hints import facts_of
from flightschool.traces.loading import broken, place
from flightschool.traces.records import RecordedEpisode
from flightschool.traces.streaming import json_objects

__all__ = ["TauBenchImporter"]


class TauBenchImporter:
    """Importer of tau-bench result files."""

    format = "tau-bench"

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether the beginning of the file has the keys of a tau-bench result."""
        del path
        return head.lstrip().startswith(b"[") and b'"task_id"' in head and (b'"traj"' in head or b'"info"' in head)

    def read(self, path: Path) -> Iterator[RecordedEpisode]:
        """Episodes of the file. Raises ``TraceError`` naming file and element."""
        for number, (line, raw) in enumerate(json_objects(path)):
            yield _episode(raw, path, line, number)


def _episode(raw: dict[str, Any], path: Path, line: int, number: int) -> RecordedEpisode:
    where = place(path, line, f"element {number}")
    for key, kind in (("task_id", int | str), ("traj", list), ("info", dict)):
        if not isinstance(raw.get(key), kind):
            raise broken(
                f"{key!r} is missing or of the wrong kind", where, "task_id, trial, reward, info, traj", "mend it"
            )
    task = raw["info"].get("task") or {}
    if not isinstance(task, dict):
        raise broken("info.task is no object", where, "{instruction, actions, outputs}", "mend or remove it")
    facts = facts_of(
        {
            "task": f"task-{raw['task_id']}",
            "trial": raw.get("trial"),
            "reward": raw.get("reward"),
            "instruction": task.get("instruction"),
            "actions": task.get("actions"),
            "outputs": task.get("outputs"),
        },
        where,
    )
    return assemble(
        converse(raw["traj"], where),
        id=f"{facts.hint.id}-trial-{facts.hint.trial}",
        source=f"{path.name}:element {number}",
        facts=facts,
    )
