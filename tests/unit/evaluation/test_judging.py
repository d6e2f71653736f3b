"""Grades held against the labels of people, and judges as part of what is frozen."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.suites import whole_suite

from flightschool.errors import GateError
from flightschool.evaluation import compare, design_suite, judged, judges_of, require_design
from flightschool.governance import ReviewCandidate, add_label, draw_sheet, save_sheet
from flightschool.records import CheckKind, CheckSpec, JudgeCheck, Reference, Suite
from flightschool.store import SqlStore
from flightschool.testing.miniature import MiniatureEnvironment
from flightschool.verification import verifier

JUDGE = JudgeCheck(criterion="The answer is kind.", endpoint="openai:http://127.0.0.1:9/v1#judge-1", key_env="")


def whole(environment: MiniatureEnvironment, name: str = "ride") -> Suite:
    return whole_suite(environment, name)


class Judging(MiniatureEnvironment):
    """A model decides, beside the checks."""

    rule = JUDGE

    def reference(self, task_id: str) -> Reference:
        found = super().reference(task_id)
        kind = CheckSpec(id="kind", kind=CheckKind.FUNCTIONAL, rule=self.rule)
        return msgspec.structs.replace(found, checks=(*found.checks, kind))


def test_the_judge_its_model_and_its_prompt_are_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Judging()
    suite = whole(environment)
    frozen = design_suite(suite, environment)
    assert judges_of(suite, environment) == (JUDGE.endpoint,)
    assert judges_of(suite, MiniatureEnvironment()) == ()
    require_design(frozen, suite, environment)
    environment.rule = msgspec.structs.replace(JUDGE, endpoint="openai:http://127.0.0.1:9/v1#judge-2")
    with pytest.raises(GateError, match="verifier of"):
        require_design(frozen, suite, environment)
    environment.rule = JUDGE
    monkeypatch.setattr(verifier, "PROMPT_VERSION", "another")
    with pytest.raises(GateError, match="verifier of"):
        require_design(frozen, suite, environment)


def test_a_judge_that_nobody_checked_decides_nothing(run_of: Any) -> None:
    found = compare(run_of([False] * 40), run_of([True] * 40), judge_alpha=float("nan"))
    assert found.winner is None
    assert "no review label" in found.doubts[0]


def labelled(store: SqlStore, run: Any, wrong: set[str], num: int = 40) -> None:
    """A sheet over all attempts, labelled by somebody who disagrees with the grades named."""
    candidates = [
        ReviewCandidate(attempt=item.attempt, task=item.task, stratum=item.stratum, passed=bool(item.success), why="")
        for item in run.items
    ]
    sheet = draw_sheet(candidates, name="sheet", target=run.id, by="stratum", num=num, seed=0, made_by="Vera")
    save_sheet(store, sheet)
    for item in sheet.items:
        right = item.passed != (item.attempt in wrong)
        label = "right" if right else "wrong"
        add_label(store, sheet, item.attempt, reviewer="Vera", label=label, reason="seen")


def test_labels_give_alpha_errors_and_two_corrections(run_of: Any, store: SqlStore) -> None:
    run = run_of([True] * 60 + [False] * 40, id="eval-0001")
    wrong = {run.items[n].attempt for n in range(6)}  # six of sixty passes are wrong
    labelled(store, run, wrong, num=100)
    found = judged(store, run)
    assert found.num_labels == 100
    assert found.as_graded.value == 0.6
    assert found.prediction_powered is not None
    assert found.prediction_powered.value == pytest.approx(0.54)
    assert found.rogan_gladen is not None
    assert found.rogan_gladen.value == pytest.approx(0.54, abs=0.01)
    assert found.rogan_gladen.low < 0.54 < found.rogan_gladen.high
    assert "squared and added" in found.rogan_gladen.method, "one way to correct a rate, whoever asks"
    assert found.alpha is not None
    assert 0.8 < found.alpha < 1.0
    assert found.error is not None
    assert found.error.rho0 is not None
    assert found.error.rho0.value == pytest.approx(6 / 46)


def test_nothing_is_corrected_without_labels_in_every_cell(run_of: Any, store: SqlStore) -> None:
    run = run_of([True] * 60 + [False] * 40, id="eval-0001")
    bare = judged(store, run)
    assert (bare.alpha, bare.prediction_powered, bare.num_unspoken) == (None, None, 100)
    assert "nobody has looked" in bare.notes[0]
