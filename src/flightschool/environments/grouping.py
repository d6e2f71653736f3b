"""Which episodes are trials of one task, which tasks are one family, and in which stratum they stand."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from flightschool.environments.tasking import Drafted
from flightschool.records import Task
from flightschool.traces import RecordedEpisode

__all__ = ["SHARED_STATE", "Trials", "families", "group_trials", "sort_trials", "strata"]

_NEAR = 92.0
_BLOCK = 512
_MOST_STRATA = 8
_LEAST_FAMILIES = 3
SHARED_STATE = "state"
"""Scope of all episodes that are known to have started from one state."""
OTHER = "other"
"""Stratum of what is too rare to stand alone."""


def group_trials(episodes: Sequence[RecordedEpisode]) -> dict[str, list[RecordedEpisode]]:
    """Task id → its trials, in the order of first sight. Without a recorded id, equal instructions are one task."""
    groups: dict[str, list[RecordedEpisode]] = {}
    for episode in episodes:
        text = " ".join(episode.instruction.split())
        made = "task-" + hashlib.sha256(text.encode()).hexdigest()[:10]
        groups.setdefault(episode.hint.id or made, []).append(episode)
    return groups


class Trials(NamedTuple):
    """Which task each episode attempted, and from which state it started."""

    groups: dict[str, list[RecordedEpisode]]
    """Task id → its trials."""
    task_of: Callable[[RecordedEpisode], str]
    scope_of: Callable[[RecordedEpisode], str]


def sort_trials(episodes: Sequence[RecordedEpisode], *, one_state: bool) -> Trials:
    """Sort episodes by task and by initial state.

    Args:
        episodes: what was recorded.
        one_state: whether all of them are known to have started from one state.
    """
    groups = group_trials(episodes)
    task_of = {episode.id: task_id for task_id, trials in groups.items() for episode in trials}

    def scope_of(episode: RecordedEpisode) -> str:
        named = episode.metadata.get("initial_state")
        if one_state:
            return SHARED_STATE
        # without a word about the state, only trials of one task can be trusted to have started from the same
        return named if isinstance(named, str) and named else task_of[episode.id]

    return Trials(groups, lambda episode: task_of[episode.id], scope_of)


def families(drafts: Sequence[tuple[Drafted, Task]]) -> dict[str, str]:
    """Task id → family: the recorded one, else near-duplicate instructions (ids and numbers apart) are one family."""
    texts = [_wording(task.instruction) for _, task in drafts]
    roots = _near_duplicates(texts)
    found: dict[str, str] = {}
    for index, (drafted, task) in enumerate(drafts):
        named = next((e.hint.family for e in drafted.episodes if e.hint.family), "")
        found[task.id] = named or f"like-{drafts[roots[index]][1].id}"
    return found


def _wording(text: str) -> str:
    """Text with every word that holds a digit masked: another id is no other wording."""
    return " ".join("#" if re.search(r"\d", word) else word for word in text.lower().split())


def _near_duplicates(texts: Sequence[str]) -> list[int]:
    """For each text the index of the first text that it is linked to by near-duplicates (single linkage)."""
    import numpy as np  # slow to import, and only needed while an environment is built
    from rapidfuzz import fuzz, process

    roots = list(range(len(texts)))

    def root(index: int) -> int:
        while roots[index] != index:
            roots[index] = roots[roots[index]]
            index = roots[index]
        return index

    for start in range(0, len(texts), _BLOCK):
        block = texts[start : start + _BLOCK]
        scores = process.cdist(block, texts, scorer=fuzz.token_sort_ratio, score_cutoff=_NEAR, dtype=np.uint8)
        for row, column in np.argwhere(scores > 0):
            left, right = root(start + int(row)), root(int(column))
            roots[max(left, right)] = min(left, right)
    return [root(index) for index in range(len(texts))]


def strata(
    drafts: Sequence[tuple[Drafted, Task]], family_of: Mapping[str, str], known: Collection[str] = ()
) -> dict[str, str]:
    """Task id → stratum: the recorded one, else the set of tools that must be called.

    Derived strata with fewer than three families, and all beyond the eight largest, become ``other``; a family stands
    in the stratum of its first task, so that a split by family can go stratum by stratum. Strata that are ``known``
    stand whatever their size.
    """
    own = {task.id: _own_stratum(drafted) for drafted, task in drafts}
    by_family: dict[str, str] = {}
    for _, task in drafts:
        by_family.setdefault(family_of[task.id], own[task.id])
    named = {e.hint.stratum for drafted, _ in drafts for e in drafted.episodes if e.hint.stratum}
    size = Counter(by_family.values())
    ranked = sorted((name for name in size if name not in named), key=lambda name: (-size[name], name))
    kept = {name for name in ranked[:_MOST_STRATA] if size[name] >= _LEAST_FAMILIES} | named | set(known)
    return {task_id: stratum if (stratum := by_family[family_of[task_id]]) in kept else OTHER for task_id in own}


def _own_stratum(drafted: Drafted) -> str:
    named = next((e.hint.stratum for e in drafted.episodes if e.hint.stratum), "")
    if named:
        return named
    if drafted.acts:
        return "+".join(drafted.acts)
    return "abstain" if drafted.reference is not None and drafted.reference.abstain else "answer"
