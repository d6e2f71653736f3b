"""Sealing beside packages: they are written anew without what was sealed, or stand in the way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.evaluation.sealed import TRACES, accepted, all_text, sealed

from flightschool.environments import TracedEnvironment, build_from_traces, load_environment, save_environment
from flightschool.environments.packages import default_place, import_package, read_package, write_package
from flightschool.environments.packages.places import recorded_place
from flightschool.environments.registry import put_record
from flightschool.errors import GateError
from flightschool.evaluation import (
    SealedHoldout,
    finish_sealing,
    freeze,
    seal_holdout,
    sealing,
)
from flightschool.governance import KeyRing
from flightschool.records import Message, Task
from flightschool.store import Workspace
from flightschool.traces import RecordedEpisode, TaskHint, TraceSet, load_traces, save_traces


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
