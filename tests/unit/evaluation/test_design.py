"""The design of a suite: probabilities, weights, what it cannot say, and refusals that name what differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.suites import whole_suite

from flightschool.errors import GateError, InputError
from flightschool.evaluation import (
    design_suite,
    freeze,
    load_design,
    require_design,
    save_design,
)
from flightschool.records import Reference
from flightschool.store import SqlStore
from flightschool.testing.miniature import MiniatureEnvironment
from flightschool.verification import OutcomeReward


class Changed(MiniatureEnvironment):
    """The miniature with one thing changed."""

    def __init__(self, change: str = "") -> None:
        super().__init__()
        self.change = change
        if change == "rules":
            self.policy_text = "Other rules."

    def reference(self, task_id: str) -> Reference:
        found = super().reference(task_id)
        return msgspec.structs.replace(found, oracle_answer="Another.") if self.change == "truth" else found

    def tools(self) -> Any:
        found = super().tools()
        return found[::-1] if self.change == "tools" else found


def referenced(workshop: Any) -> Any:
    """The workshop with references, which freezing alone does not ask for."""
    workshop.reference = lambda task_id: Reference(task_id=task_id, checks=MiniatureEnvironment().reference(
        MiniatureEnvironment().tasks()[0].id
    ).checks)  # fmt: skip
    workshop.open = lambda task: MiniatureEnvironment().open(MiniatureEnvironment().tasks()[0])
    return workshop


def test_inclusion_weights_and_effective_size(workshop: Any) -> None:
    world = referenced(workshop)
    suite = freeze(
        world, "s", suite_fraction=0.34, holdout_fraction=0.17, max_tasks_per_family=2, frozen_at="now"
    ).suite
    design = design_suite(suite, world)
    # Two of six families in each stratum, two of five tasks in each: 1/3 · 2/5.
    assert {round(one.inclusion, 9) for one in design.tasks.values()} == {round(2 / 15, 9)}
    by_stratum = {world.task(task).stratum: one.weight for task, one in design.tasks.items()}
    assert by_stratum == {"easy": pytest.approx(0.7 / 4), "hard": pytest.approx(0.3 / 4)}
    assert sum(one.weight for one in design.tasks.values()) == pytest.approx(1.0)
    # Kish by hand: 1 / (4·(.7/4)² + 4·(.3/4)²) = 4 / .58
    assert design.effective_tasks == pytest.approx(4 / 0.58)
    assert design.families == {"easy": 2, "hard": 2}
    assert (design.silent, design.thin) == ({}, ())


def test_traffic_without_tasks_is_what_the_suite_cannot_speak_for(workshop: Any) -> None:
    world = referenced(workshop)
    world.strata = {"easy": 0.5, "hard": 0.3, "never solved": 0.2}
    suite = freeze(world, "s", frozen_at="now").suite
    assert [(s.name, round(s.weight, 9)) for s in suite.strata] == [("easy", 0.625), ("hard", 0.375)]
    design = design_suite(suite, world)
    assert design.silent == {"never solved": pytest.approx(0.2)}
    assert "cannot speak for stratum 'never solved' (20.0% of traffic)" in design.notes[0]


@pytest.mark.parametrize(("change", "named"), [("truth", "truth of"), ("rules", "house rules"), ("tools", "tools")])
def test_a_refusal_names_what_differs(change: str, named: str) -> None:
    environment = MiniatureEnvironment()
    suite = whole_suite(environment)
    design = design_suite(suite, environment, composition=OutcomeReward())
    require_design(design, suite, environment, composition=OutcomeReward())
    with pytest.raises(GateError, match=f"changed since the freeze: {named}"):
        require_design(design, suite, Changed(change), composition=OutcomeReward())


class OtherComposition(OutcomeReward):
    digest = "sha256:other"


def test_grading_and_faults_are_frozen_where_they_were_known() -> None:
    environment = MiniatureEnvironment()
    suite = whole_suite(environment)
    design = design_suite(suite, environment, composition=OutcomeReward(), faults={"noisy": "sha256:a"})
    with pytest.raises(GateError, match="composition"):
        require_design(design, suite, environment, composition=OtherComposition())
    with pytest.raises(GateError, match="faults/noisy"):
        require_design(design, suite, environment, composition=OutcomeReward(), faults={"noisy": "sha256:b"})
    require_design(design, suite, environment, composition=OutcomeReward(), faults={"own": "sha256:c"})
    weights: Mapping[str, float] = {s.name: s.weight for s in suite.strata}
    reweighted = msgspec.structs.replace(
        suite, strata=tuple(msgspec.structs.replace(s, weight=1 - weights[s.name]) for s in suite.strata)
    )
    with pytest.raises(GateError, match="the suite itself"):
        require_design(design, reweighted, environment)


def test_a_design_is_kept_once_and_the_log_holds_its_digest() -> None:
    environment = MiniatureEnvironment()
    design = design_suite(whole_suite(environment), environment)
    with SqlStore("sqlite://") as store:
        assert load_design(store, "whole") is None
        save_design(store, design)
        save_design(store, msgspec.structs.replace(design, mde=0.0))  # too late
        assert load_design(store, "whole") == design
        store.put("suite-design", "whole", msgspec.structs.replace(design, components={}))
        with pytest.raises(GateError, match="not the one that the audit log saw"):
            load_design(store, "whole")
        store.delete("suite-design", "whole")
        with pytest.raises(GateError, match="not the one that the audit log saw"):
            load_design(store, "whole")


def test_realism_is_stated_dimension_by_dimension(workshop: Any) -> None:
    world = referenced(workshop)
    suite = freeze(world, "s", suite_fraction=0.34, frozen_at="now").suite
    words = {"tools": "matched", "latency": "scaled", "users": "ignored"}
    design = design_suite(suite, world, realism=words)
    assert design.realism == words
    assert design.notes == ("realism not stated: state_size, permissions, faults",)
    with pytest.raises(InputError, match="realism of 'weather'"):
        design_suite(suite, world, realism={"weather": "matched"})
    with pytest.raises(InputError, match="'perfect'"):
        design_suite(suite, world, realism={"tools": "perfect"})
