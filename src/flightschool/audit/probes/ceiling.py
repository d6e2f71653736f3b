"""No habit may be worth more than its own stratum: the ceiling of constant policies over the whole environment.

A habit is a stratum's most common calls with their most common arguments. Its score is its success rate by stratum,
weighted by traffic; above the share of its own stratum, the environment rewards habit instead of skill.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from flightschool.audit.examination import Examination
from flightschool.audit.probes.base import barring
from flightschool.records import Finding

NAME = "environment.ceiling"
TOLERANCE = 1e-9


def habit_scores(exams: Sequence[Examination], shares: Mapping[str, float]) -> dict[str, float]:
    """Habit → traffic-weighted success rate over the examined tasks."""
    passes: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for exam in exams:
        for habit, passed in exam.habit_passes.items():
            passes[habit][exam.task.stratum].append(passed)
    return {
        habit: sum(shares.get(stratum, 0.0) * sum(rows) / len(rows) for stratum, rows in by_stratum.items())
        for habit, by_stratum in passes.items()
    }


def findings(exams: Sequence[Examination], shares: Mapping[str, float]) -> dict[str, Finding]:
    """Stratum → finding, for each stratum whose habit exceeds the stratum's share."""
    found = {}
    for habit, score in habit_scores(exams, shares).items():
        share = shares.get(habit, 0.0)
        if score > share + TOLERANCE:
            what = f"the habit of stratum {habit!r} scores {score:.3f}, above the stratum's share of {share:.3f}"
            found[habit] = barring(NAME, what)
    return found
