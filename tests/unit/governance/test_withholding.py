"""Environments from which something was sealed."""

from __future__ import annotations

import pickle

import pytest

from flightschool.errors import GateError, NotFoundError
from flightschool.governance import ReducedEnvironment, Withdrawn, require_not_withdrawn, served, withdraw
from flightschool.protocols import Environment
from flightschool.store import SqlStore
from flightschool.testing.miniature import MiniatureEnvironment


def test_hidden_tasks_are_gone_and_the_rest_is_as_it_was() -> None:
    whole = MiniatureEnvironment()
    first, *others = whole.tasks()
    reduced = ReducedEnvironment(whole, [first.digest])
    assert isinstance(reduced, Environment)
    assert list(reduced.tasks()) == others
    assert reduced.digest != whole.digest
    assert reduced.digest == ReducedEnvironment(whole, [first.digest, first.digest]).digest
    assert reduced.reference(others[0].id) == whole.reference(others[0].id)
    for ask in (reduced.task, reduced.reference):
        with pytest.raises(NotFoundError) as caught:
            ask(first.id)
        assert first.instruction not in str(caught.value)
    with pytest.raises(NotFoundError):
        reduced.open(first)
    assert pickle.loads(pickle.dumps(reduced)).digest == reduced.digest


def test_the_workspace_serves_what_is_left() -> None:
    whole = MiniatureEnvironment()
    first, second, *_ = whole.tasks()
    with SqlStore("sqlite://") as store:
        assert served(store, whole) is whole
        once = ReducedEnvironment(whole, [first.digest])
        record = Withdrawn(
            environment=whole.name, digest=whole.digest, successor=once.digest, holdout="h", hidden=(first.digest,)
        )
        withdraw(store, record)
        assert served(store, whole).digest == once.digest
        twice = ReducedEnvironment(once, [second.digest])
        withdraw(
            store,
            Withdrawn(
                environment=whole.name, digest=once.digest, successor=twice.digest, holdout="i", hidden=(second.digest,)
            ),
        )
        assert served(store, whole).digest == twice.digest
        with pytest.raises(GateError, match="still holds what was sealed as 'h'"):
            require_not_withdrawn(store, whole.digest)
        require_not_withdrawn(store, twice.digest)


def test_a_rewritten_environment_that_comes_back_is_refused() -> None:
    whole = MiniatureEnvironment()
    with SqlStore("sqlite://") as store:
        withdraw(store, Withdrawn(environment=whole.name, digest=whole.digest, successor="sha256:x", holdout="h"))
        with pytest.raises(GateError, match="still holds what was sealed"):
            served(store, whole)
