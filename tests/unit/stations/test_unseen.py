"""Nothing trains that is kin to what is measured: open suites by text, sealed parts in counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flightschool.environments.opening import open_environment
from flightschool.errors import GateError
from flightschool.evaluation import SealedHoldout, design_suite, save_design, save_suite
from flightschool.governance import AuditLog, KeyRing, seal
from flightschool.lineage import sign
from flightschool.protocols import Environment
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


def frozen(space: Workspace, environment: Environment, name: str = "ride") -> Suite:
    tasks = environment.tasks()[:6]
    suite = Suite(
        name=name,
        environment=environment.name,
        environment_digest=environment.digest,
        task_digests={task.id: task.digest for task in tasks},
        strata=tuple(
            StratumShare(
                name=name,
                weight=1 / len({task.stratum for task in tasks}),
                num_tasks=sum(task.stratum == name for task in tasks),
                families=tuple({task.family: None for task in tasks if task.stratum == name}),
                trained=False,
            )
            for name in dict.fromkeys(task.stratum for task in tasks)
        ),
    )
    save_suite(space.store, suite)
    return suite


def test_kin_of_an_open_suite_stop_it_too_unless_a_newer_version_replaced_it(space: Workspace) -> None:
    suite = frozen(space, ENVIRONMENT)
    first = design_suite(suite, ENVIRONMENT)
    save_design(space.store, first)
    measured: Any = [ENVIRONMENT.task(task) for task in suite.task_digests][:1]
    with pytest.raises(GateError, match="kin in training"):
        require_unseen(space, ENVIRONMENT, measured, "job-1", Quiet())
    newer = msgspec.structs.replace(first, suite="ride-2", suite_digest="other", follows="ride")
    save_design(space.store, newer)
    require_unseen(space, ENVIRONMENT, measured, "job-1", Quiet())


def test_kin_of_an_open_suite_of_another_environment_stop_it_as_well(space: Workspace) -> None:
    desk = open_environment("desk?seed=5", space)
    frozen(space, desk)
    copied = msgspec.structs.replace(
        ENVIRONMENT.tasks()[0], instruction=desk.tasks()[0].instruction, guidance=desk.tasks()[0].guidance
    )
    with pytest.raises(GateError, match="suite 'ride' have kin in training"):
        require_unseen(space, ENVIRONMENT, [copied], "job-1", Quiet())
    tell = Notes()
    require_unseen(space, ENVIRONMENT, ENVIRONMENT.tasks()[:1], "job-1", tell)
    assert "none is kin" in tell.notes[0]


@pytest.mark.parametrize(
    ("name", "digest", "why"),
    [
        ("desk", "sha256:older", "has changed, so it is out of use"),
        ("http://127.0.0.1:9", "sha256:there", "its tasks lie on a server"),
        ("gone", "sha256:gone", "cannot be opened"),
    ],
)
def test_a_suite_whose_environment_cannot_be_had_is_named_as_not_compared(
    space: Workspace, name: str, digest: str, why: str
) -> None:
    suite = frozen(space, ENVIRONMENT, "ride")
    other = msgspec.structs.replace(suite, name="far", environment=name, environment_digest=digest)
    save_suite(space.store, other)
    save_design(space.store, msgspec.structs.replace(design_suite(suite, ENVIRONMENT), suite="x", follows="ride"))
    tell = Notes()
    require_unseen(space, ENVIRONMENT, ENVIRONMENT.tasks()[:1], "job-1", tell)
    (line,) = tell.notes
    assert line.startswith("lineage: far: not compared")
    assert why in line
    (entry,) = [e for e in AuditLog(space.store).entries() if e.action == "lineage check"]
    assert why in entry.detail["compared"][0]
