"""The SGLang client against a real server, run by hand, and against the conversation that it recorded, everywhere.

Live: an environment with ``sglang`` and a CPU build of torch, and ``FLIGHTSCHOOL_SGLANG=PYTHON pytest -m slow`` on this
file; ``FLIGHTSCHOOL_RECORD=1`` records the conversation anew. How it was installed without an accelerator is told in
docs/design/engines.md.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import needs
from tests.integration.engines.live import check_recording, free_port, mismatch, other, running, under_way

from flightschool.engines import LoadedModel, Transformer, load_model
from flightschool.engines.served import FolderExporter, ServedEngine, SglangWire
from flightschool.testing.conversation import PROMPT, ask, converse, version
from flightschool.testing.recorded import RecordingTransport

RECORDING = Path(__file__).parent / "recordings" / "sglang-0.5.23-smollm2.jsonl"
KEPT = {"/server_info": ("context_length", "max_req_input_len", "version"), "/model_info": ("weight_version",)}
"""The rest is of the machine that recorded."""
MOST_MISMATCH = 2e-4
"""Of log-probabilities in float32 between SGLang's kernels and ours; measured figures: docs/experiments.md."""

pytestmark = pytest.mark.integration


async def test_the_recorded_conversation_of_a_real_server(tmp_path: Path, tiny_model: Path) -> None:
    """Everything that the contract asks, of what a real server said."""
    wire = SglangWire("http://127.0.0.1:1")
    await check_recording(RECORDING, wire, tmp_path, tiny_model, seeds_count=False)  # its CPU attention knows no seeds


@pytest.fixture(scope="module")
def url(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    python = os.environ.get("FLIGHTSCHOOL_SGLANG")
    if not python:
        needs.skip("SGLang", "install it in an environment of its own and set FLIGHTSCHOOL_SGLANG to that Python")
    port = free_port()
    command = [python, "-m", "sglang.launch_server", "--model-path", str(folder), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--device", "cpu", "--dtype", "float32", "--context-length", "518"]
    command += ["--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--max-total-tokens", "8192"]
    command += ["--max-running-requests", "8", "--disable-overlap-schedule", "--skip-server-warmup"]
    command += ["--mem-fraction-static", "0.1"]
    wire = SglangWire(f"http://127.0.0.1:{port}")
    settings = {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1"}
    with running(command, settings, wire, tmp_path_factory.mktemp("sglang") / "log"):
        yield wire.url


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedModel:
    return load_model(folder)


@pytest.mark.slow
async def test_a_live_conversation_agrees_with_plain_passes_of_the_same_weights(
    url: str, loaded: LoadedModel, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = RECORDING if os.environ.get("FLIGHTSCHOOL_RECORD") else tmp_path / "recording.jsonl"
    published = tmp_path / "published"
    engine = ServedEngine(
        SglangWire(url),
        vocab=49152,
        max_context=512,
        run="recorded",
        exporter=FolderExporter(folder, published),
        timeout_s=300.0,
        transport=RecordingTransport(target, hide=[str(folder), str(published)], keep=KEPT),
    )
    old, new = dict(loaded.model.named_parameters()), other(loaded.model)
    heard = await converse(engine, old, new)
    after = Transformer(loaded.config)
    after.load_state_dict(new, strict=False)
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


@pytest.mark.slow
async def test_a_live_update_interrupts_and_goes_on(
    url: str, loaded: LoadedModel, folder: Path, tmp_path: Path
) -> None:
    engine = ServedEngine(
        SglangWire(url),
        vocab=49152,
        max_context=512,
        run="recorded",
        exporter=FolderExporter(folder, tmp_path / "published"),
    )
    await engine.load_weights(version(0), dict(loaded.model.named_parameters()))
    tasks = [asyncio.create_task(engine.generate(ask(f"s{i}", new=60, seed=i, stop_token_ids=()))) for i in range(3)]
    await under_way(engine, tasks, 12)
    await engine.load_weights(version(1), other(loaded.model))
    for done in await asyncio.gather(*tasks):
        assert len(done.token_ids_T) == 60
        assert [run.step for run in done.versions] == [0, 1]
    await engine.aclose()
