"""Sealing for real: the text is gone from every file and blob, and opens with its key alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from flightschool.environments import TracedEnvironment, build_from_traces, load_environment, save_environment
from flightschool.environments.packages import default_place, import_package, read_package, write_package
from flightschool.environments.packages.places import recorded_place
from flightschool.environments.registry import put_record
from flightschool.errors import GateError, InputError, NotFoundError
from flightschool.evaluation import (
    Acceptance,
    Asked,
    Frozen,
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
from flightschool.evaluation.needles import Needles, texts_in
from flightschool.governance import AuditLog, KeyRing, overrides
from flightschool.protocols import Environment
from flightschool.records import AuditVerdict, Message, Task, TaskAudit, ToolCall
from flightschool.rollouts import NoopPolicy, OraclePolicy
from flightschool.store import Workspace
from flightschool.traces import RecordedCall, RecordedEpisode, TaskHint, TraceSet, load_traces, save_traces
from flightschool.verification import OutcomeReward

DEEDS = {
    "cancel": "the customer rang twice and wants order {0} stopped before the lorry leaves; make it so",
    "refund": "pay back what was charged for {0}, since its parcel came open and half empty",
    "hold": "keep {0} in the warehouse until somebody signs for the doubtful invoice",
    "rush": "this one, {0}, must fly tonight — whatever freight it costs — tell the desk",
    "split": "ship the ready half of {0} now, the rest follows when painted",
    "merge": "put {0} together with its sister parcel so both travel once",
    "label": "print fresh customs papers for {0}; the old ones name a wrong country",
    "note": 'write into the file of {0} that "déjà vu" was heard by the night shift',
}
STRATA = {"cancel": "calm", "refund": "calm", "hold": "calm", "rush": "calm"}


def episode(deed: str, number: int) -> RecordedEpisode:
    order = f"A{number}"
    ask = DEEDS[deed].format(order)
    reason = f"asked for by the {deed} clerk in writing, page {number}"
    calls = (
        RecordedCall(turn=0, id="1", name="get_order", arguments={"order_id": order}, text="{}", value={}),
        RecordedCall(
            turn=1,
            id="2",
            name=f"{deed}_order",
            arguments={"order_id": order, "reason": reason},
            text='"ok"',
            value="ok",
        ),
    )
    messages = [Message(role="system", content="Do what is asked."), Message(role="user", content=ask)]
    for call, answer in zip(calls, ("{}", '"ok"'), strict=True):
        asked = ToolCall(id=call.id, name=call.name, arguments=call.arguments)
        messages += [
            Message(role="assistant", tool_calls=(asked,)),
            Message(role="tool", content=answer, tool_call_id=call.id),
        ]
    return RecordedEpisode(
        id=f"{deed}-{number}",
        source="test",
        messages=(*messages, Message(role="assistant", content="Done.")),
        calls=calls,
        stated_effects=("get_order", f"{deed}_order"),
        hint=TaskHint(
            id=f"{deed}-{number}",
            family=deed,
            stratum=STRATA.get(deed, "busy"),
            actions=tuple(ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in calls),
        ),
        success=True,
    )


TRACES = TraceSet(
    format="test", episodes=tuple(episode(deed, 10 * i + n) for i, deed in enumerate(DEEDS) for n in range(3))
)


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace.create(tmp_path / "space") as made:
        save_traces(made.store, "june", TRACES)
        save_environment(made.store, build_from_traces(TRACES, "june"))
        yield made


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    return KeyRing(tmp_path / "keys", outside=tmp_path / "space")


def sealed(space: Workspace, ring: KeyRing, **options: Any) -> tuple[list[Task], Frozen, SealedHoldout]:
    world = load_environment("june", space)
    frozen = freeze(world, "ride", suite_fraction=0.25, holdout_fraction=0.25)
    assert frozen.holdout is not None
    tasks = [world.task(task_id) for task_id in frozen.holdout.task_digests]
    defaults: dict[str, Any] = {"terms": Terms(looks=2), "unaudited": lambda _: []}
    kept, card = seal_holdout(
        space.store, frozen, world, ring=ring, actor="Vera", root=space.root, **{**defaults, **options}
    )
    return tasks, kept, card


def all_text(folder: Path) -> str:
    """Every text of every file, every zstandard frame that can be cut out of any of them, and raw bytes."""
    pieces = []
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        raw = path.read_bytes()
        pieces.append(raw.decode("utf-8", errors="replace"))
        start = raw.find(b"\x28\xb5\x2f\xfd")
        while start >= 0:
            try:
                data = zstandard.ZstdDecompressor().decompress(raw[start:], max_output_size=1 << 24)
                pieces += [*texts_in(data), data.decode("utf-8", errors="replace")]
            except zstandard.ZstdError:
                pass
            start = raw.find(b"\x28\xb5\x2f\xfd", start + 1)
    return "\n".join(pieces)


def accepted(space: Workspace, ring: KeyRing, **options: Any) -> Acceptance:
    def no_base() -> Environment:
        raise AssertionError("the content lies in the box")

    who: dict[str, Any] = {"actor": "Vera", "role": "evaluation", "reason": "release 4", "candidate_digest": "sha256:a"}
    asked = Asked(**{name: options.pop(name, who.get(name)) for name in (*who, "target")})
    base: dict[str, Any] = {"make_policy": OraclePolicy, "asked": asked, "base": no_base}
    return accept(space.store, "ride", ring=ring, composition=OutcomeReward(), **{**base, **options})


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


# ------------------------------------------------------------------------------------------------ packages


def packed(space: Workspace, built: Any, traces: str = "june") -> Path:
    """An environment with its package, as the command line makes it."""
    record = save_environment(space.store, built, traces=traces)
    folder = default_place(space.root, record.name)
    record = msgspec.structs.replace(record, package=recorded_place(space.root, folder))
    write_package(space.store, record, folder)
    put_record(space.store, record)
    return folder


def test_the_package_is_written_anew_without_what_was_sealed(space: Workspace, ring: KeyRing, tmp_path: Path) -> None:
    folder = packed(space, build_from_traces(TRACES, "june"))
    before = read_package(folder).manifest
    tasks, _, card = sealed(space, ring)
    after = read_package(folder)
    assert after.manifest.digest == card.successor == load_environment("june", space).digest != before.digest
    assert after.manifest.num_tasks == before.num_tasks - len(tasks)
    text = "".join(path.read_text() for path in folder.rglob("*") if path.is_file())
    for task in tasks:
        assert task.id not in text
        assert task.instruction not in text
        assert json.dumps(task.instruction)[1:-1] not in text
    assert any(one.instruction in text for one in after.content.tasks) if after.content else False
    with Workspace.create(tmp_path / "elsewhere") as other:
        record, _ = import_package(other.store, other.root, folder)
        assert record.digest == card.successor
        episodes = load_traces(other.store, record.traces).episodes
        assert len(episodes) == len(TRACES.episodes) - len(tasks)
    assert (
        load_traces(space.store, "june").digest == after.manifest.traces_digest
    )  # still measured against its recordings


def test_a_package_that_was_edited_stands_in_the_way(space: Workspace, ring: KeyRing) -> None:
    folder = packed(space, build_from_traces(TRACES, "june"))
    whole = (folder / "policy.txt").read_text()
    (folder / "policy.txt").write_text("Do otherwise.")
    with pytest.raises(GateError, match="changed by hand"):
        sealed(space, ring)
    (folder / "policy.txt").write_text(whole)
    (folder / "notes.txt").write_text(TRACES.episodes[0].instruction)
    (folder / "notes.txt").write_text("\n".join(one.instruction for one in TRACES.episodes))
    with pytest.raises(GateError, match=r"notes\.txt"):
        sealed(space, ring)
    (folder / "notes.txt").unlink()
    sealed(space, ring)


def test_killed_before_the_package_was_written_anew_it_goes_on(
    space: Workspace, ring: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = packed(space, build_from_traces(TRACES, "june"))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sealing, "refresh_package", killed)
        with pytest.raises(KeyboardInterrupt):
            sealed(space, ring)
    card = space.store.get("sealed-holdout", "ride-holdout", SealedHoldout)
    assert not card.complete
    done = finish_sealing(space.store, card.name, ring.take(card.key_id, role="evaluation"), space.root)
    assert done.complete
    assert read_package(folder).manifest.digest == card.successor


def test_the_old_form_is_packed_nowhere(space: Workspace, ring: KeyRing, tmp_path: Path) -> None:
    folder = packed(space, build_from_traces(TRACES, "june"))
    shutil.copytree(folder, tmp_path / "copy")
    sealed(space, ring)
    with pytest.raises(GateError, match="still holds what was sealed"):
        import_package(space.store, space.root, tmp_path / "copy", name="again")
    with pytest.raises(GateError, match="still holds what was sealed"):
        packed(space, build_from_traces(TRACES, "june"))


def test_what_the_users_of_sealed_tasks_know_goes_with_them(space: Workspace, ring: KeyRing) -> None:
    talking = build_from_traces(_told(TRACES), "june", user="scripted")
    save_traces(space.store, "june", _told(TRACES))
    folder = packed(space, talking)
    tasks, _, _ = sealed(space, ring)
    hidden = {task.id for task in tasks}
    world = load_environment("june", space)
    assert isinstance(world, TracedEnvironment)
    assert not hidden & {script.task for script in world.content.scripts}
    secrets = [fact for script in _scripts(talking) if script.task in hidden for fact in script.facts]
    assert secrets
    text = "".join(path.read_text() for path in folder.rglob("*") if path.is_file())
    assert not any(secret in text for secret in secrets)
    space.close()
    assert not any(secret in all_text(space.root) for secret in secrets)


def _told(traces: TraceSet) -> TraceSet:
    """The same, where the user knows something that stands in no first message."""
    told = [
        msgspec.structs.replace(
            one, hint=msgspec.structs.replace(one.hint, instruction=f"My secret word is {one.id} of the {n}th lantern.")
        )
        for n, one in enumerate(traces.episodes)
    ]
    return TraceSet(format="test", episodes=tuple(told))


def _scripts(built: Any) -> Sequence[Any]:
    scripts: Sequence[Any] = built.environment.content.scripts
    return scripts


def test_an_environment_with_declared_checks_is_sealed_and_opened(
    space: Workspace, ring: KeyRing, tmp_path: Path
) -> None:
    rows = [
        f'[[check]]\ntasks = ["{one.id}"]\nid = "said"\nkind = "functional"\nrule = "answer"\ncontains = ["Done"]\n'
        for one in TRACES.episodes
    ]
    (tmp_path / "checks.toml").write_text("\n".join(rows))
    folder = packed(space, build_from_traces(TRACES, "june", checks=tmp_path / "checks.toml"))
    tasks, _, card = sealed(space, ring)
    left = load_environment("june", space)
    assert left.digest == card.successor == read_package(folder).manifest.digest
    assert all(any(check.id == "said" for check in left.reference(task.id).checks) for task in left.tasks())
    text = "".join(path.read_text() for path in folder.rglob("*") if path.is_file())
    assert not any(f'"{task.id}"' in text for task in tasks)
    assert accepted(space, ring).accuracy.value == 1.0


def test_tasks_that_code_makes_leave_the_package_and_it_is_not_imported(ring: KeyRing, tmp_path: Path) -> None:
    from flightschool.environments.desk import build_environment

    desk = build_environment()
    known = TraceSet(format="test", episodes=tuple(_episode_of(task) for task in desk.tasks()[::8]))
    with Workspace.create(tmp_path / "space2") as made:
        folder = packed(made, build_from_traces(known, "plant", code="flightschool.environments.desk"), traces="")
        world = load_environment("plant", made)
        frozen = freeze(world, "ride", suite_fraction=0.25, holdout_fraction=0.2, max_tasks_per_family=1)
        assert frozen.holdout is not None
        seal_holdout(made.store, frozen, world, ring=ring, actor="Vera", root=made.root, unaudited=lambda _: [])
        manifest = read_package(folder).manifest
        assert manifest.num_sealed == len(frozen.holdout.task_digests)
        shown = {json.loads(line)["id"] for line in (folder / "tasks.jsonl").read_text().splitlines()}
        assert not shown & set(frozen.holdout.task_digests)
        with pytest.raises(GateError, match="would make them again"):
            import_package(made.store, made.root, folder, name="again", trusted=True)


def _episode_of(task: Task) -> RecordedEpisode:
    return RecordedEpisode(
        id=task.id, source="test", messages=(Message(role="user", content="x"),), calls=(), hint=TaskHint(id=task.id)
    )
