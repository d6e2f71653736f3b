"""Stored attempts judged again: by a corrected truth, from kept states or from the recorded calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.suites import whole_suite

from flightschool.errors import GateError
from flightschool.evaluation import EvaluationRun, compare, evaluate, regrade_run
from flightschool.perturbation import profile
from flightschool.protocols import World, WorldReply
from flightschool.records import (
    AnswerCheck,
    CheckKind,
    CheckSpec,
    Outcome,
    Reference,
    Suite,
    Task,
    ToolCall,
)
from flightschool.rollouts import NoopPolicy, OraclePolicy
from flightschool.store import SqlStore
from flightschool.testing.miniature import MiniatureEnvironment, MiniatureWorld
from flightschool.verification import OutcomeReward

WEATHER = profile("noisy")


def suite_of(environment: MiniatureEnvironment, name: str = "ride") -> Suite:
    return whole_suite(environment, name)


class Corrected(MiniatureEnvironment):
    """The truth of one task was wrong: an answer is wanted that nobody gives."""

    @property
    def digest(self) -> str:
        return "sha256:corrected"

    def reference(self, task_id: str) -> Reference:
        found = super().reference(task_id)
        if task_id != "copy-bolt-gear":
            return found
        more = CheckSpec(id="says", kind=CheckKind.FUNCTIONAL, rule=AnswerCheck(contains=("seventeen",)))
        return msgspec.structs.replace(found, checks=(*found.checks, more))


def flown(store: SqlStore, *, states: bool, weather: bool = False, policy: Any = OraclePolicy) -> EvaluationRun:
    environment = MiniatureEnvironment()
    return evaluate(
        suite_of(environment),
        environment,
        policy(environment),
        composition=OutcomeReward(),
        run="eval-0001",
        weather_profile=WEATHER if weather else None,
        keep_blob=store.put_blob if states else None,
        on_attempt=lambda attempt: store.put("attempt", attempt.id, attempt),
    )


def again(store: SqlStore, run: EvaluationRun, environment: MiniatureEnvironment, **options: Any) -> Any:
    suite = suite_of(environment, "ride" if type(environment) is MiniatureEnvironment else "ride-2")
    defaults: dict[str, Any] = {"composition": OutcomeReward(), "run_id": "eval-0002"}
    return regrade_run(store, run, suite, environment, **{**defaults, **options})


@pytest.mark.parametrize(("states", "weather"), [(True, False), (False, False), (False, True)])
def test_the_same_grader_says_the_same(store: SqlStore, states: bool, weather: bool) -> None:
    run = flown(store, states=states, weather=weather)
    found = again(store, run, MiniatureEnvironment(), weather_profile=WEATHER if weather else None)
    assert (found.turned, found.lost) == ({}, {})
    assert [i.success for i in found.run.items] == [i.success for i in run.items]
    assert (found.run.regraded, found.run.seeds_of) == ("eval-0001", "")


def test_a_corrected_truth_turns_a_grade_without_flying_again(store: SqlStore) -> None:
    run = flown(store, states=False)
    found = again(store, run, Corrected())
    assert found.turned == {"copy-bolt-gear#0": "succeeded → failed"}
    assert sum(bool(item.success) for item in found.run.items) == len(run.items) - 1
    assert (found.run.suite, found.run.seeds_of) == ("ride-2", run.suite_digest)
    fresh = evaluate(
        suite_of(Corrected(), "ride-2"), Corrected(), NoopPolicy(), composition=OutcomeReward(), run="eval-0003"
    )
    with pytest.raises(GateError, match="seeds_of"):  # other latencies and weather: no pair
        compare(found.run, fresh)


def test_an_edited_attempt_is_refused(store: SqlStore) -> None:
    run = flown(store, states=False)
    key = run.items[0].attempt
    from flightschool.records import Attempt

    attempt = store.get("attempt", key, Attempt)
    store.put("attempt", key, msgspec.structs.replace(attempt, messages=attempt.messages[:-1]))
    with pytest.raises(GateError, match="its record was changed"):
        again(store, run, MiniatureEnvironment())


class Moody(MiniatureEnvironment):
    """A world that answers otherwise than when it was recorded."""

    def open(self, task: Task) -> World:
        return _Moody()


class _Moody(MiniatureWorld):
    def execute(self, call: ToolCall) -> WorldReply:
        if call.name == "set_price":
            super().execute(msgspec.structs.replace(call, arguments={**call.arguments, "price": 1}))
            return WorldReply(value={"ok": True})
        return super().execute(call)


def test_what_cannot_be_judged_again_is_missing_not_failed(store: SqlStore) -> None:
    run = flown(store, states=False)
    found = again(store, run, Moody())
    num_copy = sum(item.stratum == "copy" for item in run.items)
    assert len(found.lost) == num_copy
    assert all("another state" in why for why in found.lost.values())
    assert found.run.num_missing == num_copy
    assert {i.outcome for i in found.run.items if i.stratum == "copy"} == {Outcome.INFRA_FAILURE}


def test_other_tasks_are_no_attempts_at_these(store: SqlStore, tmp_path: Path) -> None:
    environment = MiniatureEnvironment()
    run = flown(store, states=False)
    suite = suite_of(environment, "other")
    renamed = msgspec.structs.replace(suite, task_digests=dict.fromkeys(suite.task_digests, "sha256:0"))
    with pytest.raises(GateError):
        regrade_run(store, run, renamed, environment, composition=OutcomeReward(), run_id="eval-0002")
