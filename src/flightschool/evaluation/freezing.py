"""The freeze: a stratified suite and a sealed holdout, taken by family before anything trains.

What is frozen depends on families, strata and a seed alone. There is no argument through which a pass rate could come
in: dropping the tasks that a policy always or never solves moves the mean and hides exactly the change that is to be
measured.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from flightschool.digest import derive_random
from flightschool.errors import GateError, InputError
from flightschool.evaluation.records import Frozen
from flightschool.lineage import OverlapKind, overlap
from flightschool.protocols import Environment
from flightschool.records import Split, StratumShare, Suite, Task
from flightschool.tasks import split_by_family

__all__ = ["STRATA_KEYS", "freeze"]

STRATA_KEYS = ("stratum",)
"""Attributes of a task that name its stratum."""


def freeze(
    environment: Environment,
    name: str,
    *,
    strata: str = "stratum",
    weights: Mapping[str, float] | None = None,
    suite_fraction: float = 0.25,
    holdout_fraction: float = 0.1,
    seed: int = 0,
    trained: Sequence[str] = (),
    max_tasks_per_family: int | None = None,
    max_tasks_per_stratum: int | Mapping[str, int] | None = None,
    keep: Sequence[str] = (),
    frozen_at: str | None = None,
) -> Frozen:
    """Split an environment's tasks by family into suite, holdout and pool.

    Args:
        environment: source of the tasks.
        name: name of the suite; the holdout is called ``NAME-holdout``.
        strata: attribute of tasks that names the stratum.
        weights: stratum → share of traffic; the environment's own shares by default. Scaled to sum to 1.
        suite_fraction: share of each stratum's families that is measured on.
        holdout_fraction: share of each stratum's families that is sealed; 0 for none.
        seed: which families, and which tasks where a cap applies.
        trained: strata that the coming training is meant to improve.
        max_tasks_per_family: cap on tasks of one family in suite and holdout.
        max_tasks_per_stratum: cap on tasks of one stratum in suite and holdout, for all or by stratum.
        keep: tasks of the version before that stay as anchors, whatever is drawn; those that are gone are passed over.
        frozen_at: time of the freeze, ISO 8601; now by default.

    Raises:
        InputError: unknown strata, fractions out of range, weights that do not fit, or a stratum without a family to
            measure on.
        GateError: a task of the pool has the content of a measured one.

    Families of the pool that are worded nearly like a measured family are left out of the pool (``Frozen.left_out``).
    """
    tasks = tuple(environment.tasks())
    _check_arguments(tasks, strata, suite_fraction, holdout_fraction, trained)
    shares = _shares(tasks, environment.strata if weights is None else weights, environment.strata)
    chosen = _drawn(tasks, suite_fraction, holdout_fraction, seed, frozenset(keep))
    pool, left_out = _without_kin(chosen)
    stamp = frozen_at if frozen_at is not None else datetime.now(UTC).isoformat(timespec="seconds")

    def suite_of(split: Split, suite_name: str) -> Suite:
        kept = _capped(chosen[split], max_tasks_per_family, max_tasks_per_stratum, seed, frozenset(keep))
        _refuse_empty_strata(kept, shares, split)
        return _suite(environment, suite_name, kept, _strata(kept, shares, trained), split, seed, stamp)

    return Frozen(
        suite=suite_of(Split.SUITE, name),
        holdout=suite_of(Split.HOLDOUT, f"{name}-holdout") if holdout_fraction > 0 else None,
        pool=pool,
        left_out=left_out,
    )


def _suite(
    environment: Environment,
    name: str,
    tasks: Sequence[Task],
    strata: tuple[StratumShare, ...],
    split: Split,
    seed: int,
    stamp: str,
) -> Suite:
    return Suite(
        name=name,
        environment=environment.name,
        environment_digest=environment.digest,
        task_digests={task.id: task.digest for task in tasks},
        strata=strata,
        holdout=split is Split.HOLDOUT,
        seed=seed,
        frozen_at=stamp,
    )


def _drawn(
    tasks: Sequence[Task], suite_fraction: float, holdout_fraction: float, seed: int, anchors: frozenset[str]
) -> dict[Split, list[Task]]:
    """Tasks by where their family was drawn to; families of anchors stay in the suite."""
    splits = split_by_family(tasks, suite=suite_fraction, holdout=holdout_fraction, seed=seed)
    kept = {task.family for task in tasks if task.id in anchors}
    splits = {task.id: Split.SUITE if task.family in kept else splits[task.id] for task in tasks}
    return {split: [task for task in tasks if splits[task.id] is split] for split in Split}


def _check_arguments(
    tasks: Sequence[Task], strata: str, suite_fraction: float, holdout_fraction: float, trained: Sequence[str]
) -> None:
    if strata not in STRATA_KEYS:
        raise InputError(
            f"tasks have no stratum key {strata!r}",
            where="strata",
            expected=" or ".join(STRATA_KEYS),
            mend=f"use {STRATA_KEYS[0]!r}",
        )
    if not (0 < suite_fraction < 1 and 0 <= holdout_fraction < 1 and suite_fraction + holdout_fraction < 1):
        raise InputError(
            f"fractions {suite_fraction} (suite) and {holdout_fraction} (holdout) leave no pool",
            where="suite_fraction, holdout_fraction",
            expected="suite above 0, holdout from 0, below 1 together",
            mend="choose smaller fractions",
        )
    known = {task.stratum for task in tasks}
    unknown = sorted(set(trained) - known)
    if unknown:
        raise InputError(
            f"unknown trained stratum {unknown[0]!r}",
            where="trained",
            expected=f"some of {', '.join(sorted(known))}",
            mend="correct the name",
        )


def _shares(tasks: Sequence[Task], weights: Mapping[str, float], traffic: Mapping[str, float]) -> dict[str, float]:
    """Traffic shares of the strata that tasks have, in order of first appearance, scaled to sum to 1.

    A stratum of the environment's traffic that no task is of (an intent that traces never solved) may have a
    weight: the suite cannot speak for it, and its design says so.
    """
    present = list(dict.fromkeys(task.stratum for task in tasks))
    missing = [stratum for stratum in present if stratum not in weights]
    wrong = [stratum for stratum, weight in weights.items() if not (math.isfinite(weight) and weight >= 0)]
    unknown = [stratum for stratum in weights if stratum not in present and stratum not in traffic]
    total = math.fsum(weights.get(stratum, 0.0) for stratum in present)
    if missing or wrong or unknown or total <= 0:
        problem = (
            f"no weight for stratum {missing[0]!r}"
            if missing
            else f"weight of {wrong[0]!r} is not a share"
            if wrong
            else f"weight for unknown stratum {unknown[0]!r}"
            if unknown
            else "all weights are 0"
        )
        raise InputError(
            problem,
            where="weights",
            expected=f"a share of 0 or more for each of {', '.join(present)}",
            mend="give every stratum its share of real traffic",
        )
    return {stratum: weights[stratum] / total for stratum in present}


def _capped(
    tasks: Sequence[Task],
    per_family: int | None,
    per_stratum: int | Mapping[str, int] | None,
    seed: int,
    anchors: frozenset[str] = frozenset(),
) -> list[Task]:
    """At most so many tasks beside the anchors, drawn by the seed, families in turn; in the environment's order."""
    kept: set[str] = {task.id for task in tasks if task.id in anchors}
    by_stratum: dict[str, dict[str, list[Task]]] = defaultdict(lambda: defaultdict(list))
    for task in tasks:
        by_stratum[task.stratum][task.family].append(task)
    for stratum, families in by_stratum.items():
        cap = per_stratum.get(stratum) if isinstance(per_stratum, Mapping) else per_stratum
        drawn = []
        for family, members in families.items():
            order = derive_random(seed, "cap", family).sample(members, len(members))
            drawn.append([task.id for task in order[:per_family]])
        turns = max(map(len, drawn))
        in_turn = [ids[turn] for turn in range(turns) for ids in drawn if turn < len(ids)]
        kept.update(in_turn[:cap])
    return [task for task in tasks if task.id in kept]


def _strata(tasks: Sequence[Task], shares: Mapping[str, float], trained: Sequence[str]) -> tuple[StratumShare, ...]:
    return tuple(
        StratumShare(
            name=stratum,
            weight=share,
            num_tasks=sum(task.stratum == stratum for task in tasks),
            families=tuple(dict.fromkeys(task.family for task in tasks if task.stratum == stratum)),
            trained=stratum in trained,
        )
        for stratum, share in shares.items()
    )


def _refuse_empty_strata(tasks: Sequence[Task], shares: Mapping[str, float], split: Split) -> None:
    present = {task.stratum for task in tasks}
    empty = [stratum for stratum in shares if stratum not in present]
    if empty:
        raise InputError(
            f"the {split} would hold no task of stratum {empty[0]!r}",
            where=f"freeze, {split}",
            expected="at least one family of each stratum",
            mend="write more families for it, or raise the fraction",
        )


def _without_kin(chosen: Mapping[Split, Sequence[Task]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The pool without families worded nearly like a measured one, and what was left out and why.

    Leaving them out costs pool; moving them into the suite would let wording decide what is measured.
    """
    found = overlap(chosen[Split.POOL], [*chosen[Split.SUITE], *chosen[Split.HOLDOUT]])
    same = next((kin for kin in found if kin.kind is not OverlapKind.INSTRUCTION), None)
    if same is not None:
        raise GateError(
            f"the pool holds what is measured: {same}",
            where="freeze",
            expected="tasks of distinct content in families of their own",
            mend="remove the double, or file both under one family",
        )
    family_of = {task.id: task.family for task in chosen[Split.POOL]}
    kin_families = {family_of[kin.left] for kin in found}
    pool = tuple(task.id for task in chosen[Split.POOL] if task.family not in kin_families)
    return pool, tuple(str(kin) for kin in found)
