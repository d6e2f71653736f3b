"""Versions of a suite: what changed between them, and what of a score can be carried across the border.

A changed suite is another suite. Scores across the border are not comparable: ``compare`` refuses them, charts break
the line. What can be carried is what both versions share, the *anchors* (tasks with the same prompt, truth, verifier,
state and permissions):

* two runs can be compared on the anchors alone (``on_anchors``);
* a score can be moved to the older scale by the difference in difficulty that the anchors show (``equate``):
  D = whole − anchors in each version, shift = D_new − D_old, equated = score_new − shift. This is mean equating by
  common items (M. Kolen and R. Brennan, Test Equating, Scaling, and Linking, 2014, ch. 4); its standard error is the
  jackknife's over families (J. Tukey, 1958), both versions taken as independent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from statistics import NormalDist

import msgspec

from flightschool.errors import GateError, InputError
from flightschool.evaluation.comparison import compare
from flightschool.evaluation.design import SuiteDesign
from flightschool.evaluation.metrics import METRICS, TaskValue, task_values
from flightschool.evaluation.records import Comparison, EvaluationRun
from flightschool.evaluation.suites import load_design
from flightschool.protocols import Store
from flightschool.records import Record, Suite
from flightschool.statistics import Interval

__all__ = ["Equated", "SuiteChange", "changelog", "changes", "equate", "lineage_of", "on_anchors"]

FEWEST_ANCHORS = 5
"""Families of anchors below which nothing is equated."""
_SUCCESS = next(metric for metric in METRICS if metric.name == "success")


class SuiteChange(Record, frozen=True, kw_only=True):
    """One line of a suite's changelog."""

    suite: str
    version: int
    frozen_at: str
    follows: str
    because: str
    num_tasks: int
    anchors: int
    """Tasks that stand unchanged in the version before."""
    added: tuple[str, ...]
    retired: tuple[str, ...]
    changed: dict[str, tuple[str, ...]]
    """Task → what of it changed: ``prompt``, ``truth``, ``verifier``, ``state``, ``permissions``."""
    around: tuple[str, ...]
    """What changed beside the tasks: tools, house rules, weights, composition, faults, rules."""


class Equated(Record, frozen=True, kw_only=True):
    """A score of a newer version on the scale of an older one."""

    policy: str
    suite: str
    onto: str
    score: float
    """As measured."""
    shift: Interval
    """How much easier the newer version is."""
    equated: Interval
    num_anchors: int


def lineage_of(store: Store, name: str) -> tuple[SuiteDesign, ...]:
    """The versions that led to a suite, oldest first, itself last.

    Raises:
        GateError: a design is missing, or is not the one that the audit log saw.
    """
    found: list[SuiteDesign] = []
    while name and name not in {design.suite for design in found}:
        design = load_design(store, name)
        if design is None:
            raise GateError(
                f"suite {name!r} has no design",
                where=f"suite {name}",
                expected="a suite that was frozen with its design",
                mend="freeze it with: flightschool eval freeze",
            )
        found.append(design)
        name = design.follows
    return tuple(reversed(found))


def changelog(store: Store, name: str) -> tuple[SuiteChange, ...]:
    """What changed from version to version, oldest first. Raises as ``lineage_of``."""
    rows: list[SuiteChange] = []
    before: SuiteDesign | None = None
    for design in lineage_of(store, name):
        frozen = store.get("suite", design.suite, Suite)
        rows.append(changes(before, design, frozen.frozen_at))
        before = design
    return tuple(rows)


def changes(old: SuiteDesign | None, new: SuiteDesign, frozen_at: str = "") -> SuiteChange:
    """What a version changed."""
    before = {} if old is None else old.components
    was, now = set() if old is None else set(old.tasks), set(new.tasks)
    differing = [name for name in {**before, **new.components} if before.get(name) != new.components.get(name)]
    changed: dict[str, list[str]] = {}
    around = []
    for name in differing:
        part, _, task = name.partition(" of ")
        if task and task in was & now:
            changed.setdefault(task, []).append(part)
        elif not task:
            around.append(name)
    return SuiteChange(
        suite=new.suite,
        version=new.version,
        frozen_at=frozen_at,
        follows=new.follows,
        because=new.because,
        num_tasks=len(now),
        anchors=len(new.anchors),
        added=tuple(sorted(now - was)) if old is not None else (),
        retired=tuple(sorted(was - now)),
        changed={task: tuple(parts) for task, parts in sorted(changed.items())} if old is not None else {},
        around=tuple(sorted(around)) if old is not None else (),
    )


def on_anchors(before: EvaluationRun, after: EvaluationRun, anchors: Sequence[str], *, seed: int = 0) -> Comparison:
    """Compare two runs of different versions on what both measure, and on nothing else.

    Tasks are paired, weather and latencies are not: each version makes seeds of its own. Strata keep the weights of the
    newer version.

    Raises:
        GateError: fewer than two anchors, or runs that differ in more than the version.
    """
    first, second = _restricted(before, anchors), _restricted(after, anchors)
    return compare(
        msgspec.structs.replace(
            first,
            suite_digest=second.suite_digest,
            environment_digest=second.environment_digest,
            weights=second.weights,
            seeds_of=second.seeds_of,
        ),
        second,
        seed=seed,
    )


def equate(
    new: Sequence[EvaluationRun],
    old: Sequence[EvaluationRun],
    anchors: Sequence[str],
    *,
    level: float = 0.95,
) -> tuple[Equated, ...]:
    """The runs of a newer version on the scale of an older one.

    Args:
        new: runs of the newer version.
        old: runs of the older one, of whatever policies.
        anchors: tasks that stand unchanged in both.

    Raises:
        InputError: no runs of one version.
        GateError: too few anchors.
    """
    if not new or not old:
        raise InputError(
            "no runs of one of the versions",
            where="equate",
            expected="at least one evaluation on each",
            mend="measure a policy on both versions",
        )
    families = {value.family for value in task_values(new[0].items, _SUCCESS) if value.task in set(anchors)}
    if len(families) < FEWEST_ANCHORS:
        raise GateError(
            f"{len(families)} families of anchors join the two versions",
            where=f"suites {old[0].suite} and {new[0].suite}",
            expected=f"at least {FEWEST_ANCHORS}",
            mend="scores across this border are not comparable: measure both policies on one version",
        )
    eased, harder = [_eased(run, anchors) for run in new], [_eased(run, anchors) for run in old]
    shift = _mean([one for one, _ in eased]) - _mean([one for one, _ in harder])
    error = math.sqrt(_mean([v for _, v in eased]) + _mean([v for _, v in harder]))
    half = NormalDist().inv_cdf((1 + level) / 2) * error
    method = f"mean equating by {len(anchors)} anchors, jackknife over families"
    rows = []
    for run in new:
        values = task_values(run.items, _SUCCESS)
        score, score_error = _whole(values, run), math.sqrt(_jackknife(values, partial(_whole, run=run)))
        wide = NormalDist().inv_cdf((1 + level) / 2) * math.hypot(error, score_error)
        rows.append(
            Equated(
                policy=run.policy,
                suite=run.suite,
                onto=old[0].suite,
                score=score,
                shift=_interval(shift, half, len(anchors), method, level),
                equated=_interval(score - shift, wide, len(values), method, level),
                num_anchors=len(anchors),
            )
        )
    return tuple(rows)


# ------------------------------------------------------------------------------------------------ parts


def _interval(value: float, half: float, num_items: int, method: str, level: float) -> Interval:
    return Interval(value=value, low=value - half, high=value + half, num_items=num_items, method=method, level=level)


def _restricted(run: EvaluationRun, anchors: Sequence[str]) -> EvaluationRun:
    wanted = set(anchors)
    return msgspec.structs.replace(run, items=tuple(item for item in run.items if item.task in wanted))


def _eased(run: EvaluationRun, anchors: Sequence[str]) -> tuple[float, float]:
    """How much easier a version is than its anchors, for one policy, with the variance of that."""
    wanted = set(anchors)

    def contrast(part: Sequence[TaskValue]) -> float:
        shared = [value.value for value in part if value.task in wanted]
        return _whole(part, run) - (_mean(shared) if shared else 0.0)

    values = task_values(run.items, _SUCCESS)
    return contrast(values), _jackknife(values, contrast)


def _whole(values: Sequence[TaskValue], run: EvaluationRun) -> float:
    """Success weighted by traffic."""
    sizes = Counter(value.stratum for value in values)
    total = math.fsum(run.weights[name] for name in sizes) or 1.0
    return math.fsum(run.weights[value.stratum] / total / sizes[value.stratum] * value.value for value in values)


def _jackknife(values: Sequence[TaskValue], statistic: Callable[[Sequence[TaskValue]], float]) -> float:
    """Variance over families left out one at a time."""
    families = sorted({value.family for value in values})
    if len(families) < 2:
        return 0.0
    left = [statistic([value for value in values if value.family != family]) for family in families]
    mean = _mean(left)
    return (len(left) - 1) / len(left) * sum((one - mean) ** 2 for one in left)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
