"""Whole runs over every engine that ``[engine]`` can name: the trainer's weights reach it, and its tokens train."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flightschool.engines import EngineSettings, load_model
from flightschool.errors import InfrastructureError
from flightschool.perturbation import FaultProfile
from flightschool.records import (
    Attempt,
    EndReason,
    EpisodeGroup,
    Message,
    Outcome,
    Reward,
    SpanKind,
    Task,
    Timings,
    ToolSpec,
)
from flightschool.rollouts import EpisodeEndError, MalformedCallError, Policy
from flightschool.testing.served import ServedFake, SglangFake, VllmFake
from flightschool.training import PoolSource, TrainingSettings, TrainResult, train
from flightschool.training.progress import StepProgress

pytestmark = pytest.mark.integration
TASKS = [Task(id="t", family="f", stratum="s", instruction="go", initial_state="")]
TOOL = ToolSpec(
    name="look",
    description="look",
    parameters={"properties": {"at": {"type": "string", "maxLength": 3}}, "required": ["at"]},
)


class Bandit:
    """One turn; the outcome is the share of sampled tokens with an even id."""

    async def group(
        self,
        task: Task,
        policy: Policy,
        *,
        size: int,
        group: str,
        admitted_step: int,
        seed: int,
        weather_profile: FaultProfile | None = None,
        known: Mapping[int, Attempt] | None = None,
        keep: Callable[[Attempt], None] | None = None,
    ) -> EpisodeGroup:
        assert not known
        members = await asyncio.gather(*(self._attempt(task, policy, group, index, seed) for index in range(size)))
        return EpisodeGroup(id=group, task=task.id, size=size, members=tuple(members), admitted_step=admitted_step)

    async def _attempt(self, task: Task, policy: Policy, group: str, index: int, seed: int) -> Attempt:
        endpoint = policy.endpoint(task, seed + index, group)
        try:
            await endpoint.complete([Message(role="user", content=task.instruction)], (TOOL,))
        except EpisodeEndError as end:
            if end.reason is EndReason.ENGINE_ERROR:
                raise InfrastructureError(end.detail) from end
        except MalformedCallError:
            pass  # random tokens are seldom a call
        spans = endpoint.spans()
        endpoint.close()
        sampled = [token for span in spans if span.kind is SpanKind.COMPLETION for token in span.token_ids_T]
        share = sum(token % 2 == 0 for token in sampled) / len(sampled)
        return Attempt(
            id=f"{group}:{index}",
            run="r",
            group=group,
            index=index,
            number=0,
            environment="bandit",
            environment_digest="",
            task=task.id,
            task_digest="",
            policy=policy.name,
            seed=seed,
            spans=spans,
            messages=(),
            events=(),
            outcome=Outcome.SCORED,
            reason=EndReason.FINISHED,
            cause="policy",
            verdict=None,
            reward=Reward(outcome=share, process=0.0, latency=0.0, gate=1.0, total=share),
            end_state="",
            timings=Timings(virtual_ms=0.0),
            grammars=getattr(endpoint, "grammars", None) or msgspec.UNSET,
        )


def run(folder: Path, model: Path, engine: EngineSettings) -> tuple[TrainResult, list[StepProgress]]:
    rows: list[StepProgress] = []
    fields = {"learning_rate": 3e-3, "max_new_tokens": 12, "groups_per_step": 1, "num_steps": 3, "group_size": 4}
    settings = TrainingSettings.model_validate(fields | {"separate_process": False, "mode": "sync", "max_context": 128})
    result = train(
        settings,
        model=model,
        run_dir=folder,
        source=PoolSource(TASKS),
        runner=Bandit(),
        progress=rows.append,
        engine=engine,
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


def test_a_server_that_is_not_there_ends_the_run_with_its_address(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="did not answer") as caught:
        run(tmp_path / "run", tiny_folder, EngineSettings(kind="vllm", url="http://127.0.0.1:9"))
    assert "http://127.0.0.1:9" in str(caught.value)


@pytest.mark.parametrize("constrained", [True, False])
def test_constrained_completions_train_on_their_own_support(
    constrained: bool, tiny_folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("llguidance")
    _, rows = run(tmp_path / "run", tiny_folder, EngineSettings(constrain_calls=constrained))
    assert len(rows) == 3
    assert all(row.stats.fresh_mismatch < 1e-4 for row in rows)
