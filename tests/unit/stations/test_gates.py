"""The gates: audits are kept and not repeated, freezing twice changes nothing, and only admitted tasks come through."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from flightschool.audit.trajectories import canaries_of, facts_of
from flightschool.errors import GateError, InputError
from flightschool.evaluation import load_texts, suite_texts
from flightschool.governance import AuditLog, distinct, overrides
from flightschool.records import AuditVerdict, Task
from flightschool.rollouts import EpisodeRunner, NoopPolicy, OraclePolicy, Policy, PolicyEndpoint, run_attempts
from flightschool.stations import (
    JobSettings,
    Quiet,
    admit,
    audit,
    canary_tasks,
    candidates,
    freeze,
    frozen_suites,
)
from flightschool.stations.settings import CanariesTable, ScreeningTable, SuiteTable, WaiverTable
from flightschool.stations.watching import Canaries, WatchedSource, canary_note
from flightschool.store import SqlStore
from flightschool.testing.miniature import MiniatureEnvironment
from flightschool.training import PoolSource
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


def test_a_waiver_lets_named_tasks_train_and_is_written_down(store: SqlStore) -> None:
    environment = copies()
    frozen = freeze(store, environment, TABLE, 0, Quiet())
    named = frozen.pool[:2]
    waiver = WaiverTable(name="Vera", reason="a demonstration", tasks=tuple(named))
    found = candidates(store, environment, frozen, waiver)
    assert [task.id for task in found.sound] == list(named)
    (written,) = overrides(AuditLog(store))
    assert (written.gate, written.name, written.reason) == ("audit", "Vera", "a demonstration")
    candidates(store, environment, frozen, waiver)
    assert len(distinct(overrides(AuditLog(store)))) == 1
    with pytest.raises(InputError, match="is waived, and is none of the pool"):
        candidates(store, environment, frozen, WaiverTable(name="Vera", reason="r", tasks=("nothing",)))


def test_a_waiver_needs_a_name_and_a_reason() -> None:
    for fields in ({"name": "Vera"}, {"reason": "r"}, {"tasks": ("t",)}, {"name": " ", "reason": "r"}):
        with pytest.raises(ValidationError, match="both a name and a reason"):
            WaiverTable.model_validate(fields)


def test_canaries_are_watched_and_never_candidates(store: SqlStore) -> None:
    environment = copies()
    audit(store, environment, REWARD, Quiet())
    frozen = freeze(store, environment, TABLE, 0, Quiet())
    chosen = frozen.pool[0]
    table = CanariesTable(tasks=(chosen,), reason="its two checks contradict one another", share=0.25)
    canaries = canary_tasks(store, environment, frozen, table, Quiet())
    assert [task.id for task in canaries.tasks] == [chosen]
    assert canaries.share == 0.25
    found = candidates(store, environment, frozen, canaries=canaries)
    assert chosen not in {task.id for task in found.sound}
    assert canaries_of(store, environment.name) == {chosen}
    measured = CanariesTable(tasks=(next(iter(frozen.suite.task_digests)),), reason="r")
    with pytest.raises(InputError, match="frozen into suite or holdout"):
        canary_tasks(store, environment, frozen, measured, Quiet())


class Notes(Quiet):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_watched_source_mixes_canaries_in_and_tells_of_a_pass_once(store: SqlStore) -> None:
    environment = copies()
    tasks = environment.tasks()
    canary, pool = tasks[0], tasks[1:4]

    def source(told: Quiet) -> WatchedSource:
        return WatchedSource(PoolSource(pool), facts_of(environment), Canaries((canary,), 0.25), told)

    told = Notes()
    watched = source(told)
    order = [task.id for task in (watched.next_task() for _ in range(40)) if task is not None]
    assert order.count(canary.id) == 10
    again = source(Quiet())
    assert [task.id for task in (again.next_task() for _ in range(40)) if task is not None] == order
    runner = EpisodeRunner(environment, REWARD, run="r")
    for number in range(2):
        group = asyncio.run(
            runner.group(canary, OraclePolicy(environment), size=2, group=f"g{number}", admitted_step=0, seed=number)
        )
        watched.report(group)
    assert [note.split(" at ")[0] for note in told.notes] == ["canary-passed"]


def test_the_report_tells_how_often_canaries_were_passed(store: SqlStore) -> None:
    environment = copies()
    canary = environment.tasks()[0]
    attempts = run_attempts(EpisodeRunner(environment, REWARD, run="r"), [canary] * 4, NoopPolicy(), seed=0)
    (told,) = canary_note(attempts, {canary.id})
    assert "4 attempts at 1 impossible tasks" in told
    assert "0 passed (cheat rate 0.000 [0.000, 0." in told
    assert "none was attempted" in canary_note([], {canary.id})[0]
    assert canary_note(attempts, ()) == []


def test_a_freeze_keeps_the_texts_of_suite_and_listed_holdout(store: SqlStore) -> None:
    environment = copies()
    frozen = freeze(store, environment, TABLE.model_copy(update={"holdout_fraction": 0.25}), 0, Quiet())
    assert frozen.holdout is not None
    for part in (frozen.suite, frozen.holdout):
        assert load_texts(store, part) == suite_texts(part, environment)
