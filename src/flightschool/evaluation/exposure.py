"""How often each task of a suite was shown, and to which candidate.

A task that many candidates met, or one candidate met often, has lost its surprise: whoever chooses among candidates by
their scores fits the suite a little with every look. Counted are attempts that were really flown, retries included;
judging stored attempts again shows nothing to anybody.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from flightschool.evaluation.records import EvaluationRun
from flightschool.records import Record, Suite

__all__ = ["Exposure", "exposure"]


class Exposure(Record, frozen=True, kw_only=True):
    """One task of a suite."""

    task: str
    family: str
    shown: int
    """Attempts at it, by whomever."""
    candidates: dict[str, int]
    """Policy → its attempts."""


def exposure(suite: Suite, runs: Sequence[EvaluationRun]) -> tuple[Exposure, ...]:
    """Exposure of each task, the most shown first.

    Args:
        suite: the suite.
        runs: evaluations; those on other suites, and those that only judged again, are passed over.
    """
    shown: dict[str, Counter[str]] = defaultdict(Counter)
    families: dict[str, str] = {}
    for run in runs:
        if run.suite_digest != suite.digest or run.regraded:
            continue
        for item in run.items:
            shown[item.task][run.policy] += 1 + item.num_retries
            families[item.task] = item.family
    found = [
        Exposure(
            task=task,
            family=families.get(task, ""),
            shown=shown[task].total(),
            candidates=dict(sorted(shown[task].items())),
        )
        for task in suite.task_digests
    ]
    return tuple(sorted(found, key=lambda one: -one.shown))
