"""Packages: what is written reads back as the same environment, elsewhere, and nothing that was changed is believed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from flightschool.digest import digest as content_digest
from flightschool.environments import (
    EnvironmentRecord,
    build_from_traces,
    check_environment,
    environment_names,
    examine,
    load_environment,
    load_record,
    save_environment,
)
from flightschool.environments.foreign import ForeignContent, ForeignTask, reward_checks
from flightschool.environments.foreign.keeping import built_foreign
from flightschool.environments.packages import (
    MANIFEST,
    edited_files,
    import_package,
    read_package,
    refresh_package,
    write_package,
)
from flightschool.environments.packages.layout import state_file, state_table
from flightschool.environments.packages.manifest import file_digest, manifest_text, read_manifest
from flightschool.environments.packages.places import recorded_place
from flightschool.environments.packages.trust import is_judged_elsewhere
from flightschool.environments.registry import put_record
from flightschool.errors import InputError
from flightschool.records import Effect, Reference, Task, ToolSpec
from flightschool.rollouts import EpisodeRunner, NoopPolicy, OraclePolicy, RandomPolicy, run_attempts
from flightschool.store import Workspace
from flightschool.store.files import write_whole
from flightschool.traces import TraceSet, load_traces, save_traces, trace_names
from flightschool.verification import OutcomeReward

if TYPE_CHECKING:
    from tests.unit.environments.conftest import Orders


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace.create(tmp_path / "space") as made:
        yield made


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace.create(tmp_path / "elsewhere") as made:
        yield made


def recordings(orders: Orders) -> TraceSet:
    several = [orders.cancelling(f"A{n}", f"cancel-{n}") for n in (1, 2, 3, 4)]
    unsolved = orders.cancelling("A6", "never", success=False)
    return orders.traces(*several, orders.refusing("A5", "five"), orders.asking("A7", "due"), unsolved)


CHECKS = """
[[check]]
tasks = ["cancel-1"]
id = "said"
kind = "functional"
rule = "answer"
contains = ["Done"]
"""


def kept(orders: Orders, space: Workspace, kind: str) -> EnvironmentRecord:
    """An environment of a kind in the workspace, with its recordings."""
    traces = recordings(orders)
    options: dict[str, Any] = {}
    if kind in ("functions", "inferred", "declared", "talking"):
        options["state"] = orders.state()
    if kind == "functions":
        options["code"] = orders.code()
    if kind == "declared":
        path = orders.folder / "checks.toml"
        path.write_text(CHECKS)
        options["checks"] = path
    if kind == "talking":
        options["user"] = "scripted"
    save_traces(space.store, "june", traces)
    return save_environment(space.store, build_from_traces(traces, "mine", **options), traces="june")


def rewards(space: Workspace, name: str) -> list[Any]:
    """Digests and rewards of three policies at every task."""
    world = load_environment(name, space)
    runner = EpisodeRunner(world, OutcomeReward(), run="r")
    found = []
    for policy in (OraclePolicy(world), NoopPolicy(), RandomPolicy()):
        attempts = run_attempts(runner, world.tasks(), policy, seed=3)
        found += [(one.task, msgspec.to_builtins(one.reward), one.end_state) for one in attempts]
    return found


def checked(space: Workspace, name: str) -> dict[str, Any]:
    world = load_environment(name, space)
    record = load_record(space.store, name)
    state = {table: json.loads(space.store.get_blob(blob)) for table, blob in record.state.items()} or None
    episodes = load_traces(space.store, record.traces).episodes
    found: dict[str, Any] = msgspec.to_builtins(
        examine(world, episodes, check_environment(world), state=state, num_folds=2)
    )
    return found


@pytest.mark.parametrize("kind", ["recordings", "inferred", "functions", "declared", "talking"])
def test_a_package_is_the_same_environment_elsewhere(
    orders: Orders, space: Workspace, elsewhere: Workspace, tmp_path: Path, kind: str
) -> None:
    record = kept(orders, space, kind)
    manifest = write_package(space.store, record, tmp_path / "carried")
    assert manifest.digest == record.digest
    again, found = import_package(elsewhere.store, elsewhere.root, tmp_path / "carried", trusted=kind == "functions")
    assert again.digest == record.digest == load_environment("mine", elsewhere).digest
    assert (again.kind, again.strata, again.inventory) == (record.kind, record.strata, record.inventory)
    assert bool(found.demands) is (kind == "functions")
    assert checked(elsewhere, "mine") == checked(space, "mine")
    assert rewards(elsewhere, "mine") == rewards(space, "mine")
    assert load_traces(elsewhere.store, "june").digest == load_traces(space.store, "june").digest
    own = elsewhere.root / "environments" / "mine"
    assert read_package(own).manifest.digest == record.digest
    assert {p.name for p in own.iterdir()} >= {"env.toml", "tasks.jsonl", "tools.json", "verifiers", "report.md"}


def test_what_a_person_reads(orders: Orders, space: Workspace, tmp_path: Path) -> None:
    record = kept(orders, space, "inferred")
    folder = tmp_path / "carried"
    write_package(space.store, record, folder)
    tasks = [json.loads(line) for line in (folder / "tasks.jsonl").read_text().splitlines()]
    assert [task["id"] for task in tasks] == [task.id for task in load_environment("mine", space).tasks()]
    assert json.loads((folder / "state/orders.json").read_text())["A1"]["status"] == "open"
    assert [tool["name"] for tool in json.loads((folder / "tools.json").read_text())][:2] == [
        "get_order",
        "cancel_order",
    ]
    page = (folder / "report.md").read_text()
    assert "## What answers" in page
    assert "inferred from recordings and state" in page
    assert json.loads((folder / "report.json").read_text())["digest"] == record.digest
    assert not any(task["id"] == "never" for task in tasks)
    assert "never" in (folder / "waiting.jsonl").read_text()


def test_what_stood_in_traces_is_inert_in_the_report(orders: Orders, space: Workspace, tmp_path: Path) -> None:
    call = orders.call("x|y\n# <script>", "1", {"a": 1})
    odd = orders.episode(call, ask="Do it for me at once", task="one", success=True)
    traces = orders.traces(orders.cancelling("A1", "two"), odd)
    record = save_environment(space.store, build_from_traces(traces, "mine"))
    write_package(space.store, record, tmp_path / "carried")
    page = (tmp_path / "carried/report.md").read_text()
    assert "<script>" not in page.replace("\\<", "")
    assert r"x\|y \# \<script\>" in page


@pytest.mark.parametrize(
    "file",
    ["tasks.jsonl", "tools.json", "recordings.jsonl", "state/orders.json", "verifiers/references.jsonl", "policy.txt",
     "programs.json", "waiting.jsonl", "report.json", "report.md", "episodes.jsonl"],
)  # fmt: skip
def test_one_changed_byte_is_refused_by_name(
    orders: Orders, space: Workspace, elsewhere: Workspace, tmp_path: Path, file: str
) -> None:
    folder = tmp_path / "carried"
    write_package(space.store, kept(orders, space, "inferred"), folder)
    data = bytearray((folder / file).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / file).write_bytes(data)
    with pytest.raises(InputError, match=re.escape(f"{file} is not as it was written")) as refused:
        import_package(elsewhere.store, elsewhere.root, folder)
    assert refused.value.where == str(folder / file)
    _nothing_kept(elsewhere)


def _nothing_kept(space: Workspace) -> None:
    assert environment_names(space.store) == trace_names(space.store) == ()
    assert not (space.root / "environments").exists() or not list((space.root / "environments").iterdir())


def resealed(folder: Path, **changed: Any) -> None:
    """A manifest whose digests fit the files again, as somebody with bad intent would write it."""
    manifest = read_manifest(folder)
    files = {name: file_digest((folder / name).read_bytes()) for name in manifest.files}
    (folder / MANIFEST).write_bytes(manifest_text(msgspec.structs.replace(manifest, **{"files": files, **changed})))


def _other_answer(folder: Path) -> None:
    path = folder / "verifiers/references.jsonl"
    path.write_text(path.read_text().replace('"least":1', '"least":0', 1))


def _other_state(folder: Path) -> None:
    path = folder / "state/orders.json"
    path.write_text(path.read_text().replace("shipped", "open", 1))


def _twice(folder: Path) -> None:
    path = folder / "tasks.jsonl"
    path.write_text(path.read_text() * 2)


def _other_traces(folder: Path) -> None:
    path = folder / "episodes.jsonl"
    path.write_text("\n".join(path.read_text().splitlines()[1:]) + "\n")


def _half_a_line(folder: Path) -> None:
    path = folder / "tasks.jsonl"
    path.write_bytes(path.read_bytes()[:-20])


def _nested(folder: Path) -> None:
    (folder / "programs.json").write_text("[" * 100_000)


def _huge(folder: Path) -> None:
    (folder / "tools.json").write_text("[" + "9" * 10_000 + "]")


def _latin(folder: Path) -> None:
    (folder / "policy.txt").write_bytes(b"caf\xe9")


@pytest.mark.parametrize(
    "change", [_other_answer, _other_state, _twice, _other_traces, _half_a_line, _nested, _huge, _latin]
)
def test_files_that_fit_their_digests_must_still_make_the_environment(
    orders: Orders, space: Workspace, elsewhere: Workspace, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    folder = tmp_path / "carried"
    write_package(space.store, kept(orders, space, "inferred"), folder)
    change(folder)
    resealed(folder)
    with pytest.raises(InputError):
        import_package(elsewhere.store, elsewhere.root, folder)
    _nothing_kept(elsewhere)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "state/../../x.json", "state/a/b.json", "code/.x.py"])
def test_no_name_leads_out_of_the_folder(orders: Orders, space: Workspace, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "carried"
    write_package(space.store, kept(orders, space, "inferred"), folder)
    manifest = read_manifest(folder)
    files = {**manifest.files, name: "sha256:0"}
    (folder / MANIFEST).write_bytes(manifest_text(msgspec.structs.replace(manifest, files=files)))
    with pytest.raises(InputError, match="names a file that no package has"):
        read_package(folder)


@pytest.mark.parametrize("linked", ["tasks.jsonl", "state", "verifiers", MANIFEST])
def test_links_are_not_followed(orders: Orders, space: Workspace, tmp_path: Path, linked: str) -> None:
    folder = tmp_path / "carried"
    write_package(space.store, kept(orders, space, "inferred"), folder)
    (folder / linked).rename(tmp_path / "moved")
    (folder / linked).symlink_to(tmp_path / "moved")
    with pytest.raises(InputError, match="a link"):
        read_package(folder)


def test_a_pipe_does_not_hang(orders: Orders, space: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "carried"
    write_package(space.store, kept(orders, space, "inferred"), folder)
    (folder / "tasks.jsonl").unlink()
    os.mkfifo(folder / "tasks.jsonl")
    with pytest.raises(InputError, match="no plain file"):
        read_package(folder)


def test_folders_that_are_no_package(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_package(tmp_path / "nothing")
    (tmp_path / MANIFEST).write_text("package = 7\nnew_key = 1\n")
    with pytest.raises(InputError, match="another version"):
        read_package(tmp_path)
    for text in ("package = ", "package = 1\n", "a = " + "[" * 5000, 'package = 1\nname = "\\ud800"\n'):
        (tmp_path / MANIFEST).write_text(text)
        with pytest.raises(InputError, match="not the manifest"):
            read_package(tmp_path)


def test_code_runs_when_somebody_trusts_it(
    orders: Orders, space: Workspace, elsewhere: Workspace, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    orders.code(orders.code_text)
    record = kept(orders, space, "functions")
    write_package(space.store, record, tmp_path / "carried")
    code = tmp_path / "carried/code/tools.py"
    assert code.read_text() == orders.code_text
    with pytest.raises(InputError, match=r"would run or ask: code code/tools\.py"):
        import_package(elsewhere.store, elsewhere.root, tmp_path / "carried")
    _nothing_kept(elsewhere)
    code.write_text(f"open({str(mark)!r}, 'w')\n{orders.code_text}")
    resealed(tmp_path / "carried")
    with pytest.raises(InputError, match="other code"):
        import_package(elsewhere.store, elsewhere.root, tmp_path / "carried", trusted=True)
    assert not mark.exists()


def test_a_judge_that_is_asked_elsewhere_must_be_trusted(
    orders: Orders, space: Workspace, elsewhere: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "checks.toml").write_text(
        '[[check]]\nid = "kind"\nkind = "constraint"\nrule = "judge"\ncriterion = "The answer is kind."\n'
        'endpoint = "openai:http://127.0.0.1:9#m"\nkey_env = "SECRET"\n'
    )
    built = build_from_traces(recordings(orders), "mine", checks=tmp_path / "checks.toml")
    write_package(space.store, save_environment(space.store, built), tmp_path / "carried")
    with pytest.raises(InputError, match=r"a judge at openai:http://127\.0\.0\.1:9#m"):
        import_package(elsewhere.store, elsewhere.root, tmp_path / "carried")


def test_a_whole_environment_by_code(space: Workspace, elsewhere: Workspace, orders: Orders, tmp_path: Path) -> None:
    code = tmp_path / "plant.py"
    code.write_text("from flightschool.testing.miniature import MiniatureEnvironment as build_environment\n")
    from flightschool.testing.miniature import MiniatureEnvironment

    task = MiniatureEnvironment().tasks()[0]
    traces = orders.traces(orders.episode(ask="x", task=task.id, success=False))
    record = save_environment(space.store, build_from_traces(traces, "plant", code=str(code)))
    write_package(space.store, record, tmp_path / "carried")
    again, _ = import_package(elsewhere.store, elsewhere.root, tmp_path / "carried", name="works", trusted=True)
    code.unlink()
    assert load_environment("works", elsewhere).digest == record.digest == again.digest


def test_an_imported_environment_is_carried_too(space: Workspace, elsewhere: Workspace, tmp_path: Path) -> None:
    tasks = tuple(
        Task(id=f"t{n}", family=f"f{n}", stratum="s", instruction=f"do {n}", initial_state="x") for n in (1, 2)
    )
    content = ForeignContent(
        ecosystem="openenv",
        address="http://127.0.0.1:9",
        source={"split": None, "settings": {"deep": [1, None]}},
        policy_text="",
        strata={"s": 1.0},
        tasks=tasks,
        starts={task.id: ForeignTask(start={"seed": n}) for n, task in enumerate(tasks)},
        references=tuple(Reference(task_id=task.id, checks=reward_checks()) for task in tasks),
        tools=(ToolSpec(name="act", description="", parameters={"type": "object"}, effect=Effect.WRITE),),
        allowed=("act",),
    )
    record = save_environment(space.store, built_foreign("theirs", content))
    write_package(space.store, record, tmp_path / "carried")
    with pytest.raises(InputError, match=r"openenv at http://127\.0\.0\.1:9"):
        import_package(elsewhere.store, elsewhere.root, tmp_path / "carried")
    again, _ = import_package(elsewhere.store, elsewhere.root, tmp_path / "carried", trusted=True)
    assert again.digest == record.digest == content.digest


# ------------------------------------------------------------------------------------------------ places


def test_what_lies_there_already_is_not_written_over(orders: Orders, space: Workspace, tmp_path: Path) -> None:
    record = kept(orders, space, "inferred")
    folder = tmp_path / "carried"
    folder.mkdir()
    (folder / "letters.txt").write_text("mine")
    with pytest.raises(InputError, match="holds something else"):
        write_package(space.store, record, folder)
    (folder / "letters.txt").unlink()
    write_package(space.store, record, folder)
    (folder / "letters.txt").write_text("mine")  # a file beside the package's own stays
    put_record(space.store, msgspec.structs.replace(record, package=recorded_place(space.root, folder)))
    changed = save_environment(space.store, build_from_traces(recordings(orders), "mine"), traces="june")
    manifest = write_package(space.store, changed, folder)
    assert manifest.digest == changed.digest != record.digest
    assert not (folder / "state").exists()
    assert (folder / "letters.txt").read_text() == "mine"
    (folder / "tasks.jsonl").write_text("{}")
    assert edited_files(folder) == ["tasks.jsonl"]
    with pytest.raises(InputError, match=r"tasks\.jsonl was changed by hand"):
        write_package(space.store, changed, folder)


def test_a_writing_that_was_cut_short_is_seen_and_gone_on_with(
    orders: Orders, space: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flightschool.environments.packages import writing

    record = kept(orders, space, "inferred")
    folder = tmp_path / "carried"
    written: list[Path] = []

    def killed(path: Path, data: bytes) -> None:
        if len(written) == 4:
            raise KeyboardInterrupt
        written.append(path)
        write_whole(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(writing, "write_whole", killed)
        with pytest.raises(KeyboardInterrupt):
            write_package(space.store, record, folder)
    with pytest.raises(InputError, match="not written to its end"):
        read_package(folder)
    write_package(space.store, record, folder)
    assert read_package(folder).manifest.digest == record.digest


def test_an_import_that_fails_leaves_nothing(
    orders: Orders, space: Workspace, elsewhere: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flightschool.environments.packages import importing

    write_package(space.store, kept(orders, space, "inferred"), tmp_path / "carried")

    def broken(*_: object, **__: object) -> None:
        raise InputError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(importing, "write_package", broken)
        with pytest.raises(InputError, match="disk is full"):
            import_package(elsewhere.store, elsewhere.root, tmp_path / "carried")
    _nothing_kept(elsewhere)


def test_other_recordings_of_the_same_name_stay(
    orders: Orders, space: Workspace, elsewhere: Workspace, tmp_path: Path
) -> None:
    write_package(space.store, kept(orders, space, "inferred"), tmp_path / "carried")
    mine = orders.traces(orders.cancelling("A9", "other"))
    save_traces(elsewhere.store, "june", mine)
    record, _ = import_package(elsewhere.store, elsewhere.root, tmp_path / "carried")
    assert record.traces == "mine-traces"
    assert load_traces(elsewhere.store, "june").digest == mine.digest


def test_a_package_that_was_moved_away_is_not_written_again(orders: Orders, space: Workspace) -> None:
    record = kept(orders, space, "recordings")
    record = msgspec.structs.replace(record, package="environments/mine")
    assert refresh_package(space.store, space.root, record) is None
    assert not (space.root / "environments").exists()


@pytest.mark.parametrize("table", ["orders", "..", ".hidden", "a/b", "50%", "naïve", "%2E"])
def test_names_of_tables(table: str) -> None:
    file = state_file(table)
    assert state_table(file) == table
    assert "/" not in file.removeprefix("state/")
    assert not file.removeprefix("state/").startswith(".")


def test_the_digest_of_a_package_without_recordings_is_the_same(
    orders: Orders, space: Workspace, tmp_path: Path
) -> None:
    record = kept(orders, space, "inferred")
    bare = write_package(space.store, record, tmp_path / "bare", episodes=False)
    assert bare.digest == record.digest
    assert "episodes.jsonl" not in bare.files
    content = read_package(tmp_path / "bare").content
    assert content_digest(content) == record.digest


def test_a_build_asks_no_judge_and_starts_no_sandbox(orders: Orders, tmp_path: Path) -> None:
    (tmp_path / "checks.toml").write_text(CHECKS)
    traces = recordings(orders)
    assert not is_judged_elsewhere(build_from_traces(traces, "mine", checks=tmp_path / "checks.toml").environment)
    (tmp_path / "checks.toml").write_text(
        CHECKS + '[[check]]\nid = "run"\nkind = "functional"\nrule = "command"\ncommand = ["true"]\n'
    )
    assert is_judged_elsewhere(build_from_traces(traces, "mine", checks=tmp_path / "checks.toml").environment)
