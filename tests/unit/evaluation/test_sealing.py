"""Sealing for real: the text is gone from every file and blob, and opens with its key alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import zstandard
from tests.unit.evaluation.sealed import DEEDS, TRACES, accepted, all_text, sealed

from flightschool.environments import build_from_traces, load_environment, save_environment
from flightschool.errors import GateError, InputError, NotFoundError
from flightschool.evaluation import (
    Asked,
    SealedHoldout,
    Terms,
    accept,
    finish_sealing,
    freeze,
    load_sealed,
    load_suite,
    save_frozen,
    seal_holdout,
    sealing,
)
from flightschool.evaluation.needles import Needles
from flightschool.governance import AuditLog, KeyRing, overrides
from flightschool.protocols import Environment
from flightschool.records import AuditVerdict, Task, TaskAudit
from flightschool.rollouts import NoopPolicy, OraclePolicy
from flightschool.store import Workspace
from flightschool.traces import load_traces
from flightschool.verification import OutcomeReward


def test_no_file_and_no_blob_of_the_workspace_holds_sealed_text(space: Workspace, ring: KeyRing) -> None:
    world = load_environment("june", space)
    holdout = freeze(world, "ride", suite_fraction=0.25, holdout_fraction=0.25).holdout
    assert holdout is not None
    speaking = TaskAudit(
        environment="june",
        task=next(iter(holdout.task_digests)),
        task_digest=next(iter(holdout.task_digests.values())),
        verifier_digest="v",
        verdict=AuditVerdict.SOUND,
    )
    space.store.put("audit", "speaks about a sealed task", speaking)
    tasks, frozen, card = sealed(space, ring)
    assert len(tasks) == card.num_tasks == 6
    secret = [task.instruction for task in tasks]
    secret += [str(call.arguments["reason"]) for task in tasks for call in world.reference(task.id).oracle[1:]]
    secret += [task.digest for task in tasks]
    assert len(secret) == 18
    after_accept = accepted(space, ring)
    assert after_accept.accuracy.value == 1.0
    space.close()
    text = all_text(space.root)
    assert [needle for needle in secret if needle in text] == []
    left = world.task(frozen.pool[0]).instruction
    assert left in text  # the search does find what is there
    assert load_environment("june", space).digest == card.successor
    assert not space.store.has("audit", "speaks about a sealed task")


def test_what_is_left_works_and_the_old_form_is_refused(space: Workspace, ring: KeyRing) -> None:
    whole = load_environment("june", space)
    tasks, frozen, card = sealed(space, ring)
    left = load_environment("june", space)
    assert (left.digest, len(left.tasks())) == (card.successor, len(whole.tasks()) - len(tasks))
    assert load_suite(space.store, "ride", left).digest == frozen.suite.digest
    assert len(load_traces(space.store, "june").episodes) == len(TRACES.episodes) - len(tasks)
    with pytest.raises(GateError, match="still holds what was sealed"):
        save_frozen(space.store, freeze(whole, "again"))
    with pytest.raises(GateError, match="changed since the freeze"):
        load_suite(space.store, "ride", whole)
    actions = [(entry.action, entry.subject) for entry in AuditLog(space.store).entries()]
    assert actions == [("freeze suite", "ride"), ("seal holdout", "ride-holdout")]


def test_looks_are_finite_and_each_has_its_share_of_alpha(space: Workspace, ring: KeyRing) -> None:
    sealed(space, ring)
    first = accepted(space, ring, target=0.2)
    assert (first.look, first.looks, first.alpha, first.accepted) == (1, 2, 0.025, True)
    second = accepted(space, ring, make_policy=lambda _: NoopPolicy(), target=0.5, candidate_digest="sha256:b")
    assert first.accuracy.low < 0.5  # six of six in two families prove little
    assert (second.look, second.accepted, second.accuracy.value) == (2, False, 0.0)
    with pytest.raises(GateError, match="budget is spent"):
        accepted(space, ring)
    ledger = [e for e in AuditLog(space.store).entries() if e.action == "open holdout"]
    assert [(e.detail["candidate"], e.detail["role"], e.detail["reason"]) for e in ledger] == [
        ("sha256:a", "evaluation", "release 4"),
        ("sha256:b", "evaluation", "release 4"),
    ]
    AuditLog(space.store).verify()


def test_a_look_that_was_cut_short_is_gone_on_with_by_the_same_candidate(space: Workspace, ring: KeyRing) -> None:
    sealed(space, ring)

    def dies(world: Environment) -> OraclePolicy:
        raise RuntimeError("the machine went away")

    with pytest.raises(RuntimeError):
        accepted(space, ring, make_policy=dies)
    assert accepted(space, ring).look == 1
    assert accepted(space, ring, candidate_digest="sha256:b").look == 2


def test_no_look_without_role_reason_key_or_after_a_rollback(space: Workspace, ring: KeyRing, tmp_path: Path) -> None:
    _, _, card = sealed(space, ring)
    with pytest.raises(GateError, match="not held by role 'training'"):
        accepted(space, ring, role="training")
    with pytest.raises(InputError, match="for a reason"):
        accepted(space, ring, reason=" ")
    with pytest.raises(NotFoundError, match="is not here"):
        accepted(space, KeyRing(tmp_path / "elsewhere"))
    with pytest.raises(InputError, match="target"):
        accepted(space, ring, target=1.5)
    ring.spend(card.key_id, 1)  # as if a later copy of this workspace had looked
    with pytest.raises(GateError, match="the key remembers 1 looks, the audit log 0"):
        accepted(space, ring)


def test_one_changed_byte_of_the_box_is_refused_before_a_look_is_spent(space: Workspace, ring: KeyRing) -> None:
    _, _, card = sealed(space, ring)
    body = card.box.ciphertext
    box = msgspec.structs.replace(card.box, ciphertext=body[:100] + bytes([body[100] ^ 1]) + body[101:])
    space.store.put("sealed-holdout", card.name, msgspec.structs.replace(card, box=box))
    with pytest.raises(GateError, match="does not open"):
        accepted(space, ring)
    assert not [e for e in AuditLog(space.store).entries() if e.action == "open holdout"]


def test_files_with_sealed_text_are_named_and_nothing_is_done(space: Workspace, ring: KeyRing) -> None:
    lines = [json.dumps({"ask": one.instruction}, ensure_ascii=True) for one in TRACES.episodes]
    (space.root / "june.jsonl").write_text("\n".join(lines))
    before = load_environment("june", space).digest
    with pytest.raises(GateError, match=r"june\.jsonl"):
        sealed(space, ring)
    assert load_environment("june", space).digest == before
    assert not list(AuditLog(space.store).entries())
    assert not list(ring.folder.glob("*.json"))
    (space.root / "june.jsonl").unlink()
    sealed(space, ring)


def test_what_was_not_audited_is_not_sealed_unless_somebody_answers_for_it(space: Workspace, ring: KeyRing) -> None:
    def one_open(tasks: Sequence[Task]) -> list[str]:
        return [tasks[0].id]

    before = load_environment("june", space).digest
    with pytest.raises(GateError, match="1 of 6 tasks to be sealed have no sound audit") as refused:
        sealed(space, ring, unaudited=one_open)
    assert "audit june" in refused.value.mend
    assert load_environment("june", space).digest == before
    assert not list(AuditLog(space.store).entries())
    _, _, card = sealed(space, ring, unaudited=one_open, override_reason="the domain has no audit yet")
    (passed,) = overrides(AuditLog(space.store))
    assert (passed.name, passed.gate, passed.reason) == ("Vera", "audit before sealing", "the domain has no audit yet")
    assert (card.num_unaudited, card.override_reason) == (1, "the domain has no audit yet")
    assert any("the domain has no audit yet" in note for note in accepted(space, ring).notes)


def test_another_environment_of_the_same_traces_stands_in_the_way(space: Workspace, ring: KeyRing) -> None:
    save_environment(space.store, build_from_traces(TRACES, "twin"))
    # Equal content is one blob: it would be erased under the twin's feet.
    with pytest.raises(GateError, match="environment 'twin'"):
        sealed(space, ring)


def test_killed_before_the_erasure_it_goes_on(space: Workspace, ring: KeyRing, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sealing, "erase", killed)
        with pytest.raises(KeyboardInterrupt):
            sealed(space, ring)
    with pytest.raises(GateError, match="cut short"):
        load_sealed(space.store, "ride")
    card = space.store.get("sealed-holdout", "ride-holdout", SealedHoldout)
    done = finish_sealing(space.store, card.name, ring.take(card.key_id, role="evaluation"))
    assert done.complete
    space.close()
    assert DEEDS["note"].format("A70") in all_text(space.root) or DEEDS["cancel"].format("A0") in all_text(space.root)
    assert accepted(space, ring).look == 1


def test_nothing_to_seal_and_too_little_to_seal(space: Workspace, ring: KeyRing) -> None:
    world = load_environment("june", space)
    none = freeze(world, "ride", suite_fraction=0.25, holdout_fraction=0.0)
    with pytest.raises(InputError, match="nothing to seal"):
        seal_holdout(space.store, none, world, ring=ring, actor="Vera")
    with pytest.raises(InputError, match="0 looks"):
        Terms(looks=0)
    sealed(space, ring)
    left = load_environment("june", space)
    again = freeze(left, "ride", suite_fraction=0.25, holdout_fraction=0.25)
    with pytest.raises(GateError, match="'ride' is frozen already"):
        seal_holdout(space.store, again, left, ring=ring, actor="Vera")


def test_needles_leave_out_what_everyone_says(space: Workspace) -> None:
    world = load_environment("june", space)
    first, *others = world.tasks()
    needles = Needles(world, [first])
    assert len(needles) == 2  # the instruction and the reason
    assert needles.in_text(first.instruction.upper().replace(" ", "\n"))
    assert needles.in_bytes(msgspec.msgpack.encode({"deep": [json.dumps({"say": first.instruction})]}))
    assert needles.in_bytes(zstandard.ZstdCompressor().compress(json.dumps([first.instruction]).encode()))
    assert not any(needles.in_text(task.instruction) for task in others)
    assert not needles.in_text("Do what is asked.")
    assert needles.in_text(f"see {first.digest}")


def test_tasks_of_code_are_hidden_and_opened_again(tmp_path: Path, ring: KeyRing) -> None:
    """Where code makes the tasks nothing can be taken out of it: the workspace serves the rest, and says so."""
    from flightschool.environments.desk import build_environment
    from flightschool.governance import served

    desk = build_environment()
    with Workspace.create(tmp_path / "other") as made:
        frozen = freeze(desk, "ride", suite_fraction=0.25, holdout_fraction=0.2, max_tasks_per_family=1)
        assert frozen.holdout is not None
        _, card = seal_holdout(
            made.store, frozen, desk, ring=ring, actor="Vera", root=made.root, unaudited=lambda _: []
        )
        left = served(made.store, desk)
        assert left.digest == card.successor != desk.digest
        assert not set(frozen.holdout.task_digests) & {task.id for task in left.tasks()}
        found = accept(
            made.store,
            "ride",
            OraclePolicy,
            ring=ring,
            asked=Asked(actor="Vera", role="evaluation", reason="release 4", candidate_digest="sha256:a"),
            composition=OutcomeReward(),
            base=lambda: desk,
        )
        assert found.accuracy.value == 1.0
