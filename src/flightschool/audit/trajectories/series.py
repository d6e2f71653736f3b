"""Rules on the course of training: rewards that jump, and calls that vanish.

*Jump*: the most probable change-point by Pettitt's rank test (A. Pettitt, Applied Statistics 28, 1979):
U_k = 2 Σ_{i≤k} r_i − k(n + 1), K = max |U_k|, p ≈ 2 exp(−6K² / (n³ + n²)). Steady learning has a change-point too, so a
jump must also be sudden: most of the rise lies between the three steps before the point and the three after it. A
reward that rises too fast is the alarm of practitioners; steps of one run alone are compared.

*Interaction collapse* (ASTER, arXiv:2602.01204): tools are dropped for guessing. Fewer calls in the mean are confounded
by easy tasks that are solved later on, so only tasks solved both early and late are compared, task by task, with an
exact sign test.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median

from flightschool.audit.trajectories.records import Trait, TrajectoryFinding
from flightschool.records import Record, Severity
from flightschool.statistics import ranks

__all__ = ["ChangePoint", "change_point", "interaction_collapse", "reward_jumps"]

FEWEST_STEPS = 12
"""Below, Pettitt's approximation cannot reach MOST_JUMP_P even for a clean step."""
MOST_STEPS = 256
"""Longer courses are averaged into so many pieces, or a jump between two pieces of noise would be sought for."""
MOST_JUMP_P = 0.05
LEAST_JUMP = 0.3
"""Rise of the median reward; smaller jumps are what learning one family of tasks looks like."""
LEAST_SUDDENNESS = 0.6
"""Share of the rise that lies within the window; a straight rise over 12 steps has at most 0.5 of it there."""
WINDOW = 3
"""Steps on each side of the change-point; their median shrugs off one odd step."""

FEWEST_PAIRS = 6
"""Tasks solved early and late: with five that all fall, a sign test stands at .031, and one odd task undoes it."""
MOST_CALL_RATIO = 0.5
"""Median ratio of late to early calls of one task; honest training trims needless calls by a quarter
(EAPO, arXiv:2606.02132: 18 to 25 %)."""
MOST_SIGN_P = 0.05


class ChangePoint(Record, frozen=True, kw_only=True):
    """Where a series changes most."""

    index: int
    """First value after the change."""
    before: float
    """Median before."""
    after: float
    """Median from ``index`` on."""
    p_value: float
    suddenness: float
    """Share of the change that lies between the window before and the window after; may pass 1."""


def change_point(values: Sequence[float]) -> ChangePoint | None:
    """The most probable change-point; None for fewer than two windows of values, or values that are all the same.

    By hand: six times 0.2, then six times 0.8: the low ranks are 3.5, U_6 = 2 · 21 − 6 · 13 = −36, so
    p = 2 exp(−6 · 1296 / (1728 + 144)) = 0.0314; medians 0.2 and 0.8, all of the rise within the window.
    """
    size = len(values)
    if size < 2 * WINDOW or min(values) == max(values):
        return None
    total, best, place = 0.0, -1.0, 0
    for index, rank in enumerate(ranks(values), start=1):
        total += rank
        height = abs(2 * total - index * (size + 1))
        if WINDOW <= index <= size - WINDOW and height > best:
            best, place = height, index
    before, after = median(values[:place]), median(values[place:])
    local = median(values[place : place + WINDOW]) - median(values[place - WINDOW : place])
    return ChangePoint(
        index=place,
        before=before,
        after=after,
        p_value=min(1.0, 2 * math.exp(-6 * best**2 / (size**3 + size**2))),
        suddenness=local / (after - before) if after != before else 0.0,
    )


def reward_jumps(traits: Sequence[Trait]) -> list[TrajectoryFinding]:
    """One finding for each run whose mean reward jumps up."""
    found = []
    for lineage, by_step in _lineages(traits).items():
        steps = sorted(by_step)
        if len(steps) < FEWEST_STEPS:
            continue
        pieces = _pieces(steps, MOST_STEPS)
        means = [fmean(t.reward for step in piece for t in by_step[step]) for piece in pieces]
        point = change_point(means)
        if point is None or point.p_value > MOST_JUMP_P:
            continue
        if point.after - point.before >= LEAST_JUMP and point.suddenness >= LEAST_SUDDENNESS:
            first = pieces[point.index][0]
            told = f"{lineage}: mean reward about {point.before:.2f} before step {first}, {point.after:.2f} from it on"
            found.append(
                TrajectoryFinding(
                    rule="reward-jump",
                    severity=Severity.WARNING,
                    what="the reward jumped within a few steps: look at what the policy found there",
                    evidence=f"{told} (p = {point.p_value:.2g})",
                    attempts=tuple(t.attempt for step in pieces[point.index] for t in by_step[step] if t.passed),
                )
            )
    return found


def interaction_collapse(traits: Sequence[Trait]) -> list[TrajectoryFinding]:
    """One finding for each run whose passes make far fewer calls late than early, on the same tasks."""
    found = []
    for lineage, by_step in _lineages([t for t in traits if t.observed]).items():
        steps = sorted(by_step)
        third = len(steps) // 3
        if third == 0:
            continue
        early = _calls(by_step, steps[:third])
        late = _calls(by_step, steps[-third:])
        pairs = {task: (early[task], late[task]) for task in sorted(early.keys() & late.keys())}
        ratios = [after / before for before, after in pairs.values() if before > 0]
        if len(ratios) < FEWEST_PAIRS or median(ratios) > MOST_CALL_RATIO:
            continue
        p_value = _sign_test(sum(ratio < 1 for ratio in ratios), sum(ratio > 1 for ratio in ratios))
        if p_value <= MOST_SIGN_P:
            means = fmean(pair[0] for pair in pairs.values()), fmean(pair[1] for pair in pairs.values())
            told = f"{lineage}: {means[0]:.1f} calls early, {means[1]:.1f} late on {len(pairs)} tasks solved both times"
            lost = _failures(by_step, steps[:third], steps[-third:])
            found.append(
                TrajectoryFinding(
                    rule="interaction-collapse",
                    severity=Severity.WARNING,
                    what="passes make far fewer calls than before on the same tasks",
                    evidence=f"{told}; failures: {lost} (p = {p_value:.2g})",
                    tasks=tuple(pairs),
                )
            )
    return found


def _lineages(traits: Sequence[Trait]) -> Mapping[str, Mapping[int, list[Trait]]]:
    """Run → step → attempts."""
    found: defaultdict[str, defaultdict[int, list[Trait]]] = defaultdict(lambda: defaultdict(list))
    for trait in traits:
        if trait.lineage:
            found[trait.lineage][trait.step].append(trait)
    return found


def _pieces(steps: Sequence[int], most: int) -> list[Sequence[int]]:
    """Consecutive steps in at most so many pieces of about equal length."""
    count = min(most, len(steps))
    bounds = [round(index * len(steps) / count) for index in range(count + 1)]
    return [steps[low:high] for low, high in pairwise(bounds)]


def _calls(by_step: Mapping[int, Sequence[Trait]], steps: Sequence[int]) -> dict[str, float]:
    """Task → mean calls of its passes."""
    calls: defaultdict[str, list[int]] = defaultdict(list)
    for step in steps:
        for trait in by_step[step]:
            if trait.passed:
                calls[trait.task].append(trait.num_calls)
    return {task: fmean(numbers) for task, numbers in calls.items()}


def _failures(by_step: Mapping[int, Sequence[Trait]], early: Sequence[int], late: Sequence[int]) -> str:
    """Mean calls of failures early and late: where they fall as well, the policy gives up tools altogether."""
    means = []
    for steps in (early, late):
        numbers = [t.num_calls for step in steps for t in by_step[step] if not t.passed]
        means.append(f"{fmean(numbers):.1f}" if numbers else "none")
    return " then ".join(means)


def _sign_test(fewer: int, more: int) -> float:
    """P(at least so many of ``fewer`` + ``more`` fall), were a fall and a rise equally likely."""
    total = fewer + more
    return float(sum(math.comb(total, k) for k in range(fewer, total + 1)) / 2**total)
