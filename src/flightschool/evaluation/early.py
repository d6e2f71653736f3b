"""Looking early: two policies measured side by side, tasks in random order, until it is decided.

Half of the error probability is spent on looking, half on the end. It ends early only when three things agree:

* the confidence sequence for the *whole suite* (``statistics.FinitePopulation``, sampling without replacement) leaves
  out 0: measuring all that is left could not turn the sign;
* the e-value of the discordant pairs is at least 2/α: no chance finding among tasks like these, however often one
  looked;
* ``compare`` on what was measured finds the decision reliable.

Otherwise all tasks are measured, and ``compare`` decides as ever. The order depends on the suite and the seed alone. A
missing grade is taken as the worst for each bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from flightschool.digest import derive_random
from flightschool.digest import digest as content_digest
from flightschool.errors import GateError, InputError
from flightschool.evaluation.comparison import compare
from flightschool.evaluation.metrics import METRICS
from flightschool.evaluation.records import Comparison, EvaluationItem, EvaluationRun
from flightschool.governance import AuditLog
from flightschool.protocols import Store
from flightschool.records import Record, Suite
from flightschool.statistics import FinitePopulation

__all__ = ["BATCH", "EARLY_KIND", "EarlyComparison", "Look", "compare_early", "keep_early", "load_earlies"]

BATCH = 8
"""Tasks between two looks."""
EARLY_KIND = "early-comparison"
"""Kept apart from evaluations: a run that ended because of what it showed is nobody's score."""
ACTION = "compare early"
_SUCCESS = METRICS[0]

MeasureBoth = Callable[[Sequence[str]], tuple[EvaluationRun, EvaluationRun]]
"""Measures baseline and candidate on these tasks."""


class Look(Record, frozen=True, kw_only=True):
    """What was known after some of the tasks."""

    num_tasks: int
    """Tasks measured so far."""
    low: float
    high: float
    """Between these lies what the whole suite would show, at all looks together."""
    e_value: float


class EarlyComparison(Record, frozen=True, kw_only=True):
    """Two policies compared with looks on the way."""

    id: str
    comparison: Comparison
    """On the tasks that were measured."""
    num_tasks: int
    """Of the suite."""
    looks: tuple[Look, ...]
    ended_early: bool
    before: EvaluationRun
    after: EvaluationRun

    @property
    def digest(self) -> str:
        """Digest of what was measured and seen."""
        return content_digest([self.before.digest, self.after.digest, self.comparison, list(self.looks)])


def compare_early(
    suite: Suite,
    measure: MeasureBoth,
    *,
    comparison_id: str,
    seed: int = 0,
    batch: int = BATCH,
    alpha: float = 0.05,
    judge_alpha: Callable[[EvaluationRun, EvaluationRun], float | None] = lambda *_: None,
    on_look: Callable[[Look], None] = lambda _: None,
) -> EarlyComparison:
    """Measure task by task until it is decided.

    Args:
        suite: as loaded.
        measure: measures both policies on the tasks it is given.
        comparison_id: what this is kept under.
        seed: of the order.
        batch: tasks between two looks.
        alpha: error probability of the whole.
        judge_alpha: agreement of the suite's judge with people (see ``compare``).
        on_look: told after each batch.

    Raises:
        InputError: no tasks between looks, or a suite of one task.
        GateError: as ``compare``.
    """
    if batch < 1 or len(suite.task_digests) < 2:
        raise InputError(
            f"{len(suite.task_digests)} tasks, {batch} between two looks",
            where="compare_early",
            expected="two tasks or more, one or more between two looks",
            mend="freeze a larger suite",
        )
    order = derive_random("early", suite.digest, seed).sample(list(suite.task_digests), len(suite.task_digests))
    known = _Known(suite, alpha)
    for start in range(0, len(order), batch):
        drawn = order[start : start + batch]
        known.add(drawn, *measure(drawn))
        look, found = known.look(judge_alpha)
        on_look(look)
        if start + batch < len(order) and _decided(look, found, alpha):
            break
    if found is None:
        raise GateError(
            "fewer than two tasks can be paired",
            where=f"suite {suite.name}",
            expected="at least two graded tasks in both runs",
            mend="mend what failed and measure again",
        )
    before, after = known.runs
    return EarlyComparison(
        id=comparison_id,
        comparison=found,
        num_tasks=len(order),
        looks=tuple(known.looks),
        ended_early=known.looks[-1].num_tasks < len(order),
        before=before,
        after=after,
    )


def keep_early(store: Store, found: EarlyComparison, *, actor: str) -> None:
    """Keep it with its digest in the audit log: looks that are not written down were never taken."""
    detail = {"digest": found.digest, "suite": found.before.suite, "num_tasks": found.looks[-1].num_tasks}
    AuditLog(store).append(actor, ACTION, found.id, detail)
    store.put(EARLY_KIND, found.id, found)


def load_earlies(store: Store) -> tuple[EarlyComparison, ...]:
    """All that were kept. Raises ``GateError`` for one that is not what the log saw."""
    logged = {e.subject: str(e.detail["digest"]) for e in AuditLog(store).verified() if e.action == ACTION}
    found = []
    for key, one in store.items(EARLY_KIND, EarlyComparison):
        if one.digest != logged.get(key):
            raise GateError(
                f"comparison {key!r} is not what was measured: its record was changed",
                where=f"comparison {key}",
                expected=f"digest {logged.get(key, 'of an entry')}, as in the audit log",
                mend="restore the workspace from a copy, and find out who wrote to the database",
            )
        found.append(one)
    return tuple(found)


def _decided(look: Look, found: Comparison | None, alpha: float) -> bool:
    if found is None or not found.reliable or look.e_value < 2 / alpha:
        return False
    return (found.winner == "candidate" and look.low > 0) or (found.winner == "baseline" and look.high < 0)


class _Known:
    """What has been measured so far."""

    def __init__(self, suite: Suite, alpha: float) -> None:
        self.looks: list[Look] = []
        self._suite = suite
        self._level = 1 - alpha / 2
        self._scales = _scales(suite)
        size, widest = len(suite.task_digests), max(self._scales.values())
        self._least = FinitePopulation(size, -widest, widest, level=self._level)
        self._most = FinitePopulation(size, -widest, widest, level=self._level)
        self._runs: list[tuple[EvaluationRun, EvaluationRun]] = []

    @property
    def runs(self) -> tuple[EvaluationRun, EvaluationRun]:
        """Both runs so far, items in the order of the suite."""
        before, after = zip(*self._runs, strict=True)
        return self._joined(before), self._joined(after)

    def add(self, drawn: Sequence[str], before: EvaluationRun, after: EvaluationRun) -> None:
        """Both on some more tasks."""
        self._runs.append((before, after))
        left, right = _means(before), _means(after)
        strata = {item.task: item.stratum for item in before.items}
        for task in drawn:  # in the order of drawing: it is what is random
            scale = self._scales[strata[task]]
            if task in left and task in right:
                least = most = scale * (right[task] - left[task])
            else:
                least, most = -scale, scale
            self._least.draw(least)
            self._most.draw(most)

    def look(
        self, judge_alpha: Callable[[EvaluationRun, EvaluationRun], float | None]
    ) -> tuple[Look, Comparison | None]:
        """What is known now; the comparison is None while fewer than two tasks are paired."""
        before, after = self.runs
        found = None
        paired = {item.task for item in before.graded} & {item.task for item in after.graded}
        if len(paired) > 1:
            found = compare(before, after, level=self._level, judge_alpha=judge_alpha(before, after))
        look = Look(
            num_tasks=len({item.task for item in before.items}),
            low=self._least.interval.low,
            high=self._most.interval.high,
            e_value=1.0 if found is None else found.e_value,
        )
        self.looks.append(look)
        return look, found

    def _joined(self, runs: Sequence[EvaluationRun]) -> EvaluationRun:
        order = {task: number for number, task in enumerate(self._suite.task_digests)}
        items = sorted((item for run in runs for item in run.items), key=lambda item: (order[item.task], item.repeat))
        return msgspec.structs.replace(runs[0], items=tuple(items))


def _scales(suite: Suite) -> dict[str, float]:
    """Stratum → what a task's difference counts, so that the mean over all N tasks is the headline: N · W_h / n_h."""
    size = len(suite.task_digests)
    return {share.name: size * share.weight / share.num_tasks for share in suite.strata if share.num_tasks}


def _means(run: EvaluationRun) -> dict[str, float]:
    """Task → mean success over its graded repeats; tasks of which a repeat has no grade are left out."""
    values: dict[str, list[EvaluationItem]] = {}
    for item in run.items:
        values.setdefault(item.task, []).append(item)
    return {
        task: sum(bool(item.success) for item in items) / len(items)
        for task, items in values.items()
        if all(item.success is not None for item in items)
    }
