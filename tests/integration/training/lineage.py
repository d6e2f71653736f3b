"""An independent check of an exported run: reads ``groups.jsonl`` and ``spans.jsonl`` and nothing else of the project.

What it knows is the documentation of the two files. A run is right when every admitted place in the order of tasks that
should have trained did so exactly once, every token that got a gradient was young enough, and no sampled text got two.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

CONSUMED = {"trained", "zero_advantage", "too_few", "skipped"}


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def faults(exported: Path, *, max_staleness: int, num_tasks: int | None = None) -> list[str]:
    """Everything that is wrong, in words; empty if the lineage is sound.

    Args:
        num_tasks: places that must all have been consumed; None: the run ended before its source did.
    """
    groups, spans = rows(exported / "groups.jsonl"), rows(exported / "spans.jsonl")
    return [*_groups(groups, num_tasks), *_spans(groups, spans, max_staleness)]


def _groups(groups: list[dict[str, Any]], num_tasks: int | None) -> list[str]:
    found = [f"{name} was admitted {n} times" for name, n in Counter(g["group"] for g in groups).items() if n > 1]
    consumed = sorted((g for g in groups if g["state"] in CONSUMED), key=lambda g: int(g["order"]))
    times = Counter(int(g["ordinal"]) for g in consumed)
    found += [f"place {ordinal} was consumed {n} times" for ordinal, n in times.items() if n > 1]
    if num_tasks is not None:
        found += [f"place {ordinal} was lost" for ordinal in sorted(set(range(num_tasks)) - set(times))]
    else:
        alive = {int(g["ordinal"]) for g in groups if g["state"] in CONSUMED | {"waiting", "unfinished"}}
        found += [f"place {place} was lost" for place in sorted({int(g["ordinal"]) for g in groups} - alive)]
    versions = [int(g["version_at_training"]) for g in consumed]
    if versions != sorted(versions):
        found.append("the order of consumption goes back in version")
    if [int(g["order"]) for g in consumed] != list(range(len(consumed))):
        found.append("the order of consumption has holes")
    return found


def _spans(groups: list[dict[str, Any]], spans: list[dict[str, Any]], max_staleness: int) -> list[str]:
    found = []
    by_name = {g["group"]: g for g in groups}
    trained_groups, texts = set(), Counter[tuple[str, str, str]]()
    for span in spans:
        where, num = f"{span['attempt']} span {span['span']}", len(span["tokens"])
        if len(span["mask"]) != num:
            found.append(f"{where}: a mask of another length")
        if span["kind"] == "completion" and not (len(span["logprobs"]) == len(span["versions"]) == num):
            found.append(f"{where}: log-probabilities or versions of another length")
        if not any(span["mask"]):
            continue
        group = by_name[span["group"]]
        trained_groups.add(span["group"])
        texts[group["ordinal"], span["attempt"].rpartition(":")[2], str(span["span"])] += 1
        if span["kind"] != "completion" or group["state"] != "trained":
            found.append(f"{where}: trained, but is {span['kind']} of a group that is {group['state']}")
            continue
        if span["version_at_training"] != group["version_at_training"]:
            found.append(f"{where}: trained at another version than its group")
        ages = [span["version_at_training"] - version for version in span["versions"]]
        if min(ages) < 0 or max(ages) > max_staleness:
            found.append(f"{where}: ages {sorted(set(ages))}")
        if any(version < group["admitted_version"] for version in span["versions"]):
            found.append(f"{where}: a token older than its admission")
    found += [f"{key}: trained {n} times" for key, n in texts.items() if n > 1]
    silent = {g["group"] for g in groups if g["state"] == "trained"} - trained_groups
    return [*found, *(f"{name}: said to be trained, but has no trained token" for name in sorted(silent))]
