"""kill -9 at random moments: nothing is lost, nothing trains twice, nothing too old trains, by the export alone."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.integration.training.zygote import Zygote, child

from flightschool.training.checking import attempts_over_kills, faults, read_rows
from flightschool.training.exporting import export_run
from flightschool.training.folders import RunFolder, shared_path
from flightschool.training.incidents import read_incidents
from flightschool.training.model_export import export_model

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def fake() -> Iterator[Zygote]:
    zygote = Zygote("fake")
    yield zygote
    zygote.close()


@pytest.fixture(scope="module")
def tiny() -> Iterator[Zygote]:
    zygote = Zygote("tiny")
    yield zygote
    zygote.close()


def run_with_kills(
    zygote: Zygote, run_dir: Path, *, num_kills: int, seed: int, longest_s: float, **arguments: object
) -> int:
    """Kill the run or its trainer at random moments, then let it end; returns how often the run itself was killed."""
    chance = random.Random(seed)
    killed = {"run": 0, "trainer": 0}
    while sum(killed.values()) < num_kills:
        process = zygote.start(run_dir, **arguments)
        while sum(killed.values()) < num_kills:
            time.sleep(chance.uniform(0.0, longest_s))
            assert process.is_running(), "the run ended before all kills: give it more tasks"
            trainer = child(process)
            victim = trainer if trainer is not None and chance.random() < 0.5 else process
            os.kill(victim.pid, signal.SIGKILL)
            killed["run" if victim is process else "trainer"] += 1
            if victim is process:
                psutil.wait_procs([process], timeout=10)
                break
        else:
            outcome = zygote.outcome(run_dir, process)
            break
    else:
        outcome = zygote.outcome(run_dir, zygote.start(run_dir, **arguments))
    assert outcome.get("stopped") == "source dry", outcome
    assert killed["run"] > 0
    return killed["run"]


@pytest.mark.parametrize(("mode", "seed"), [("async", 1), ("sync", 2)])
def test_fifty_kills_lose_and_double_nothing(fake: Zygote, tmp_path: Path, mode: str, seed: int) -> None:
    run_dir, num_tasks = tmp_path / "run", 150
    num_kills = 40 if mode == "async" else 10
    num_runs = run_with_kills(
        fake, run_dir, num_kills=num_kills, seed=seed, longest_s=0.06, mode=mode, num_tasks=num_tasks, seconds=0.002
    )
    summary = export_run(run_dir, tmp_path / "exported")
    assert faults(tmp_path / "exported", max_staleness=1, num_tasks=num_tasks) == []
    # what the trainer holds as its weights says the same as the export, which was made without it
    trained = json.loads((RunFolder(run_dir).model / "weights.json").read_text())
    told = [g for g in read_rows(tmp_path / "exported" / "groups.jsonl") if g["state"] == "trained"]
    assert sorted((g["group"], g["version_at_training"]) for g in told) == sorted((n, v) for n, v, _ in trained)
    assert max(age for _, _, age in trained) <= 1
    restarts = [incident for incident in read_incidents(RunFolder(run_dir).incidents) if incident.kind == "restart"]
    # A trainer that died before it was asked anything, or just before its run, is no restart: how many are is chance.
    assert (num_kills > num_runs and restarts) or mode == "sync"
    assert summary.states["trained"] == len(trained)
    lost, num_used = attempts_over_kills(run_dir, max_staleness=1)
    assert lost == []
    assert num_used > 0 or mode == "sync"  # few kills there meet a group half-way
    assert not list(run_dir.glob("checkpoints/.*"))


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_every_admitted_group_trains_before_the_last_step_ends(fake: Zygote, tmp_path: Path, mode: str) -> None:
    """To cancel what runs when the steps are done would favour short groups; after kills as well."""
    for num_kills in (0, 6):
        run_dir, exported = tmp_path / f"run-{num_kills}", tmp_path / f"exported-{num_kills}"
        arguments = {"mode": mode, "num_tasks": 2000, "seconds": 0.004, "settings": {"num_steps": 16}}
        chance = random.Random(num_kills)
        for _ in range(num_kills):
            process = fake.start(run_dir, **arguments)
            time.sleep(chance.uniform(0.05, 0.15))
            process.kill()
            psutil.wait_procs([process], timeout=10)
        outcome = fake.outcome(run_dir, fake.start(run_dir, **arguments))
        assert outcome.get("stopped") == "steps done", outcome
        assert outcome["length_bias"] == pytest.approx(0.0, abs=1e-12) or num_kills
        summary = export_run(run_dir, exported)
        assert not {"unfinished", "waiting"} & set(summary.states)
        num_admitted = len({group["ordinal"] for group in read_rows(exported / "groups.jsonl")})
        assert faults(exported, max_staleness=1, num_tasks=num_admitted) == []


@pytest.mark.long
def test_five_kills_of_a_real_model(tiny: Zygote, tmp_path: Path, tiny_folder: Path) -> None:
    run_dir = tmp_path / "run"
    run_with_kills(tiny, run_dir, num_kills=5, seed=3, longest_s=0.5, num_tasks=40, model=str(tiny_folder))
    export_run(run_dir, tmp_path / "exported")
    assert faults(tmp_path / "exported", max_staleness=1, num_tasks=40) == []
    assert export_model(run_dir, tmp_path / "model").startswith("sha256:")


@pytest.mark.slow
def test_fifty_kills_of_a_real_model(tiny: Zygote, tmp_path: Path, tiny_folder: Path) -> None:
    run_dir = tmp_path / "run"
    run_with_kills(tiny, run_dir, num_kills=50, seed=4, longest_s=0.8, num_tasks=300, model=str(tiny_folder))
    export_run(run_dir, tmp_path / "exported")
    assert faults(tmp_path / "exported", max_staleness=1, num_tasks=300) == []


def test_the_check_sees_what_is_wrong(fake: Zygote, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    outcome = fake.outcome(run_dir, fake.start(run_dir, num_tasks=12))
    assert outcome["max_staleness"] <= 1
    assert outcome["length_bias"] == 0.0
    export_run(run_dir, tmp_path / "exported")
    files = {name: tmp_path / "exported" / f"{name}.jsonl" for name in ("groups", "spans")}
    groups, spans = (read_rows(file) for file in files.values())

    def found(groups: list[dict[str, object]], spans: list[dict[str, object]], **more: int) -> str:
        for file, table in zip(files.values(), (groups, spans), strict=True):
            file.write_text("".join(json.dumps(row) + "\n" for row in table))
        return "; ".join(fault.what for fault in faults(tmp_path / "exported", max_staleness=1, num_tasks=12, **more))

    assert found(groups, spans) == ""
    trained = next(g for g in groups if g["state"] == "trained")
    assert "was lost" in found([{**g, "state": "dead"} if g is trained else g for g in groups], spans)
    twin = {**trained, "group": "twin", "order": len(groups)}
    assert "consumed 2 times" in found([*groups, twin], spans)
    old = [{**s, "version_at_training": 9} if s["group"] == trained["group"] else s for s in spans]
    assert "ages" in found(groups, old)
    again = [{**s, "attempt": "another"} for s in spans if s["group"] == trained["group"]]
    assert "trained 2 times" in found(groups, [*spans, *again])
    cut = [{**s, "mask": s["mask"][1:]} for s in spans]
    assert "mask of another length" in found(groups, cut)


def test_the_trainer_ends_itself_when_its_run_is_killed(fake: Zygote, tmp_path: Path) -> None:
    process = fake.start(tmp_path / "run", num_tasks=400, seconds=0.01)
    deadline = time.monotonic() + 20
    while (trainer := child(process)) is None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert trainer is not None
    process.kill()
    assert psutil.wait_procs([trainer], timeout=10)[1] == []


def test_a_straggler_and_a_broken_world_do_not_stop_the_step(fake: Zygote, tmp_path: Path) -> None:
    for fault, kind in (("straggler", "straggler"), ("flaky", "retry")):
        run_dir = tmp_path / fault
        arguments = {"settings": {"group_limit_s": 0.15, "max_restarts": 1}, "fault": fault, "num_tasks": 12}
        outcome = fake.outcome(run_dir, fake.start(run_dir, **arguments))
        assert outcome.get("stopped") == "source dry", outcome
        assert kind in {incident.kind for incident in read_incidents(RunFolder(run_dir).incidents)}
        export_run(run_dir, tmp_path / f"{fault}-exported")
        assert faults(tmp_path / f"{fault}-exported", max_staleness=1, num_tasks=12) == []
    last = {g["task"]: g for g in read_rows(tmp_path / "straggler-exported" / "groups.jsonl")}
    assert last["t7"]["state"] == "too_few"  # given up, and counted
    assert {g["state"] for g in last.values()} <= {"trained", "zero_advantage", "too_few"}
    (ninth,) = (g for g in last.values() if g["ordinal"] == 9)
    spans = read_rows(tmp_path / "straggler-exported" / "spans.jsonl")
    members = {s["attempt"] for s in spans if s["group"] == ninth["group"]}
    assert members == {"g000009:0", "g000009:1"}  # of the first try: what had ended trains without the straggler


def test_a_trainer_that_hangs_is_named_and_ended(fake: Zygote, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "hang").touch()
    arguments = {"settings": {"hang_s": 0.3, "max_restarts": 1}, "num_tasks": 8}
    outcome = fake.outcome(run_dir, fake.start(run_dir, **arguments))
    assert "hangs: no answer to 'accumulate' after 0.3 s" in outcome["error"]
    (incident,) = read_incidents(RunFolder(run_dir).incidents)
    assert incident.kind == "hang"
    (run_dir / "hang").unlink()
    assert fake.outcome(run_dir, fake.start(run_dir, **arguments))["stopped"] == "source dry"


def test_two_processes_never_fly_one_run(fake: Zygote, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    first = fake.start(run_dir, num_tasks=40, seconds=0.01)
    deadline = time.monotonic() + 20
    while child(first) is None and time.monotonic() < deadline:
        time.sleep(0.005)
    second = fake.start(run_dir, num_tasks=40, seconds=0.01)
    assert f"is being trained by process {first.pid}" in fake.outcome(run_dir, second)["error"]
    assert fake.outcome(run_dir, first)["stopped"] == "source dry"
    export_run(run_dir, tmp_path / "exported")
    assert faults(tmp_path / "exported", max_staleness=1, num_tasks=40) == []


def test_weights_of_killed_incarnations_leave_the_memory(fake: Zygote, tmp_path: Path) -> None:
    """The trainer of this run publishes nothing: what lies there is of others."""
    run_dir = tmp_path / "run"
    weights, other = shared_path(run_dir, 3), shared_path(tmp_path / "other", 0)
    for path in (weights, weights.with_suffix(".meeting"), weights.with_name(f".{weights.stem}.handles.7"), other):
        path.write_bytes(b"x")
    published = weights.with_suffix(".published")
    published.mkdir()
    (published / "3-2.safetensors").write_bytes(b"x")
    try:
        assert fake.outcome(run_dir, fake.start(run_dir, num_tasks=4))["stopped"] == "source dry"
        assert list(weights.parent.glob(f"*{weights.stem.removesuffix('-3')}*")) == []
        assert other.exists()
    finally:
        other.unlink()


def kill_after(zygote: Zygote, run_dir: Path, num_checkpoints: int, **arguments: object) -> None:
    """Kill a run once so many checkpoints lie there."""
    process = zygote.start(run_dir, **arguments)
    deadline = time.monotonic() + 30
    while len(RunFolder(run_dir).checkpoints()) < num_checkpoints and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(0.15)  # so that this incarnation samples something, if the checkpoints were there before
    trainer = child(process)
    for each in (process, trainer):
        if each is not None:
            each.kill()
            psutil.wait_procs([each], timeout=10)


@pytest.mark.parametrize("victim", ["manifest.json", "weights.json"])
def test_a_damaged_checkpoint_costs_steps_and_nothing_else(fake: Zygote, tmp_path: Path, victim: str) -> None:
    """Twice: the second time what began with the lost weights lies in the journal as well."""
    run_dir, folder = tmp_path / "run", RunFolder(tmp_path / "run")
    arguments = {"num_tasks": 120, "seconds": 0.002}
    for attempt in range(2):
        kill_after(fake, run_dir, 2, **arguments)
        kill_after(fake, run_dir, 2, **arguments)  # an incarnation of its own begins with the newest
        older, newest = folder.checkpoints()[-2:]
        path = newest / victim
        path.write_bytes(path.read_bytes()[:-5])
        (told_damage,) = export_run(run_dir, tmp_path / f"exported-{attempt}").unreadable
        assert f"{newest.name} is damaged: {victim}" in told_damage
        found = faults(tmp_path / f"exported-{attempt}", max_staleness=1)
        assert [fault for fault in found if fault.kind != "lost"] == []  # dead groups are begun anew by the next start
        aside = newest.with_name(f"damaged-{newest.name}")
        shutil.rmtree(aside, ignore_errors=True)
        process = fake.start(run_dir, **arguments)
        deadline = time.monotonic() + 20
        while not (aside.exists() and folder.checkpoints()[-1] > older) and time.monotonic() < deadline:
            time.sleep(0.002)
        process.kill()
        psutil.wait_procs([process], timeout=10)
    outcome = fake.outcome(run_dir, fake.start(run_dir, **arguments))
    assert outcome.get("stopped") == "source dry", outcome
    told = [incident.what for incident in read_incidents(folder.incidents) if incident.kind == "checkpoint"]
    assert len(told) == 2
    assert all(victim in what and "kept as damaged-step-" in what for what in told)
    export_run(run_dir, tmp_path / "exported")
    assert faults(tmp_path / "exported", max_staleness=1, num_tasks=120) == []
    trained = json.loads((folder.model / "weights.json").read_text())
    states = [g for g in read_rows(tmp_path / "exported" / "groups.jsonl") if g["state"] == "trained"]
    assert sorted((g["group"], g["version_at_training"]) for g in states) == sorted((n, v) for n, v, _ in trained)
