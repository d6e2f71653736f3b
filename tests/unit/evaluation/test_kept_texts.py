"""Kept texts of suites: whole or not at all, once, and never of what is sealed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.evaluation.sealed import TRACES

from flightschool.environments import build_from_traces, load_environment, save_environment
from flightschool.evaluation import freeze, load_texts, save_frozen, save_texts, seal_holdout, suite_texts
from flightschool.evaluation.kept_texts import KeptTexts
from flightschool.governance import AuditLog, KeyRing
from flightschool.store import SqlStore, Workspace
from flightschool.traces import save_traces


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with SqlStore(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


def test_texts_are_kept_once_with_their_digest_in_the_log(store: SqlStore, workshop: Any) -> None:
    suite = freeze(workshop, "s", frozen_at="now").suite
    assert load_texts(store, suite) is None
    assert save_texts(store, suite, workshop, actor="Vera")
    assert load_texts(store, suite) == suite_texts(suite, workshop)
    assert save_texts(store, suite, workshop)
    (entry,) = [e for e in AuditLog(store).entries() if e.action == "keep texts"]
    assert (entry.actor, entry.subject, entry.detail["suite"]) == ("Vera", "s", suite.digest)


def test_half_a_suite_is_not_kept(store: SqlStore, workshop: Any) -> None:
    suite = freeze(workshop, "s", frozen_at="now").suite
    first = next(iter(suite.task_digests))
    workshop.rows[first] = msgspec.structs.replace(workshop.task(first), instruction="Something else by now.")
    assert not save_texts(store, suite, workshop)
    assert load_texts(store, suite) is None


def test_sealed_texts_are_not_kept_and_those_that_are_leave_the_workspace(tmp_path: Path) -> None:
    with Workspace.create(tmp_path / "space") as space:
        save_traces(space.store, "june", TRACES)
        save_environment(space.store, build_from_traces(TRACES, "june"))
        world = load_environment("june", space)
        frozen = freeze(world, "ride", suite_fraction=0.25, holdout_fraction=0.25)
        assert frozen.holdout is not None
        elsewhere = msgspec.structs.replace(frozen.holdout, name="other", task_digests={}, environment="may")
        save_frozen(space.store, msgspec.structs.replace(frozen, suite=elsewhere, holdout=None, pool=()))
        told = KeptTexts(suite_digest=elsewhere.digest, texts=suite_texts(frozen.holdout, world))
        space.store.put("suite-texts", elsewhere.digest, told)
        ring = KeyRing(tmp_path / "keys", outside=space.root)
        seal_holdout(space.store, frozen, world, ring=ring, actor="Vera", root=space.root, unaudited=lambda _: [])
        assert load_texts(space.store, elsewhere) is None
        assert save_texts(space.store, frozen.suite, load_environment("june", space))
        secret = [text.text for text in told.texts]
        kept = load_texts(space.store, frozen.suite)
    assert kept is not None
    assert not {text.text for text in kept} & set(secret)
    database = b"".join(path.read_bytes() for path in (tmp_path / "space").rglob("*") if path.is_file())
    assert not [text for text in secret if text.encode() in database]
