"""An independent check of an exported run: ``faults`` reads ``groups.jsonl`` and ``spans.jsonl`` and nothing else.

What it knows is the documentation of the two files (see ``exporting``). A run is right when every admitted place in the
order of tasks that should have trained did so exactly once, every token that got a gradient was young enough, and no
sampled text got two. ``attempts_over_kills`` asks the journal what no export shows: whether ended attempts were used.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from flightschool.records import Record
from flightschool.training.folders import RunFolder
from flightschool.training.journal import Ended, Finished, Opened, read_journal
from flightschool.training.orchestrator import TrainResult

__all__ = ["Fault", "FaultKind", "attempts_over_kills", "faults", "read_rows"]

CONSUMED = {"trained", "zero_advantage", "too_few", "skipped"}

FaultKind: TypeAlias = Literal["lost", "doubled", "too_old", "malformed"]


class Fault(Record, frozen=True, kw_only=True):
    """Something wrong with a lineage."""

    kind: FaultKind
    """A place or attempt that never trained, one that did so twice, a token over the bound, or files that contradict
    each other."""
    what: str


def read_rows(path: Path) -> list[dict[str, Any]]:  # Any: parsed JSON
    """Rows of one of the two files."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def faults(exported: Path, *, max_staleness: int, num_tasks: int | None = None) -> list[Fault]:
    """Everything that is wrong; empty if the lineage is sound.

    Args:
        exported: folder that ``export_run`` wrote.
        max_staleness: bound of the run, in versions.
        num_tasks: places that must all have been consumed; None: what waits or is unfinished is no loss, since the run
            ended before its source did.
    """
    groups, spans = read_rows(exported / "groups.jsonl"), read_rows(exported / "spans.jsonl")
    return [*_groups(groups, num_tasks), *_spans(groups, spans, max_staleness)]


def _fault(kind: FaultKind, what: str) -> Fault:
    return Fault(kind=kind, what=what)


def _groups(groups: list[dict[str, Any]], num_tasks: int | None) -> Iterator[Fault]:
    for name, n in Counter(g["group"] for g in groups).items():
        if n > 1:
            yield _fault("doubled", f"{name} was admitted {n} times")
    consumed = sorted((g for g in groups if g["state"] in CONSUMED), key=lambda g: int(g["order"]))
    times = Counter(int(g["ordinal"]) for g in consumed)
    for ordinal, n in times.items():
        if n > 1:
            yield _fault("doubled", f"place {ordinal} was consumed {n} times")
    if num_tasks is not None:
        lost = set(range(num_tasks)) - set(times)
    else:
        alive = {int(g["ordinal"]) for g in groups if g["state"] in CONSUMED | {"waiting", "unfinished"}}
        lost = {int(g["ordinal"]) for g in groups} - alive
    for ordinal in sorted(lost):
        yield _fault("lost", f"place {ordinal} was lost")
    versions = [int(g["version_at_training"]) for g in consumed]
    if versions != sorted(versions):
        yield _fault("malformed", "the order of consumption goes back in version")
    if [int(g["order"]) for g in consumed] != list(range(len(consumed))):
        yield _fault("malformed", "the order of consumption has holes")


def _spans(groups: list[dict[str, Any]], spans: list[dict[str, Any]], max_staleness: int) -> Iterator[Fault]:
    by_name = {g["group"]: g for g in groups}
    trained_groups, texts = set(), Counter[tuple[int, int, int]]()
    for span in spans:
        yield from _lengths(span)
        if any(span["mask"]):
            group = by_name[span["group"]]
            trained_groups.add(span["group"])
            texts[group["ordinal"], span["member"], span["span"]] += 1
            yield from _trained(span, group, max_staleness)
    for (ordinal, member, number), n in texts.items():
        if n > 1:
            yield _fault("doubled", f"place {ordinal} member {member} span {number}: trained {n} times")
    silent = {g["group"] for g in groups if g["state"] == "trained"} - trained_groups
    for name in sorted(silent):
        yield _fault("lost", f"{name}: said to be trained, but has no trained token")


def _lengths(span: dict[str, Any]) -> Iterator[Fault]:
    where, num = f"{span['attempt']} span {span['span']}", len(span["tokens"])
    if len(span["mask"]) != num:
        yield _fault("malformed", f"{where}: a mask of another length")
    if span["kind"] == "completion" and not (len(span["logprobs"]) == len(span["versions"]) == num):
        yield _fault("malformed", f"{where}: log-probabilities or versions of another length")


def _trained(span: dict[str, Any], group: dict[str, Any], max_staleness: int) -> Iterator[Fault]:
    where = f"{span['attempt']} span {span['span']}"
    if span["kind"] != "completion" or group["state"] != "trained":
        yield _fault("malformed", f"{where}: trained, but is {span['kind']} of a group that is {group['state']}")
        return
    if span["version_at_training"] != group["version_at_training"]:
        yield _fault("malformed", f"{where}: trained at another version than its group")
    ages = [span["version_at_training"] - version for version in span["versions"]]
    if min(ages) < 0 or max(ages) > max_staleness:
        yield _fault("too_old", f"{where}: ages {sorted(set(ages))}")
    if any(version < group["admitted_version"] for version in span["versions"]):
        yield _fault("too_old", f"{where}: a token older than its admission")


def attempts_over_kills(run_dir: Path, max_staleness: int) -> tuple[list[str], int]:
    """Ended attempts that a later start of a finished run could have used and did not, and how many were used."""
    folder = RunFolder(run_dir)
    entries = list(read_journal(folder.journal))
    lineage = dict(msgspec.json.decode(folder.result.read_bytes(), type=TrainResult).manifest.lineage)
    begins = {e.incarnation: e.step for e in entries if isinstance(e, Opened)}
    finished = {e.ordinal: e for e in entries if isinstance(e, Finished)}
    lost, num_used = [], 0
    for entry in entries:
        if not isinstance(entry, Ended):
            continue
        again = finished.get(entry.ordinal)
        if again is None or again.incarnation == entry.incarnation:
            continue
        versions = [run.step for span in entry.attempt.spans for run in span.versions] or [begins[entry.incarnation]]
        durable = max(versions) <= lineage.get(entry.incarnation, begins[entry.incarnation])
        young = begins[again.incarnation] - min(versions) <= max_staleness
        used = entry.attempt.id in {member.id for member in again.group.members}
        num_used += used
        others = {member.index: member.id for member in again.group.members}
        if durable and young and not used and again.group.id in others[entry.attempt.index].split(":"):
            lost.append(entry.attempt.id)  # made again although it was there
    return lost, num_used
