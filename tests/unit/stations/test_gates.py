"""The gates: audits are kept and not repeated, freezing twice changes nothing, and only admitted tasks come through."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flightschool.errors import GateError
from flightschool.governance import AuditLog
from flightschool.records import AuditVerdict, Task
from flightschool.rollouts import NoopPolicy, OraclePolicy, Policy, PolicyEndpoint
from flightschool.stations import JobSettings, Quiet, admit, audit, candidates, freeze, frozen_suites
from flightschool.stations.settings import ScreeningTable, SuiteTable
from flightschool.store import SqlStore
from flightschool.testing.miniature import MiniatureEnvironment
from flightschool.verification import OutcomeReward

ENVIRONMENT = MiniatureEnvironment()
REWARD = OutcomeReward()
TABLE = SuiteTable(name="ride", trained=("copy",), suite_fraction=0.25, holdout_fraction=0.0)


class Ticks(Quiet):
    def __init__(self) -> None:
        self.ticks: list[tuple[int, int]] = []

    def tick(self, done: int, total: int) -> None:
        self.ticks.append((done, total))


class ScriptedPilot:
    """A pilot whose model is a script."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def policy(self, temperature: float) -> Policy:
        return self._policy


class Sometimes:
    """Solves the task on even seeds."""

    name = "sometimes"

    def __init__(self, environment: MiniatureEnvironment) -> None:
        self._policies = (OraclePolicy(environment), NoopPolicy())

    def endpoint(self, task: Task, seed: int, group: str) -> PolicyEndpoint:
        return self._policies[seed % 2].endpoint(task, seed, group)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with SqlStore(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


def copies() -> MiniatureEnvironment:
    """The miniature without its single declined task: a stratum of one family cannot be split."""
    environment = MiniatureEnvironment()
    environment.strata = {"copy": 1.0}
    environment._tasks.pop("locked-pump")
    return environment


def test_audits_are_kept_by_digest_and_not_made_again(store: SqlStore) -> None:
    first = audit(store, ENVIRONMENT, REWARD, Quiet())
    watched = Ticks()
    second = audit(store, ENVIRONMENT, REWARD, watched)
    assert second == first
    assert not watched.ticks
    assert {found.verdict for found in first} == {AuditVerdict.SOUND}


def test_freezing_again_changes_nothing_and_is_logged_once(store: SqlStore) -> None:
    environment = copies()
    first = freeze(store, environment, TABLE, 0, Quiet())
    entries = len(list(AuditLog(store).entries()))
    second = freeze(store, environment, TABLE, 0, Quiet())
    assert second.suite.digest == first.suite.digest
    assert len(list(AuditLog(store).entries())) == entries
    assert [suite.name for suite in frozen_suites(store, environment.name)] == ["ride"]
    families = {family for share in first.suite.strata for family in share.families}
    assert not families & {environment.task(task_id).family for task_id in first.pool}


def test_tasks_without_signal_do_not_come_through(store: SqlStore) -> None:
    environment = copies()
    audit(store, environment, REWARD, Quiet())
    frozen = freeze(store, environment, TABLE, 0, Quiet())
    settings = JobSettings(screening=ScreeningTable(budget=64, threshold=0.5))
    pilot = ScriptedPilot(OraclePolicy(environment))
    found = candidates(store, environment, frozen)
    with pytest.raises(GateError, match="reward variance"):  # the oracle always succeeds: nothing to compare
        admit(store, environment, REWARD, frozen, found, pilot, settings, Quiet())  # type: ignore[arg-type]


def test_tasks_with_signal_come_through_within_the_budget(store: SqlStore) -> None:
    environment = copies()
    audit(store, environment, REWARD, Quiet())
    frozen = freeze(store, environment, TABLE, 0, Quiet())
    settings = JobSettings(screening=ScreeningTable(budget=64, threshold=0.05))
    pilot = ScriptedPilot(Sometimes(environment))
    found = candidates(store, environment, frozen)
    admitted, weights, funnel = admit(store, environment, REWARD, frozen, found, pilot, settings, Quiet())  # type: ignore[arg-type]
    assert {task.id for task in admitted} <= set(frozen.pool)
    assert funnel.sound == funnel.pool == len(frozen.pool)
    assert len(admitted) == funnel.admitted > 0
    assert 0 < funnel.num_rollouts <= 64
    assert weights.keys() == {task.id for task in admitted}
    assert 0.0 < min(weights.values()) <= max(weights.values()) == 1.0


def test_unaudited_tasks_are_refused(store: SqlStore) -> None:
    environment = copies()
    frozen = freeze(store, environment, TABLE, 0, Quiet())
    with pytest.raises(GateError, match="audit"):
        candidates(store, environment, frozen)
