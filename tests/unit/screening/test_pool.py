from __future__ import annotations

from collections.abc import Iterator

import pytest

from flightschool.errors import GateError, InputError
from flightschool.governance import AuditLog, overrides
from flightschool.records import StratumShare, Suite, Task
from flightschool.screening import TrainingPool
from flightschool.store import SqlStore
from flightschool.testing.miniature import MiniatureEnvironment

ENVIRONMENT = MiniatureEnvironment()


@pytest.fixture
def store() -> Iterator[SqlStore]:
    opened = SqlStore("sqlite://")
    yield opened
    opened.close()


def suite_of(*task_ids: str, environment: str = "miniature") -> Suite:
    tasks = [ENVIRONMENT.task(task_id) for task_id in task_ids]
    families = tuple({task.family for task in tasks})
    share = StratumShare(name="copy", weight=1.0, num_tasks=len(tasks), families=families, trained=True)
    return Suite(
        name="s",
        environment=environment,
        environment_digest="d",
        task_digests={task.id: task.digest for task in tasks},
        strata=(share,),
    )


def tasks_of(family: str) -> list[Task]:
    return [task for task in ENVIRONMENT.tasks() if task.family == family]


def test_a_pool_of_other_families_is_accepted() -> None:
    pool = TrainingPool(tasks_of("locked"), suites=[suite_of("copy-bolt-gear")], environment=ENVIRONMENT)
    assert [task.id for task in pool] == ["locked-pump"]
    assert len(pool) == 1


def test_a_task_of_a_measured_family_is_refused_though_it_is_another_task() -> None:
    with pytest.raises(GateError, match="overlap with suite 's': copy-seal-gear"):
        TrainingPool([ENVIRONMENT.task("copy-seal-gear")], suites=[suite_of("copy-bolt-gear")], environment=ENVIRONMENT)


def test_nearly_the_same_wording_in_another_family_is_refused() -> None:
    twin = Task(
        id="twin",
        family="elsewhere",
        stratum="copy",
        instruction="Of gear the price give bolt!",
        guidance="Use the tools.",
        initial_state="prices",
    )
    with pytest.raises(GateError, match="overlap"):
        TrainingPool([twin], suites=[suite_of("copy-bolt-gear")], environment=ENVIRONMENT)


def test_names_of_families_mean_nothing_in_another_environment() -> None:
    suite = suite_of("copy-bolt-gear", environment="another")
    assert len(TrainingPool(tasks_of("from-seal"), suites=[suite], environment=ENVIRONMENT)) == 2
    with pytest.raises(GateError):  # but the same content is the same content
        TrainingPool([ENVIRONMENT.task("copy-bolt-gear")], suites=[suite], environment=ENVIRONMENT)


def test_a_suite_is_no_pool() -> None:
    suite = suite_of("copy-bolt-gear")
    with pytest.raises(TypeError, match="not of a Suite"):
        TrainingPool(suite, suites=[suite], environment=ENVIRONMENT)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not of a Suite"):
        TrainingPool([suite], suites=[suite], environment=ENVIRONMENT)  # type: ignore[list-item]


def test_nothing_trains_before_a_freeze_unless_someone_answers_for_it(store: SqlStore) -> None:
    with pytest.raises(GateError, match="no suite is frozen"):
        TrainingPool(tasks_of("locked"), suites=[], environment=ENVIRONMENT)
    with pytest.raises(InputError):
        TrainingPool.unmeasured(tasks_of("locked"), store=store, actor="Vera", reason=" ")
    pool = TrainingPool.unmeasured(tasks_of("locked"), store=store, actor="Vera", reason="smoke test")
    assert len(pool) == 1
    assert [(o.name, o.gate, o.reason) for o in overrides(AuditLog(store))] == [("Vera", "freeze", "smoke test")]


def test_a_part_keeps_the_order_and_a_double_is_refused() -> None:
    pool = TrainingPool(tasks_of("from-seal"), suites=[suite_of("locked-pump")], environment=ENVIRONMENT)
    ids = [task.id for task in pool]
    assert [task.id for task in pool.only(set(ids[1:]))] == ids[1:]
    with pytest.raises(InputError, match="stands twice"):
        TrainingPool([*pool, pool.tasks[0]], suites=[suite_of("locked-pump")], environment=ENVIRONMENT)
