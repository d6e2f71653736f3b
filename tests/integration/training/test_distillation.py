"""Whole runs towards a teacher: the distance falls, servers teach like folders, one that dies loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from tests.integration.training.bandit import BanditRunner

from flightschool.engines import load_model, save_model
from flightschool.engines.scoring import TeacherSettings
from flightschool.errors import ConfigError, InfrastructureError, TokenContractError
from flightschool.records import SpanKind, Task
from flightschool.testing.served import Event, ServedFake, SglangFake, VllmFake
from flightschool.training import PoolSource, TrainingSettings, TrainResult, resume, train
from flightschool.training.credits import read_credits
from flightschool.training.exporting import export_run
from flightschool.training.folders import RunFolder
from flightschool.training.journal import Finished, Scored, read_journal
from flightschool.training.progress import StepProgress

pytestmark = [pytest.mark.integration, pytest.mark.long]
TASKS = [Task(id=f"t{i}", family=f"f{i}", stratum="s", instruction=f"go {i}", initial_state="") for i in range(3)]
BASE: dict[str, Any] = {
    "algorithm": "distill",
    "learning_rate": 3e-3,
    "max_new_tokens": 8,
    "groups_per_step": 2,
    "num_steps": 4,
    "max_inflight_groups": 3,
    "restart_pause_s": 0.0,
    "max_restarts": 1,
    "checkpoint_every": 1,
}
KINDS: dict[str, type[ServedFake]] = {"vllm": VllmFake, "sglang": SglangFake}


@pytest.fixture(scope="session")
def teacher_folder(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The student's own weights, pushed off their place."""
    loaded = load_model(tiny_folder)
    chance = torch.Generator().manual_seed(7)
    state = {
        name: tensor + 0.1 * torch.randn(tensor.shape, generator=chance)
        for name, tensor in loaded.model.state_dict().items()
    }
    folder = tmp_path_factory.mktemp("teacher") / "model"
    save_model(loaded, folder, state=state)
    return folder


def run(
    folder: Path, model: Path, teacher: TeacherSettings, runner: BanditRunner | None = None, **fields: Any
) -> tuple[TrainResult, list[StepProgress]]:
    rows: list[StepProgress] = []
    settings = TrainingSettings.model_validate(BASE | fields)
    result = train(
        settings,
        model=model,
        run_dir=folder,
        source=PoolSource(TASKS),
        runner=runner or BanditRunner(),
        progress=rows.append,
        teacher=teacher,
        unaudited="a test",
    )
    return result, rows


@contextlib.contextmanager
def served(kind: str, folder: Path, port: int = 0, **options: Any) -> Iterator[ServedFake]:
    """A server in an event loop of its own: runs have theirs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    fake = KINDS[kind](load_model(folder), port=port, **options)
    try:
        asyncio.run_coroutine_threadsafe(fake.__aenter__(), loop).result(30)
        yield fake
        asyncio.run_coroutine_threadsafe(fake.__aexit__(None, None, None), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


def at(fake: ServedFake, kind: str) -> TeacherSettings:
    return TeacherSettings.model_validate({"kind": kind, "url": fake.url, "timeout_s": 10.0})


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_policy_comes_nearer_to_its_teacher(
    mode: str, tiny_folder: Path, teacher_folder: Path, tmp_path: Path
) -> None:
    teacher = TeacherSettings(model=str(teacher_folder))
    fields: dict[str, Any] = {
        "mode": mode,
        "separate_process": mode == "async",
        "num_steps": 24,
        "checkpoint_every": 24,
    }
    result, rows = run(tmp_path / "run", tiny_folder, teacher, groups_per_step=4, max_inflight_groups=4, **fields)
    first, last = sum(row.teacher_kl for row in rows[:2]) / 2, sum(row.teacher_kl for row in rows[-6:]) / 6
    assert 0.0 < last < 0.7 * first
    assert all(row.num_teacher_tokens >= row.stats.num_trained_tokens > 0 for row in rows)
    assert result.num_zero_advantage == 0
    assert max(row.staleness_max for row in rows) <= 1


def test_rewards_are_measured_only(tiny_folder: Path, teacher_folder: Path, tmp_path: Path) -> None:
    """Other rewards, the same weights to the last bit."""
    teacher = TeacherSettings(model=str(teacher_folder))
    made = [
        run(
            tmp_path / name,
            tiny_folder,
            teacher,
            BanditRunner(bonus=bonus),
            mode="sync",
            separate_process=False,
            num_steps=2,
        )
        for name, bonus in (("a", 0.0), ("b", 1.0))
    ]
    assert made[0][0].model_digest == made[1][0].model_digest
    assert made[0][1][0].reward_outcome < made[1][1][0].reward_outcome


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_server_teaches_what_its_folder_would(
    kind: str, tiny_folder: Path, teacher_folder: Path, tmp_path: Path
) -> None:
    fields: dict[str, Any] = {"mode": "sync", "separate_process": False, "num_steps": 2}
    _, here = run(tmp_path / "here", tiny_folder, TeacherSettings(model=str(teacher_folder)), **fields)
    with served(kind, teacher_folder) as fake:
        _, there = run(tmp_path / "there", tiny_folder, at(fake, kind), **fields)
    assert [row.teacher_kl for row in there] == pytest.approx([row.teacher_kl for row in here], abs=1e-4)
    assert [row.stats.grad_norm for row in there] == pytest.approx([row.stats.grad_norm for row in here], rel=1e-3)


def test_beside_rewards_all_groups_train_and_an_export_tells_every_token(
    tiny_folder: Path, teacher_folder: Path, tmp_path: Path
) -> None:
    teacher = TeacherSettings(model=str(teacher_folder))
    fields: dict[str, Any] = {
        "algorithm": "dr_grpo",
        "distill_weight": 0.1,
        "mode": "sync",
        "separate_process": False,
        "num_steps": 2,
    }
    _, rows = run(tmp_path / "run", tiny_folder, teacher, **fields)
    assert all(row.num_teacher_tokens for row in rows)
    export_run(tmp_path / "run", tmp_path / "out")
    spans = [msgspec.json.decode(line) for line in (tmp_path / "out" / "spans.jsonl").read_bytes().splitlines()]
    trained = [row for row in spans if row["version_at_training"] is not None]
    assert trained
    said = {
        (attempt, span): values
        for entry in read_journal(RunFolder(tmp_path / "run").journal)
        if isinstance(entry, Scored)
        for attempt, table in entry.scores.items()
        for span, values in table.items()
    }
    for row in trained:
        gaps = zip(said[row["attempt"], row["span"]], row["logprobs"], strict=True)
        assert row["teacher"] == pytest.approx([0.1 * max(-5.0, min(5.0, a - b)) for a, b in gaps])
    assert not any(row["teacher"] for row in spans if row["kind"] != SpanKind.COMPLETION)


class Dying:
    """Answers some questions, then breaks the connection on each."""

    def __init__(self, num_answers: int) -> None:
        self.left = num_answers

    def __call__(self, event: Event) -> Event | None:
        self.left -= 1
        return event if self.left >= 0 else None


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_teacher_that_dies_ends_the_run_and_loses_nothing(
    kind: str, tiny_folder: Path, teacher_folder: Path, tmp_path: Path
) -> None:
    with (
        served(kind, teacher_folder, distort=Dying(60)) as fake,
        pytest.raises(InfrastructureError, match="did not score a sequence in 2 tries") as caught,
    ):
        run(tmp_path / "run", tiny_folder, at(fake, kind), num_steps=8)
    assert "--resume" in caught.value.mend
    before = list(read_journal(RunFolder(tmp_path / "run").journal))
    finished = {entry.group.id for entry in before if isinstance(entry, Finished)}
    scored = {entry.group for entry in before if isinstance(entry, Scored)}
    assert scored < finished, "some groups were finished and not scored"
    with pytest.raises(InfrastructureError, match="did not answer"):
        resume(tmp_path / "run", source=PoolSource(TASKS), runner=BanditRunner())
    with served(kind, teacher_folder, port=fake.port) as again:
        result = resume(tmp_path / "run", source=PoolSource(TASKS), runner=BanditRunner())
        asked = [body for _, body in again.requests if "prompt_logprobs" in body or "logprob_start_len" in body]
    assert result.manifest.step == 8
    assert set(Counter(result.manifest.consumed).values()) == {1}
    ordinals = sorted(int(name[1:].split(".")[0]) for name in result.manifest.consumed)
    assert ordinals == list(range(len(ordinals)))
    after = list(read_journal(RunFolder(tmp_path / "run").journal))
    twice = [name for name, n in Counter(e.group for e in after if isinstance(e, Scored)).items() if n > 1]
    assert twice == [], "what the teacher had said was not asked again"
    rescored = {e.group for e in after[len(before) :] if isinstance(e, Scored)} & finished
    assert rescored
    assert rescored <= finished - scored
    assert len(asked) >= 8 * len(rescored)
    rows = {row.group: row for row in read_credits(RunFolder(tmp_path / "run").credits)}
    assert all(any(member.teacher.values()) for name in result.manifest.consumed for member in rows[name].members)


def test_a_teacher_that_answers_nonsense_ends_the_run_at_once(
    tiny_folder: Path, teacher_folder: Path, tmp_path: Path
) -> None:
    def later(num: int) -> Callable[[Event], Event]:
        left = [num]

        def distort(event: Event) -> Event:
            left[0] -= 1
            if left[0] < 0:
                event["choices"][0]["prompt_logprobs"] = None
            return event

        return distort

    with (
        served("vllm", teacher_folder, distort=later(20)) as fake,
        pytest.raises(TokenContractError, match="no prompt_logprobs"),
    ):
        run(tmp_path / "run", tiny_folder, at(fake, "vllm"))


def test_nothing_is_begun_without_the_teacher(tiny_folder: Path, teacher_folder: Path, tmp_path: Path) -> None:
    with served("vllm", teacher_folder) as fake:
        gone = at(fake, "vllm")
    with pytest.raises(InfrastructureError, match="did not answer"):
        run(tmp_path / "run", tiny_folder, gone)
    with pytest.raises(ConfigError, match="nothing asks it"):
        run(tmp_path / "run", tiny_folder, TeacherSettings(model=str(teacher_folder)), algorithm="grpo")
    assert not (tmp_path / "run").exists()
