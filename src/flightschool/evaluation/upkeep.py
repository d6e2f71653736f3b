"""A suite ages: it saturates, traffic drifts away from it, tasks misfit or flake, and it is looked at too often.

Nothing is changed here: a suite cannot be. What is proposed goes into the *next* version, which is another suite;
scores across that border are not comparable, except on anchors: tasks that both versions keep.

* *Saturated*: tasks that every system solved in every repeat carry no information any more. Above ``MOST_SOLVED``
  of them the suite cannot show a gain.
* *Misfit*: a task that better systems solve less often (corrected item-total correlation below 0) measures
  something else, or its truth is wrong.
* *Flaky*: a policy that does the same each time (the oracle) has different outcomes.
* *Drift*: total variation distance between the suite's weights and traffic as newly imported.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from flightschool.errors import InputError
from flightschool.evaluation.records import EvaluationRun
from flightschool.records import Record, Suite
from flightschool.statistics import pearson

__all__ = ["Upkeep", "upkeep"]

MOST_SOLVED = 0.8
MOST_DRIFT = 0.1
MOST_POLICIES = 20
"""Policies after which the best owes part of its score to chance: the best of 20 equal ones on 100 tasks gains .08."""
FEWEST_SYSTEMS = 5
"""Systems below which no task is called misfit."""
REPEATABLE = ("oracle", "noop")
ANCHORS = 0.2
"""Share of tasks to keep as anchors."""


class Upkeep(Record, frozen=True, kw_only=True):
    """The state of a suite, with proposals for its next version."""

    suite: str
    num_runs: int
    num_policies: int
    """Distinct policies that were measured on it: its exposure."""
    share_solved_by_all: float
    share_solved_by_none: float
    saturated: bool
    misfit: tuple[str, ...]
    flaky: tuple[str, ...]
    drift: float | None
    """0..1; None without new traffic."""
    new_strata: tuple[str, ...]
    """Strata of the new traffic that the suite does not know."""
    retire: tuple[str, ...]
    """Tasks that the next version need not keep."""
    anchors: tuple[str, ...]
    """Tasks that it should keep, to be equated by."""
    proposals: tuple[str, ...]


def upkeep(suite: Suite, runs: Sequence[EvaluationRun], traffic: Mapping[str, float] | None = None) -> Upkeep:
    """Look after a suite.

    Args:
        suite: the suite.
        runs: all evaluations on it.
        traffic: stratum → share or count in newly imported traces.

    Raises:
        InputError: no run on this suite.
    """
    own = [run for run in runs if run.suite_digest == suite.digest]
    if not own:
        raise InputError(
            f"nothing was measured on {suite.name!r} yet",
            where=f"suite {suite.name}",
            expected="at least one evaluation",
            mend=f"flightschool eval run {suite.name} --policy P",
        )
    scores = _scores(own)
    policies = sorted({run.policy for run in own})
    tasks = list(suite.task_digests)
    rates = {task: [scores[policy][task] for policy in policies if task in scores[policy]] for task in tasks}
    solved = [task for task in tasks if rates[task] and min(rates[task]) == 1.0]
    unsolved = [task for task in tasks if rates[task] and max(rates[task]) == 0.0]
    trusted = [policy for policy in policies if policy not in ("noop", "random")]
    retire = [task for task in solved if len(trusted) > 1]
    fit = _fit(tasks, policies, scores)
    misfit = [task for task, value in fit.items() if value < 0]
    drift, new = _drift(suite, traffic)
    flaky = _flaky(own)
    saturated = len(solved) / len(tasks) > MOST_SOLVED

    def worth(task: str) -> tuple[float, float, str]:
        """An anchor tells systems apart and is neither easy nor hard."""
        return -fit.get(task, 0.0), abs(sum(rates[task]) / max(1, len(rates[task])) - 0.5), task

    middling = sorted((task for task in tasks if task not in solved and task not in unsolved), key=worth)
    anchors = [task for task in middling if task not in misfit and task not in flaky]
    return Upkeep(
        suite=suite.name,
        num_runs=len(own),
        num_policies=len(policies),
        share_solved_by_all=len(solved) / len(tasks),
        share_solved_by_none=len(unsolved) / len(tasks),
        saturated=saturated,
        misfit=tuple(misfit),
        flaky=tuple(flaky),
        drift=drift,
        new_strata=new,
        retire=tuple(retire),
        anchors=tuple(anchors[: max(1, round(ANCHORS * len(tasks)))]),
        proposals=tuple(_proposals(saturated, unsolved, misfit, flaky, drift, new, len(policies))),
    )


def _scores(runs: Sequence[EvaluationRun]) -> dict[str, dict[str, float]]:
    """Policy → task → share of graded attempts that succeeded."""
    marks: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for item in run.graded:
            marks[run.policy][item.task].append(bool(item.success))
    return {
        policy: {task: sum(values) / len(values) for task, values in tasks.items()} for policy, tasks in marks.items()
    }


def _fit(tasks: Sequence[str], policies: Sequence[str], scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Task → correlation with the mean of all other tasks, over systems; tasks that do not vary are left out."""
    known = [policy for policy in policies if all(task in scores[policy] for task in tasks)]
    if len(known) < FEWEST_SYSTEMS or len(tasks) < 2:
        return {}
    totals = {policy: sum(scores[policy][task] for task in tasks) for policy in known}
    found = {}
    for task in tasks:
        x = [scores[policy][task] for policy in known]
        rest = [totals[policy] - scores[policy][task] for policy in known]
        if len(set(x)) > 1 and len({round(value, 9) for value in rest}) > 1:
            found[task] = pearson(x, rest).value
    return found


def _flaky(runs: Sequence[EvaluationRun]) -> list[str]:
    """Tasks with differing outcomes of a policy that does the same each time, in one weather."""
    marks: dict[tuple[str, str, str], set[bool]] = defaultdict(set)
    for run in runs:
        if run.policy in REPEATABLE and not run.noise_digest:
            for item in run.graded:
                marks[run.policy, run.composition_digest, item.task].add(bool(item.success))
    return sorted({task for (_, _, task), values in marks.items() if len(values) > 1})


def _drift(suite: Suite, traffic: Mapping[str, float] | None) -> tuple[float | None, tuple[str, ...]]:
    if traffic is None:
        return None, ()
    total = math.fsum(traffic.values())
    if total <= 0 or min(traffic.values()) < 0:
        raise InputError("no traffic", where="traffic", expected="shares of 0 or more", mend="import traces")
    weights = {share.name: share.weight for share in suite.strata}
    names = {*weights, *traffic}
    distance = math.fsum(abs(weights.get(name, 0.0) - traffic.get(name, 0.0) / total) for name in names) / 2
    return distance, tuple(sorted(name for name in traffic if name not in weights and traffic[name] > 0))


def _proposals(
    saturated: bool,
    unsolved: Sequence[str],
    misfit: Sequence[str],
    flaky: Sequence[str],
    drift: float | None,
    new: Sequence[str],
    num_policies: int,
) -> list[str]:
    found = []
    if saturated:
        found.append("saturated: freeze a version with harder families; this one can hardly show a gain")
    if unsolved:
        found.append(f"{len(unsolved)} tasks nobody solved: check their truths before calling them hard")
    if misfit:
        found.append(f"{len(misfit)} tasks misfit: better systems solve them less often; review their truths")
    if flaky:
        found.append(f"{len(flaky)} tasks flake: the same acts get different grades; mend the verifier")
    if drift is not None and drift > MOST_DRIFT:
        found.append(f"traffic has drifted by {drift:.0%}: freeze a version with the new weights")
    if new:
        found.append(f"cannot speak for new strata: {', '.join(new)}")
    if num_policies > MOST_POLICIES:
        found.append(f"{num_policies} policies were measured: the best owes part of its score to chance; refresh")
    return found
