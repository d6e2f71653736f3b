"""Nothing trains that is kin to what is measured: open suites by text, sealed parts in counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from pydantic import ValidationError

from flightschool.environments.opening import open_environment
from flightschool.errors import GateError, InputError
from flightschool.evaluation import SealedHoldout, design_suite, load_texts, save_design, save_suite, save_texts
from flightschool.evaluation.kept_texts import KeptTexts
from flightschool.governance import AuditLog, KeyRing, overrides, seal
from flightschool.lineage import sign
from flightschool.protocols import Environment
from flightschool.records import StratumShare, Suite, Task
from flightschool.stations import Quiet, require_unseen
from flightschool.stations.settings import UncomparedTable
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


def test_without_the_key_nothing_trains_unless_a_person_answers_for_it(
    space: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ENVIRONMENT.tasks()[0]
    sealed_card(space, first.instruction)
    monkeypatch.setenv("FLIGHTSCHOOL_KEYS", str(tmp_path / "elsewhere"))
    with pytest.raises(GateError, match="ride-holdout: its key is not on this machine"):
        require_unseen(space, ENVIRONMENT, [first], "job-1", Quiet())
    assert not [e for e in AuditLog(space.store).entries() if e.action == "lineage check"]
    tell = Notes()
    answered = UncomparedTable(name="Vera", reason="the evaluation role compares", suites=("ride-holdout",))
    require_unseen(space, ENVIRONMENT, [first], "job-1", tell, answered)
    assert "NOT compared" in tell.notes[0]
    (entry,) = [e for e in AuditLog(space.store).entries() if e.action == "lineage check"]
    assert "Vera answers for it: the evaluation role compares" in entry.detail["compared"][0]
    (written,) = overrides(AuditLog(space.store))
    assert (written.gate, written.subject, written.name) == ("lineage", "ride-holdout", "Vera")


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
    measured = [renamed(ENVIRONMENT.task(task)) for task in suite.task_digests][:1]
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


GONE = [
    pytest.param("desk", "sha256:older", "tasks are gone or differ", id="changed"),
    pytest.param("http://127.0.0.1:9", "sha256:there", "lie on a server", id="on a server"),
    pytest.param("gone", "sha256:gone", "cannot be opened", id="gone"),
]
PLACES = [pytest.param(*case.values[:2], id=case.id) for case in GONE]


def out_of_reach(space: Workspace, name: str, digest: str, *, kept: bool = False, holdout: bool = False) -> Suite:
    """The only suite in use, of an environment that cannot be had as it was frozen."""
    suite = frozen(space, ENVIRONMENT)
    far = msgspec.structs.replace(suite, name="far", environment=name, environment_digest=digest, holdout=holdout)
    save_suite(space.store, far)
    save_design(space.store, msgspec.structs.replace(design_suite(suite, ENVIRONMENT), suite="x", follows="ride"))
    if kept:
        assert save_texts(space.store, far, ENVIRONMENT)
    return far


def renamed(task: Task) -> Task:
    return msgspec.structs.replace(task, id="zz", family="other", stratum="x", guidance=f"{task.guidance} Please.")


@pytest.mark.parametrize("holdout", [False, True])
@pytest.mark.parametrize(("name", "digest"), PLACES)
def test_a_measured_task_never_trains_wherever_its_environment_is(
    space: Workspace, name: str, digest: str, holdout: bool
) -> None:
    far = out_of_reach(space, name, digest, holdout=holdout)
    measured = ENVIRONMENT.task(next(iter(far.task_digests)))
    answered = UncomparedTable(name="Vera", reason="r", suites=("far",))
    for waived in (None, answered):  # nobody can answer for that
        with pytest.raises(GateError, match=f"measured by suite 'far': {measured.id}"):
            require_unseen(space, ENVIRONMENT, [measured], "job-1", Quiet(), waived)


@pytest.mark.parametrize(("name", "digest"), PLACES)
def test_near_copies_are_found_by_the_kept_texts_when_the_environment_is_out_of_reach(
    space: Workspace, name: str, digest: str
) -> None:
    far = out_of_reach(space, name, digest, kept=True)
    measured, *_ = (ENVIRONMENT.task(task_id) for task_id in far.task_digests)
    with pytest.raises(GateError, match=r"suite 'far' have kin in training: .*zz .exact"):
        require_unseen(space, ENVIRONMENT, [renamed(measured)], "job-1", Quiet())
    tell = Notes()
    stranger = msgspec.structs.replace(measured, id="new", instruction="Say which of all orders is the oldest.")
    require_unseen(space, ENVIRONMENT, [stranger], "job-1", tell)
    assert tell.notes == ["lineage: far: 1 texts compared, none is kin"]


@pytest.mark.parametrize(("name", "digest", "why"), GONE)
def test_an_older_suite_that_cannot_be_compared_refuses_until_somebody_answers_for_it(
    space: Workspace, name: str, digest: str, why: str
) -> None:
    out_of_reach(space, name, digest)
    unmeasured = [renamed(ENVIRONMENT.tasks()[0])]
    with pytest.raises(GateError, match=r"cannot be compared with what would train: far: .*uncompared") as refused:
        require_unseen(space, ENVIRONMENT, unmeasured, "job-1", Quiet())
    assert why in str(refused.value)
    tell = Notes()
    answered = UncomparedTable(name="Vera", reason="that server is retired", suites=("far",))
    require_unseen(space, ENVIRONMENT, unmeasured, "job-1", tell, answered)
    assert "Vera answers for it: that server is retired" in tell.notes[0]
    mistyped = UncomparedTable(name="Vera", reason="r", suites=("fra",))
    with pytest.raises(InputError, match="'fra' is to go uncompared"):
        require_unseen(space, ENVIRONMENT, unmeasured, "job-1", Quiet(), mistyped)


def test_an_older_suite_gets_its_texts_when_its_environment_is_met(space: Workspace) -> None:
    suite = frozen(space, ENVIRONMENT)
    assert load_texts(space.store, suite) is None
    stranger = msgspec.structs.replace(ENVIRONMENT.tasks()[0], id="new", instruction="Say which order is the oldest.")
    require_unseen(space, ENVIRONMENT, [stranger], "job-1", Quiet())
    kept = load_texts(space.store, suite)
    assert kept is not None
    assert [text.id for text in kept] == list(suite.task_digests)


def test_kept_texts_that_were_edited_are_refused(space: Workspace) -> None:
    suite = frozen(space, ENVIRONMENT)
    assert save_texts(space.store, suite, ENVIRONMENT)
    edited = KeptTexts(suite_digest=suite.digest, texts=())
    space.store.put("suite-texts", suite.digest, edited)
    with pytest.raises(GateError, match="not those that the audit log saw"):
        require_unseen(space, ENVIRONMENT, [renamed(ENVIRONMENT.tasks()[0])], "job-1", Quiet())


def test_who_lets_a_suite_go_uncompared_gives_name_and_reason() -> None:
    for fields in ({"suites": ("s",)}, {"name": "Vera", "suites": ("s",)}, {"name": "Vera", "reason": "r"}):
        with pytest.raises(ValidationError, match="both a name and a reason"):
            UncomparedTable.model_validate(fields)
