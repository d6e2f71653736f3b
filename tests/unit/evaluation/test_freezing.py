from __future__ import annotations

import inspect
from collections import Counter
from typing import Any

import msgspec
import pytest

from flightschool.errors import GateError, InputError
from flightschool.evaluation import freeze


def families(task_ids: Any) -> set[str]:
    return {task_id.rsplit("-", 1)[0] for task_id in task_ids}


def test_suite_holdout_and_pool_share_no_family_and_lose_no_task(workshop: Any) -> None:
    frozen = freeze(workshop, "s", suite_fraction=0.34, holdout_fraction=0.17, frozen_at="now")
    assert frozen.holdout is not None
    parts = [set(frozen.suite.task_digests), set(frozen.holdout.task_digests), set(frozen.pool)]
    assert set().union(*parts) == set(workshop.rows)
    assert [len(part) for part in parts] == [20, 10, 30]  # two, one and three families of five, in each stratum
    assert not families(parts[0]) & families(parts[1])
    assert not (families(parts[0]) | families(parts[1])) & families(parts[2])
    assert (frozen.holdout.name, frozen.holdout.holdout, frozen.suite.holdout) == ("s-holdout", True, False)


def test_weights_come_from_traffic_and_sum_to_one(workshop: Any) -> None:
    frozen = freeze(workshop, "s", trained=["easy"], frozen_at="now")
    assert [(s.name, s.weight, s.trained) for s in frozen.suite.strata] == [("easy", 0.7, True), ("hard", 0.3, False)]
    given = freeze(workshop, "s", weights={"easy": 1, "hard": 3}, frozen_at="now")
    assert [s.weight for s in given.suite.strata] == [0.25, 0.75]


def test_equal_seeds_freeze_equal_suites_whatever_the_time(workshop: Any) -> None:
    first, second = freeze(workshop, "s", seed=4), freeze(workshop, "s", seed=4, frozen_at="another time")
    assert first.suite.digest == second.suite.digest
    assert first.suite.digest != freeze(workshop, "s", seed=5).suite.digest


def test_caps_take_families_in_turn(workshop: Any) -> None:
    frozen = freeze(workshop, "s", suite_fraction=0.5, max_tasks_per_family=3, max_tasks_per_stratum=5, frozen_at="now")
    counts = Counter(workshop.task(task_id).family for task_id in frozen.suite.task_digests)
    assert sorted(counts.values()) == [1, 1, 2, 2, 2, 2]  # three families a stratum, five tasks
    assert not families(frozen.pool) & set(counts)  # what a cap leaves out does not fall into the pool


def test_no_pass_rate_can_reach_the_freeze() -> None:
    names = set(inspect.signature(freeze).parameters)
    assert not names & {"pass_rates", "rewards", "decisions", "run", "policy", "scores"}


def test_worded_alike_families_leave_the_pool(workshop: Any) -> None:
    frozen = freeze(workshop, "s", frozen_at="now")
    measured, trained = next(iter(frozen.suite.task_digests)), frozen.pool[0]
    alike = workshop.task(measured).instruction
    for task_id in [t for t in workshop.rows if workshop.task(t).family == workshop.task(trained).family]:
        workshop.rows[task_id] = msgspec.structs.replace(workshop.task(task_id), instruction=f"{alike} {task_id[-1]}")
    again = freeze(workshop, "s", frozen_at="now")
    assert workshop.task(trained).family not in families(again.pool)
    assert len(again.left_out) == 1


def test_a_double_in_pool_and_suite_is_refused(workshop: Any) -> None:
    frozen = freeze(workshop, "s", frozen_at="now")
    measured, trained = next(iter(frozen.suite.task_digests)), frozen.pool[0]
    original = workshop.task(measured)
    double = msgspec.structs.replace(workshop.task(trained), instruction=original.instruction)
    workshop.rows[trained] = double
    with pytest.raises(GateError, match="the pool holds what is measured"):
        freeze(workshop, "s", frozen_at="now")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"strata": "difficulty"}, "no stratum key 'difficulty'"),
        ({"suite_fraction": 0.7, "holdout_fraction": 0.3}, "leave no pool"),
        ({"suite_fraction": 0.0}, "leave no pool"),
        ({"trained": ["esay"]}, "unknown trained stratum 'esay'"),
        ({"weights": {"easy": 1.0}}, "no weight for stratum 'hard'"),
        ({"weights": {"easy": 1.0, "hard": -1.0}}, "not a share"),
        ({"weights": {"easy": 1.0, "hard": 1.0, "odd": 1.0}}, "unknown stratum 'odd'"),
        ({"weights": {"easy": 0.0, "hard": 0.0}}, "all weights are 0"),
    ],
)
def test_what_cannot_be_frozen_is_refused_in_words(workshop: Any, arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what):
        freeze(workshop, "s", **arguments)


def test_a_stratum_with_too_few_families_cannot_be_measured(workshop: Any) -> None:
    for task_id in [t for t, task in workshop.rows.items() if task.stratum == "hard" and task.family != "saw"]:
        del workshop.rows[task_id]
    with pytest.raises(InputError, match="no task of stratum 'hard'"):
        freeze(workshop, "s")
