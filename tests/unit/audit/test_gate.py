from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from flightschool.audit import AuditIndex, audit_environment, require_sound, save_audits
from flightschool.errors import GateError, InputError
from flightschool.governance import AuditLog, overrides
from flightschool.records import AuditVerdict, CheckSpec, Finding, Severity, TaskAudit
from flightschool.store import SqlStore
from flightschool.verification import OutcomeReward

TASKS = ("copy-gear-pump", "copy-gear-seal", "locked-cog")


@pytest.fixture
def store() -> Iterator[SqlStore]:
    opened = SqlStore("sqlite://")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def audits(make_price_list: Any) -> tuple[TaskAudit, ...]:
    environment = make_price_list()
    tasks = [environment.task(task_id) for task_id in TASKS]
    return audit_environment(environment, composition=OutcomeReward(), tasks=tasks)


@pytest.fixture
def audited(price_list: Any, audits: tuple[TaskAudit, ...], store: SqlStore) -> Any:
    save_audits(store, audits)
    return price_list


def test_sound_tasks_pass(audited: Any, store: SqlStore) -> None:
    tasks = [audited.task(task_id) for task_id in TASKS]
    assert [audit.task for audit in require_sound(store, audited, tasks)] == list(TASKS)


def test_an_unaudited_task_is_refused_by_name(audited: Any, store: SqlStore) -> None:
    tasks = [audited.task(task_id) for task_id in (*TASKS, "copy-bolt-pump")]
    with pytest.raises(GateError, match=r"1 task\(s\) are not sound: copy-bolt-pump \(unaudited\)"):
        require_sound(store, audited, tasks)
    assert AuditIndex(store, audited).sound(tasks) == tuple(tasks[:3])


def test_a_changed_word_makes_a_task_unaudited(audited: Any, store: SqlStore) -> None:
    audited.change(TASKS[0], instruction="Give gear the price of pump, please.")
    with pytest.raises(GateError, match="copy-gear-pump"):
        require_sound(store, audited, [audited.task(TASKS[0])])


def test_a_changed_check_makes_a_task_unaudited(audited: Any, store: SqlStore) -> None:
    checks: tuple[CheckSpec, ...] = audited.references[TASKS[0]].checks
    audited.recheck(TASKS[0], checks[0])
    assert AuditIndex(store, audited).verdict(audited.task(TASKS[0])) is AuditVerdict.UNAUDITED


def test_a_finding_of_the_whole_environment_bars_sound_tasks_too(audited: Any, store: SqlStore) -> None:
    task = audited.task(TASKS[0])
    found = AuditIndex(store, audited).find(task)
    assert found is not None
    wide = Finding(probe="environment.ceiling", severity=Severity.BARRING, what="a habit scores .9")
    save_audits(store, [msgspec.structs.replace(found, findings=(wide,))])
    with pytest.raises(GateError, match=r"the whole environment is suspect: a habit scores \.9"):
        require_sound(store, audited, [task])


def test_an_override_needs_a_name_and_a_reason_and_is_written_down(audited: Any, store: SqlStore) -> None:
    task = audited.task("copy-bolt-pump")
    with pytest.raises(InputError, match="needs a reason"):
        require_sound(store, audited, [task], actor="Vera")
    with pytest.raises(InputError, match="needs a actor"):
        require_sound(store, audited, [task], reason="demonstration")
    assert require_sound(store, audited, [task], actor="Vera", reason="demonstration") == ()
    (written,) = overrides(AuditLog(store))
    assert (written.name, written.reason, written.gate) == ("Vera", "demonstration", "audit")
    assert "copy-bolt-pump (unaudited)" in written.subject
