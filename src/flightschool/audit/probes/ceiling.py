"""No habit may be worth more than its own stratum: the ceiling of constant policies over the whole environment.

A habit is a stratum's most common calls with their most common arguments. Its score is its success rate by stratum,
weighted by traffic; above the share of its own stratum, the environment rewards habit instead of skill.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from flightschool.audit.probes.base import barring
from flightschool.records import Finding

NAME = "environment.ceiling"
TOLERANCE = 1e-9

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
