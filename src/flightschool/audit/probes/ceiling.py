"""No habit may be worth more than its own stratum: the ceiling of constant policies over the whole environment.

A habit is a stratum's most common calls with their most common arguments. Its score is its success rate by stratum,
weighted by traffic; above the share of its own stratum, the environment rewards habit instead of skill.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from flightschool.audit.examination import turns_of
from flightschool.audit.probes.base import barring
from flightschool.audit.probes.constant import HABIT_ANSWER
from flightschool.records import Finding, Json, Message, Task, ToolCall

NAME = "environment.ceiling"
TOLERANCE = 1e-9
_MOST_NAMED = 5

HabitPasses: TypeAlias = tuple[str, Mapping[str, bool]]
"""(stratum of a task, stratum → whether that stratum's habit passed the task)."""


def habit_scores(passed: Sequence[HabitPasses], shares: Mapping[str, float]) -> dict[str, float]:
    """Habit → traffic-weighted success rate over the examined tasks."""
    rows: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for stratum, passes in passed:
        for habit, success in passes.items():
            rows[habit][stratum].append(success)
    return {
        habit: sum(shares.get(stratum, 0.0) * sum(one) / len(one) for stratum, one in by_stratum.items())
        for habit, by_stratum in rows.items()
    }


def findings(passed: Sequence[HabitPasses], shares: Mapping[str, float]) -> dict[str, Finding]:
    """Stratum → finding, for each stratum whose habit exceeds the stratum's share."""
    found = {}
    for habit, score in habit_scores(passed, shares).items():
        share = shares.get(habit, 0.0)
        if score > share + TOLERANCE:
            what = f"the habit of stratum {habit!r} scores {score:.3f}, above the stratum's share of {share:.3f}"
            found[habit] = barring(NAME, what)
    return found


def at(task: Task, finding: Finding, habit: Sequence[ToolCall], passed: Sequence[str], num_played: int) -> Finding:
    """A stratum's finding as it is told at one task: what was played where, and the play itself where it passed.

    Args:
        task: the task.
        finding: of its stratum.
        habit: calls that were played.
        passed: ids of the tasks that they passed, at least one.
        num_played: tasks at which they were played.
    """
    turns = turns_of(habit, HABIT_ANSWER, task.max_turns)
    names = ", ".join(passed[:_MOST_NAMED]) + (" …" if len(passed) > _MOST_NAMED else "")
    here = "at this one too" if task.id in passed else "not at this one"
    script = json.dumps({"tasks": {passed[0]: [_as_script(turn) for turn in turns]}}, ensure_ascii=False)
    evidence = f"full reward at {len(passed)} of {num_played} tasks ({names}), {here}; a script for the first: {script}"
    return msgspec.structs.replace(finding, evidence=evidence, actions=turns if task.id in passed else ())


def _as_script(turn: Message) -> list[dict[str, Json]] | str:
    calls: list[dict[str, Json]] = [{"name": call.name, "arguments": call.arguments} for call in turn.tool_calls]
    return calls or turn.content
