"""Rules that hold passes against one another: all of them in few families, and one answer for many tasks.

*Concentration*: few task names that hold all passes (marin issue 7784). Gini's index of passes by family, against what
chance gives when the same number of passes falls on the same attempts (multivariate hypergeometric): families that
were tried more often hold more passes rightly.

*Sameness* (task-blind policies, AgenticArXiv-RL pull request 40: "always search" passed .83 of one set): one fixed
sequence of calls that passes tasks which need different work. Tasks whose known solutions are equal, or as alike as the
passes, are no evidence.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from flightschool.audit.trajectories.facts import elements
from flightschool.audit.trajectories.records import TaskFacts, Trait, TrajectoryFinding
from flightschool.digest import derive_seed
from flightschool.records import Attempt, Severity

__all__ = ["Winners", "concentration", "gini"]

FEWEST_FAMILIES = 10
"""With fewer, a tenth of the families is none, and one hard family more or less looks like concentration."""
FEWEST_PASSES = 20
TOP_SHARE = 0.1
"""The families looked at: the tenth with the most passes."""
LEAST_TOP_PASSES = 0.8
"""Share of all passes in them: hard pools are uneven, but not that nine tenths of them give a fifth of the passes."""
LEAST_EXCESS = 2.0
"""Their share of the passes in terms of their share of the attempts: where most attempts are, most passes are."""
NUM_SHUFFLES = 199
"""Shuffles that must all be less concentrated: p ≤ 1/200."""

FEWEST_CALLS = 2
"""Shorter passes are hollow, and all hollow passes are alike."""
FEWEST_TASKS = 3
"""Tasks with one and the same pass where their solutions are not known: two may happen to need the same work."""
LEAST_ALIKE = 0.9
"""Jaccard similarity of tool–parameter–value sets from which on passes are called nearly the same."""
LEAST_APART = 0.2
"""By how much the solutions must be less alike than the passes."""
MOST_SHAPES = 64
"""Different passes of one row of tools that are compared with a new one; bounds the work on large stores."""


def gini(counts: Sequence[int]) -> float:
    """Gini's index Σ (2i − n − 1) x_i / (n Σ x) of sorted counts: 0 all equal, (n − 1)/n all in one. 0 for no counts.

    By hand: 0, 0, 0, 4 gives (8 − 4 − 1) · 4 / (4 · 4) = 0.75.
    """
    size, total = len(counts), sum(counts)
    if total == 0:
        return 0.0
    return sum((2 * i - size - 1) * x for i, x in enumerate(sorted(counts), start=1)) / (size * total)


def concentration(traits: Sequence[Trait], *, seed: int = 0) -> list[TrajectoryFinding]:
    """At most one finding: nearly all passes lie in few families, far beyond chance."""
    tried = Counter(trait.family for trait in traits)
    passes = Counter(trait.family for trait in traits if trait.passed)
    families = sorted(tried)
    total = sum(passes.values())
    if len(families) < FEWEST_FAMILIES or total < FEWEST_PASSES:
        return []
    top = [family for family, _ in passes.most_common(math.ceil(TOP_SHARE * len(families)))]
    share = sum(passes[family] for family in top) / total
    share_tried = sum(tried[family] for family in top) / len(traits)
    if share < max(LEAST_TOP_PASSES, LEAST_EXCESS * share_tried):
        return []
    observed = gini([passes[family] for family in families])
    by_chance = _shuffled([tried[family] for family in families], total, seed)
    if observed <= max(by_chance):
        return []
    told = f"{share:.0%} of {total} passes (of attempts {share_tried:.0%}) in {len(top)} of {len(families)} families"
    expected = sum(by_chance) / len(by_chance)
    return [
        TrajectoryFinding(
            rule="passes-in-few-families",
            severity=Severity.WARNING,
            what="nearly all passes lie in few families: look at what these reward",
            evidence=f"{told} ({', '.join(top[:3])}); Gini {observed:.2f}, by chance {expected:.2f}",
            tasks=tuple(sorted({t.task for t in traits if t.passed and t.family in top})),
        )
    ]


def _shuffled(tried: Sequence[int], total: int, seed: int) -> list[float]:
    """Gini's index of each shuffle of the passes over the attempts."""
    import numpy as np

    rng = np.random.default_rng(derive_seed("concentration", seed))
    drawn = rng.multivariate_hypergeometric(tried, total, size=NUM_SHUFFLES, method="marginals")
    return [gini([int(count) for count in row]) for row in drawn]


class Winners:
    """Passes seen so far, by what their calls do; ``add`` each, then ask for ``findings``.

    Args:
        facts: what is known of the tasks, by their digests.
    """

    def __init__(self, facts: Mapping[str, TaskFacts]) -> None:
        self._facts = facts
        self._shapes: defaultdict[tuple[str, ...], dict[frozenset[str], dict[str, list[str]]]] = defaultdict(dict)
        """Tools in their order → what the calls do → digest of the task → attempts."""
        self._names: dict[str, str] = {}

    def add(self, attempt: Attempt) -> None:
        """Take in one pass."""
        calls = [event.call for event in attempt.events]
        if len(calls) < FEWEST_CALLS:
            return
        row = tuple(call.name for call in calls)
        tasks = self._shapes[row].setdefault(elements(calls), {})
        tasks.setdefault(attempt.task_digest, []).append(attempt.id)
        self._names[attempt.task_digest] = attempt.task

    def findings(self) -> list[TrajectoryFinding]:
        """One for each pass that serves tasks of different work, one for each group of nearly equal ones."""
        found = []
        for row, shapes in self._shapes.items():
            for tasks in shapes.values():
                if self._differ(tasks):
                    what = "one sequence of calls passes tasks that need different work"
                    found.append(self._finding("same-pass", what, row, tasks))
            found += self._near(row, shapes)
        return found

    def _differ(self, tasks: Mapping[str, Sequence[str]]) -> bool:
        """Whether the tasks need different work: by their solutions, or, not knowing these, by their number."""
        known = {self._facts[task].oracle for task in tasks if task in self._facts and self._facts[task].oracle}
        unknown = sum(1 for task in tasks if task not in self._facts or not self._facts[task].oracle)
        return len(known) > 1 or unknown >= FEWEST_TASKS

    def _near(
        self, row: tuple[str, ...], shapes: Mapping[frozenset[str], Mapping[str, Sequence[str]]]
    ) -> list[TrajectoryFinding]:
        """Passes that are nearly, not wholly, the same, while the solutions of their tasks are far less alike."""
        known: list[tuple[frozenset[str], str]] = []
        alike: dict[str, list[str]] = {}
        for done, tasks in shapes.items():
            for task in tasks:
                oracle = self._facts[task].oracle if task in self._facts else frozenset()
                if not oracle:
                    continue
                for other, other_task in known:
                    if other_task == task or other == done:
                        continue
                    nearness = _jaccard(done, other)
                    if nearness < LEAST_ALIKE:
                        continue
                    if _jaccard(oracle, self._facts[other_task].oracle) <= nearness - LEAST_APART:
                        alike.setdefault(other_task, list(shapes[other][other_task]))
                        alike.setdefault(task, list(tasks[task]))
                        break
                if len(known) < MOST_SHAPES:
                    known.append((done, task))
        what = "nearly the same calls pass tasks that need different work"
        return [self._finding("near-pass", what, row, alike)] if alike else []

    def _finding(
        self, rule: str, what: str, row: Sequence[str], tasks: Mapping[str, Sequence[str]]
    ) -> TrajectoryFinding:
        return TrajectoryFinding(
            rule=rule,
            severity=Severity.WARNING,
            what=what,
            evidence=f"{len(tasks)} tasks by {' → '.join(row[:8])}{' → …' if len(row) > 8 else ''}",
            attempts=tuple(attempt for attempts in tasks.values() for attempt in attempts),
            tasks=tuple(sorted(self._names[task] for task in tasks)),
        )


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0
