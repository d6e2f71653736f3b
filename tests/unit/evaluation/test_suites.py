from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flightschool.errors import GateError, InputError, NotFoundError
from flightschool.evaluation import (
    freeze,
    load_pool,
    load_suite,
    num_looks,
    open_holdout,
    save_frozen,
    save_suite,
)
from flightschool.governance import AuditLog
from flightschool.store import SqlStore


def test_a_freeze_comes_back_as_it_was(workshop: Any, store: SqlStore) -> None:
    frozen = freeze(workshop, "s")
    save_frozen(store, frozen)
    assert load_suite(store, "s", workshop) == frozen.suite
    assert load_pool(store, "s").tasks == frozen.pool
    assert [(e.action, e.subject) for e in AuditLog(store).entries()] == [
        ("freeze suite", "s"),
        ("freeze suite", "s-holdout"),
    ]


def test_a_frozen_suite_is_never_overwritten(workshop: Any, store: SqlStore) -> None:
    frozen = freeze(workshop, "s", frozen_at="first")
    save_frozen(store, frozen)
    save_frozen(store, freeze(workshop, "s", frozen_at="second"))  # the same content: nothing to do
    assert load_suite(store, "s", workshop).frozen_at == "first"
    with pytest.raises(GateError, match="frozen already"):
        save_frozen(store, freeze(workshop, "s", seed=1))
    assert load_suite(store, "s", workshop) == frozen.suite
    assert load_pool(store, "s").tasks == frozen.pool


def test_drift_names_the_tasks(workshop: Any, store: SqlStore) -> None:
    save_frozen(store, freeze(workshop, "s"))
    suite = load_suite(store, "s", workshop)
    first, second, *_ = suite.task_digests
    workshop.rows[first] = msgspec.structs.replace(workshop.task(first), instruction="something else")
    del workshop.rows[second]
    with pytest.raises(GateError, match=rf"2 task\(s\) changed since the freeze: {first}, {second}"):
        load_suite(store, "s", workshop)


def test_a_change_around_the_tasks_is_drift_too(workshop: Any, store: SqlStore) -> None:
    frozen = freeze(workshop, "s")
    save_frozen(store, frozen)
    workshop.rows["new"] = msgspec.structs.replace(workshop.task(frozen.pool[0]), id="new")
    with pytest.raises(GateError, match="the environment changed since the freeze"):
        load_suite(store, "s", workshop)


def test_the_holdout_opens_for_a_person_with_a_reason_and_every_look_is_counted(workshop: Any, store: SqlStore) -> None:
    frozen = freeze(workshop, "s")
    save_frozen(store, frozen)
    with pytest.raises(GateError, match="sealed holdout"):
        load_suite(store, "s-holdout", workshop)
    with pytest.raises(InputError, match="by a person for a reason"):
        open_holdout(store, "s-holdout", workshop, actor="Vera", reason="")
    assert num_looks(store, "s-holdout") == 0
    opened = open_holdout(store, "s-holdout", workshop, actor="Vera", reason="acceptance of run 7")
    assert opened == frozen.holdout
    open_holdout(store, "s-holdout", workshop, actor="Otto", reason="again")
    assert num_looks(store, "s-holdout") == 2
    looks = [entry for entry in AuditLog(store).entries() if entry.action == "open holdout"]
    assert [(e.actor, e.detail["reason"], e.detail["budget"]) for e in looks] == [
        ("Vera", "acceptance of run 7", 3),
        ("Otto", "again", 3),
    ]
    open_holdout(store, "s-holdout", workshop, actor="Otto", reason="a third time")
    with pytest.raises(GateError, match="budget is spent"):
        open_holdout(store, "s-holdout", workshop, actor="Otto", reason="and once more")


def test_a_record_changed_behind_the_logs_back_is_refused(workshop: Any, store: SqlStore) -> None:
    suite = freeze(workshop, "s").suite
    save_suite(store, suite)
    first = next(iter(suite.task_digests))
    fewer = {task: digest for task, digest in suite.task_digests.items() if task != first}
    store.put("suite", "s", msgspec.structs.replace(suite, task_digests=fewer))
    with pytest.raises(GateError, match="not the one that the audit log saw frozen"):
        load_suite(store, "s", workshop)


def test_an_unknown_name_is_an_error(workshop: Any, store: SqlStore) -> None:
    with pytest.raises(NotFoundError):
        load_suite(store, "nothing", workshop)
    with pytest.raises(NotFoundError):
        open_holdout(store, "nothing", workshop, actor="a", reason="b")
