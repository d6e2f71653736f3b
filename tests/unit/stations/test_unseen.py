"""Nothing trains that is kin to what is measured: open suites by text, sealed parts in counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flightschool.errors import GateError
from flightschool.evaluation import SealedHoldout, design_suite, save_design, save_suite
from flightschool.governance import AuditLog, KeyRing, seal
from flightschool.lineage import sign
from flightschool.records import StratumShare, Suite
from flightschool.stations import Quiet, require_unseen
from flightschool.store import Workspace
from flightschool.testing.miniature import MiniatureEnvironment

ENVIRONMENT = MiniatureEnvironment()


class Notes(Quiet):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.setenv("FLIGHTSCHOOL_KEYS", str(tmp_path / "keys"))
    with Workspace.create(tmp_path / "space") as made:
        yield made


def sealed_card(space: Workspace, text: str, rules: str = "") -> None:
    key = KeyRing(outside=space.root).create("ride-holdout", budget=1)
    card = SealedHoldout(
        name="ride-holdout",
        suite="ride",
        environment="e",
        environment_digest="",
        successor="",
        digest="",
        num_tasks=1,
        num_unaudited=0,
        strata={},
        looks=1,
        alpha=0.05,
        role="evaluation",
        key_id=key.id,
        box=seal(b"", key.secret, "x"),
        signatures=(sign(text, key.secret, rules),),
        complete=True,
    )
    space.store.put("sealed-holdout", card.name, card)


def test_kin_of_a_sealed_task_stop_the_training_and_only_their_number_is_told(space: Workspace) -> None:
    first, *others = ENVIRONMENT.tasks()
    sealed_card(space, first.instruction, first.guidance)
    with pytest.raises(GateError, match="1 of 1 sealed tasks have kin in training") as refused:
        require_unseen(space, ENVIRONMENT, [first], "job-1", Quiet())
    assert first.id not in str(refused.value)
    assert first.instruction not in str(refused.value)
    tell = Notes()
    strangers = [
        msgspec.structs.replace(one, instruction=f"quite another thing, number {one.id} of many words")
        for one in others
    ]
    head = require_unseen(space, ENVIRONMENT, strangers[:1], "job-1", tell)
    assert head == AuditLog(space.store).head().digest
    assert "none is kin" in tell.notes[0]


def test_without_the_key_it_is_said_and_logged_that_nothing_was_compared(
    space: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ENVIRONMENT.tasks()[0]
    sealed_card(space, first.instruction)
    monkeypatch.setenv("FLIGHTSCHOOL_KEYS", str(tmp_path / "elsewhere"))
    tell = Notes()
    require_unseen(space, ENVIRONMENT, [first], "job-1", tell)
    assert "NOT compared" in tell.notes[0]
    (entry,) = [e for e in AuditLog(space.store).entries() if e.action == "lineage check"]
    assert "NOT compared" in entry.detail["compared"][0]


def test_kin_of_an_open_suite_stop_it_too_unless_a_newer_version_replaced_it(space: Workspace) -> None:
    tasks = ENVIRONMENT.tasks()
    suite = Suite(
        name="ride",
        environment=ENVIRONMENT.name,
        environment_digest=ENVIRONMENT.digest,
        task_digests={task.id: task.digest for task in tasks},
        strata=tuple(
            StratumShare(
                name=name,
                weight=share,
                num_tasks=sum(task.stratum == name for task in tasks),
                families=tuple({task.family: None for task in tasks if task.stratum == name}),
                trained=False,
            )
            for name, share in ENVIRONMENT.strata.items()
        ),
    )
    save_suite(space.store, suite)
    first = design_suite(suite, ENVIRONMENT)
    save_design(space.store, first)
    measured: Any = [ENVIRONMENT.task(task) for task in suite.task_digests][:1]
    with pytest.raises(GateError, match="kin in training"):
        require_unseen(space, ENVIRONMENT, measured, "job-1", Quiet())
    newer = msgspec.structs.replace(first, suite="ride-2", suite_digest="other", follows="ride")
    save_design(space.store, newer)
    require_unseen(space, ENVIRONMENT, measured, "job-1", Quiet())
