"""A broken harness is told in its own words, and what it spoiled is neither kept nor taken for a measurement."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from flightschool.errors import GateError
from flightschool.evaluation import keep_run, load_run
from flightschool.records import Attempt, Outcome
from flightschool.rollouts import EpisodeRunner, NoopPolicy, OraclePolicy, Policy, run_attempts
from flightschool.stations import Checkride, JobSettings, Quiet, admit, audit, candidates, freeze
from flightschool.stations.failing import Ungraded
from flightschool.stations.settings import ScreeningTable, SuiteTable
from flightschool.store import SqlStore
from flightschool.testing.miniature import MiniatureEnvironment
from flightschool.verification import OutcomeReward

REWARD = OutcomeReward()


class ScriptedPilot:
    """A pilot whose model is a script."""

    name = "scripted"

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def policy(self, temperature: float) -> Policy:
        return self._policy


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with SqlStore(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


@pytest.fixture
def environment() -> MiniatureEnvironment:
    made = MiniatureEnvironment()
    made.strata = {"copy": 1.0}
    made._tasks.pop("locked-pump")  # a stratum of one family cannot be split
    return made


def settings(program: Path, **tables: Any) -> JobSettings:
    return JobSettings.model_validate({"harness": {"command": [sys.executable, str(program)]}, **tables})


def ride(store: SqlStore, environment: MiniatureEnvironment, chosen: JobSettings) -> Checkride:
    table = SuiteTable(name="ride", trained=("copy",), suite_fraction=0.25, holdout_fraction=0.0)
    frozen = freeze(store, environment, table, 0, Quiet())
    return Checkride(store, frozen.suite, environment, REWARD, chosen, Quiet())


def test_a_broken_program_ends_the_measurement_in_its_own_words(
    store: SqlStore, environment: MiniatureEnvironment, tmp_path: Path
) -> None:
    checkride = ride(store, environment, settings(tmp_path / "nosuch.py"))
    pilot: Any = ScriptedPilot(OraclePolicy(environment))
    with pytest.raises(GateError, match=r"can't open file .*nosuch\.py") as raised:
        checkride.fly_clean(pilot, "run-before")
    assert "by failure of the harness and not of the policy" in raised.value.what
    assert "harness.command" in raised.value.mend
    assert not store.has("evaluation", "run-before-clean")


def test_what_was_kept_without_grades_is_measured_again(store: SqlStore, environment: MiniatureEnvironment) -> None:
    checkride = ride(store, environment, JobSettings())
    pilot: Any = ScriptedPilot(OraclePolicy(environment))
    good = checkride.fly_clean(pilot, "run-before")
    assert good.num_missing == 0
    empty = tuple(replace(item, success=None) for item in good.items)
    keep_run(store, replace(good, items=empty), actor="train")
    assert load_run(store, "run-before-clean").missing_share == 1.0
    again = checkride.fly_clean(pilot, "run-before")
    assert again.num_missing == 0
    assert load_run(store, "run-before-clean").num_missing == 0


def test_screening_blames_what_failed_and_not_the_tasks(
    store: SqlStore, environment: MiniatureEnvironment, tmp_path: Path
) -> None:
    audit(store, environment, REWARD, Quiet())
    table = SuiteTable(name="ride", trained=("copy",), suite_fraction=0.25, holdout_fraction=0.0)
    frozen = freeze(store, environment, table, 0, Quiet())
    chosen = settings(tmp_path / "nosuch.py").model_copy(update={"screening": ScreeningTable(budget=16)})
    pilot: Any = ScriptedPilot(NoopPolicy())
    found = candidates(store, environment, frozen)
    with pytest.raises(GateError, match=r"16 of 16 attempts have no grade, .*nosuch\.py") as raised:
        admit(store, environment, REWARD, frozen, found, pilot, chosen, Quiet())
    assert "easier" not in raised.value.mend


def test_a_failure_that_was_mended_by_a_retry_ends_nothing(environment: MiniatureEnvironment) -> None:
    failed = _infra(environment)
    watch = Ungraded(50, "evaluation e")
    for _ in range(40):
        watch.see(replace(failed, number=0))  # tried again
    watch.see(replace(failed, number=2))  # one of fifty: the limit
    with pytest.raises(GateError, match="2 of 50 attempts"):
        watch.see(replace(failed, number=2))


def _infra(environment: MiniatureEnvironment) -> Attempt:
    runner = EpisodeRunner(environment, REWARD, run="r")
    (attempt,) = run_attempts(runner, environment.tasks()[:1], NoopPolicy(), seed=0)
    return replace(attempt, outcome=Outcome.INFRA_FAILURE, reward=None, cause="engine", detail="no numbers")
