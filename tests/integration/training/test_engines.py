"""Whole runs over every engine that ``[engine]`` can name: the trainer's weights reach it, and its tokens train."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.training.bandit import BanditRunner

from flightschool.engines import EngineSettings, load_model
from flightschool.engines.scoring import TeacherSettings
from flightschool.errors import InfrastructureError, TokenContractError
from flightschool.records import Task, ToolSpec
from flightschool.testing.served import ServedFake, SglangFake, VllmFake
from flightschool.training import PoolSource, TrainingSettings, TrainResult, train
from flightschool.training.folders import RunFolder
from flightschool.training.incidents import read_incidents
from flightschool.training.progress import StepProgress

pytestmark = pytest.mark.integration
TASKS = [Task(id="t", family="f", stratum="s", instruction="go", initial_state="")]
TOOL = ToolSpec(
    name="look",
    description="look",
    parameters={"properties": {"at": {"type": "string", "maxLength": 3}}, "required": ["at"]},
)


def run(
    folder: Path,
    model: Path,
    engine: EngineSettings,
    after_step: Callable[[int], object] = lambda step: None,
    teacher: TeacherSettings | None = None,
    **more: Any,
) -> tuple[TrainResult, list[StepProgress]]:
    rows: list[StepProgress] = []

    def told(row: StepProgress) -> None:
        rows.append(row)
        after_step(row.step)

    fields = {"learning_rate": 3e-3, "max_new_tokens": 12, "groups_per_step": 1, "num_steps": 3, "group_size": 4}
    settings = TrainingSettings.model_validate(
        fields | {"separate_process": False, "mode": "sync", "max_context": 128, "restart_pause_s": 0.0} | more
    )
    result = train(
        settings,
        model=model,
        run_dir=folder,
        source=PoolSource(TASKS),
        runner=BanditRunner(tools=(TOOL,)),
        progress=told,
        engine=engine,
        teacher=teacher,
        unaudited="a test",
    )
    return result, rows


@contextlib.contextmanager
def serving(fake: ServedFake) -> Iterator[str]:
    """The server in a thread of its own, as a server is."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def ask(work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(10)

    try:
        ask(fake.__aenter__())
        yield fake.url
        ask(fake.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_served_engine_is_fed_and_trained_on(kind: Any, tiny_folder: Path, tmp_path: Path) -> None:
    fake = {"vllm": VllmFake, "sglang": SglangFake}[kind](load_model(tiny_folder))
    with serving(fake) as url:
        result, rows = run(tmp_path / "run", tiny_folder, EngineSettings(kind=kind, url=url))
        assert fake.label == "run/0/3"
        served = fake.checksums()
    assert [row.step for row in rows] == [1, 2, 3]
    assert all(row.stats.fresh_mismatch < 1e-4 for row in rows)  # what trains is what was sampled
    trained = ServedFake(load_model(Path(result.model))).checksums()
    assert served == trained


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_server_that_is_started_anew_in_the_middle_of_a_run(kind: Any, tiny_folder: Path, tmp_path: Path) -> None:
    """It comes back with the weights of its folder; nothing of those trains, and the run ends as if nothing was."""
    fake = {"vllm": VllmFake, "sglang": SglangFake}[kind](load_model(tiny_folder))
    restarted: list[int] = []

    def restart(step: int) -> None:
        if step == 2 and not restarted:
            fake.load(tiny_folder)
            fake.label = "default"
            restarted.append(step)

    with serving(fake) as url:
        engine = EngineSettings(kind=kind, url=url)
        result, rows = run(tmp_path / "run", tiny_folder, engine, restart, learning_rate=0.03)
        served = fake.checksums()
    assert restarted
    assert [row.step for row in rows] == [1, 2, 3]
    assert all(row.stats.fresh_mismatch < 1e-4 for row in rows)
    assert served == ServedFake(load_model(Path(result.model))).checksums()
    assert {i.kind for i in read_incidents(RunFolder(tmp_path / "run").incidents)} == {"retry"}


def test_weights_that_a_server_loses_without_a_word_are_found_by_its_tokens(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows neither labels nor check sums, says yes to every publication and goes on with the old weights."""
    fake = VllmFake(load_model(tiny_folder), labels=False)
    monkeypatch.setattr(fake, "load", lambda folder: None)
    more: dict[str, Any] = {"max_new_tokens": 40, "group_size": 10, "learning_rate": 0.03}
    with serving(fake) as url, pytest.raises(TokenContractError, match="said to be of the newest weights") as caught:
        run(tmp_path / "run", tiny_folder, EngineSettings(kind="vllm", url=url), **more)
    assert "publication is lost" in caught.value.mend


def test_a_server_that_is_not_there_ends_the_run_with_its_address(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="did not answer") as caught:
        run(tmp_path / "run", tiny_folder, EngineSettings(kind="vllm", url="http://127.0.0.1:9"))
    assert "http://127.0.0.1:9" in str(caught.value)


@pytest.mark.parametrize("constrained", [True, False])
def test_constrained_completions_train_on_their_own_support(
    constrained: bool, tiny_folder: Path, tmp_path: Path
) -> None:
    _, rows = run(tmp_path / "run", tiny_folder, EngineSettings(constrain_calls=constrained))
    assert len(rows) == 3
    assert all(row.stats.fresh_mismatch < 1e-4 for row in rows)
