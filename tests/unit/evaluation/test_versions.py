"""Versions of a suite: what changed, what can be carried across the border, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.suites import whole_suite

from flightschool.errors import GateError, InputError
from flightschool.evaluation import (
    RunRules,
    SuiteDesign,
    changelog,
    changes,
    common_tasks,
    compare,
    design_suite,
    equate,
    freeze,
    lineage_of,
    on_anchors,
    save_design,
    save_suite,
)
from flightschool.records import Reference, Suite
from flightschool.store import SqlStore
from flightschool.testing.miniature import MiniatureEnvironment


def components(tasks: dict[str, str], **around: str) -> dict[str, str]:
    """Task → a letter that stands for its content."""
    parts = ("prompt", "truth", "verifier", "state", "permissions")
    return {f"{part} of {task}": f"{part}-{letter}" for task, letter in tasks.items() for part in parts} | around


def design(suite: str, parts: dict[str, str], **fields: Any) -> SuiteDesign:
    tasks = {name.removeprefix("prompt of ") for name in parts if name.startswith("prompt of ")}
    base: dict[str, Any] = {
        "suite": suite,
        "suite_digest": f"sha256:{suite}",
        "tasks": {task: {"inclusion": 1.0, "weight": 1 / len(tasks)} for task in sorted(tasks)},
        "effective_tasks": float(len(tasks)),
        "families": {},
        "silent": {},
        "thin": (),
        "mde": 0.1,
        "pairs_for_a_tenth": 100,
        "realism": {},
        "components": parts,
    }
    return msgspec.convert({**base, **fields}, SuiteDesign)


OLD = components({"a": "1", "b": "1", "c": "1"}, tools="t")
NEW = components({"b": "1", "c": "2", "d": "1"}, tools="u") | {"prompt of c": "prompt-1"}


def test_anchors_are_what_is_the_same_in_every_part() -> None:
    assert common_tasks(OLD, NEW) == ("b",)


def test_a_change_is_told_task_by_task_and_part_by_part() -> None:
    found = changes(design("v1", OLD), design("v2", NEW, follows="v1", version=2, because="prices were wrong"))
    assert (found.added, found.retired) == (("d",), ("a",))
    assert found.changed == {"c": ("truth", "verifier", "state", "permissions")}
    assert found.around == ("tools",)
    assert found.because == "prices were wrong"
    first = changes(None, design("v1", OLD))
    assert (first.added, first.retired, first.changed, first.around) == ((), (), {}, ())


class Mended(MiniatureEnvironment):
    """The second version: the truth of one task is another."""

    @property
    def digest(self) -> str:
        return "sha256:mended"

    def reference(self, task_id: str) -> Reference:
        found = super().reference(task_id)
        return msgspec.structs.replace(found, oracle_answer="Another.") if task_id == "copy-bolt-gear" else found


def whole(environment: MiniatureEnvironment, name: str = "ride", num: int | None = None) -> Suite:
    """All tasks of the miniature, or the first ones of each stratum."""
    tasks = list(environment.tasks())
    if num is not None:
        strata = {task.stratum for task in tasks}
        tasks = [task for stratum in sorted(strata) for task in [t for t in tasks if t.stratum == stratum][:num]]
    return whole_suite(environment, name, tasks)


def frozen_versions(store: SqlStore) -> tuple[SuiteDesign, SuiteDesign]:
    made: list[SuiteDesign] = []
    versions = (
        (whole(MiniatureEnvironment(), "ride", 2), MiniatureEnvironment()),
        (whole(Mended(), "ride-2"), Mended()),
    )
    for suite, environment in versions:
        save_suite(store, suite)
        found = design_suite(
            suite, environment, previous=made[0] if made else None, because="a truth was mended" if made else ""
        )
        save_design(store, found)
        made.append(found)
    return made[0], made[1]


def test_anchors_stay_whatever_is_drawn(workshop: Any) -> None:
    first = freeze(workshop, "ride", suite_fraction=0.3, holdout_fraction=0.0, seed=1, max_tasks_per_family=2).suite
    second = freeze(
        workshop,
        "ride-2",
        suite_fraction=0.3,
        holdout_fraction=0.0,
        seed=5,
        max_tasks_per_family=2,
        keep=[*first.task_digests, "gone"],
    )
    assert set(first.task_digests) < set(second.suite.task_digests)
    assert not set(first.task_digests) & set(second.pool)


def test_a_changelog_follows_versions_and_anchors_stay(store: SqlStore) -> None:
    first, second = frozen_versions(store)
    assert (second.version, second.follows) == (2, "ride")
    assert set(second.anchors) == set(first.tasks) - {"copy-bolt-gear"}
    assert [one.suite for one in lineage_of(store, "ride-2")] == ["ride", "ride-2"]
    rows = changelog(store, "ride-2")
    assert [row.version for row in rows] == [1, 2]
    assert rows[1].because == "a truth was mended"
    assert rows[1].changed == {"copy-bolt-gear": ("truth",)}
    assert set(rows[1].added) == set(second.tasks) - set(first.tasks)
    with pytest.raises(GateError, match="has no design"):
        lineage_of(store, "nothing")


def test_rules_are_part_of_what_is_frozen() -> None:
    environment = MiniatureEnvironment()
    suite = whole(environment)
    one = design_suite(suite, environment)
    other = design_suite(suite, environment, rules=RunRules(max_retries=0), targets={"success": 0.8})
    assert one.digest != other.digest
    assert one.components["rules"] != other.components["rules"]
    with pytest.raises(InputError):
        design_suite(suite, environment, targets={"speed": 1.0})


# ------------------------------------------------------------------------------------------------ across the border


def test_scores_of_two_versions_are_refused_and_anchors_are_compared(run_of: Any) -> None:
    old = run_of([False] * 40, suite="ride", suite_digest="one", families=20)
    new = run_of([True] * 40, suite="ride-2", suite_digest="two", families=20, environment_digest="other")
    with pytest.raises(GateError, match="differ in suite_digest"):
        compare(old, new)
    anchors = [f"t{n}" for n in range(30)]
    found = on_anchors(old, new, anchors)
    assert found.difference("success/all").num_pairs == 30
    assert (found.diff, found.reliable, found.winner) == (1.0, True, "candidate")
    few = on_anchors(old, new, anchors[:4])
    assert (few.reliable, few.winner) == (False, None)


def test_equating_by_hand(run_of: Any) -> None:
    """Ten anchors, half solved in both. The old rest is all failed (.25 in all), the new rest all solved (.75)."""
    anchors = [f"t{n}" for n in range(10)]
    half = [True, False] * 5
    old = run_of([*half, *[False] * 10], families=20, suite="ride", suite_digest="one", policy="a")
    new = run_of([*half, *[True] * 10], families=20, suite="ride-2", suite_digest="two", policy="b")
    (found,) = equate([new], [old], anchors)
    assert found.score == pytest.approx(0.75)
    assert found.shift.value == pytest.approx(0.25 - -0.25)
    assert found.equated.value == pytest.approx(0.25)
    assert found.equated.low < 0.25 < found.equated.high
    (same,) = equate([old], [old], anchors)
    assert same.shift.value == 0.0


def test_too_few_anchors_carry_nothing(run_of: Any) -> None:
    run = run_of([True] * 20, families=20)
    with pytest.raises(GateError, match="4 families of anchors"):
        equate([run], [run], [f"t{n}" for n in range(4)])
    with pytest.raises(InputError, match="one of the versions"):
        equate([run], [], ["t0"])
