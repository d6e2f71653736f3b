"""Every engine passes one contract: here our own, and the clients of served ones over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from flightschool.engines.folders import LoadedModel, load_model, save_model
from flightschool.engines.served import FolderExporter, ServedEngine, SglangWire, VllmWire
from flightschool.engines.torch_engine import TorchEngine
from flightschool.testing.engine_bench import ModelBench
from flightschool.testing.engine_contract import EngineContract
from flightschool.testing.served import ServedFake, SglangFake, VllmFake

CONTEXT = 200


def two(make_loaded: Callable[..., LoadedModel]) -> dict[int, LoadedModel]:
    return {step: make_loaded(step) for step in (0, 1)}


class TestTorchEngine(EngineContract):
    @pytest.fixture
    async def bench(self, make_loaded: Callable[..., LoadedModel]) -> AsyncIterator[ModelBench]:
        engine = TorchEngine(make_loaded(), run="contract", max_context=CONTEXT)
        yield ModelBench(engine, two(make_loaded), lambda: engine.metrics.generated_tokens)
        await engine.aclose()


class Served(EngineContract):
    """The client over HTTP; the fake server computes everything anew for each request."""

    make: Callable[..., ServedFake]
    wire: Callable[[str], Any]

    @pytest.fixture
    async def bench(self, make_loaded: Callable[..., LoadedModel], tmp_path: Path) -> AsyncIterator[ModelBench]:
        save_model(make_loaded(), tmp_path / "model")
        async with self.make(load_model(tmp_path / "model")) as fake:
            engine = ServedEngine(
                self.wire(fake.url),
                vocab=300,
                max_context=CONTEXT,
                run="contract",
                exporter=FolderExporter(tmp_path / "model", tmp_path / "published"),
            )
            await engine.connect()
            bench = ModelBench(engine, two(make_loaded), lambda: engine.generated_tokens)
            bench.grammars = bench.replays = False
            bench.recomputes = True
            bench.tolerance = 3e-5  # which tokens come depends on when weights do, and some of them are unlikely
            yield bench
            await engine.aclose()


class TestVllm(Served):
    make = VllmFake
    wire = VllmWire


class TestSglang(Served):
    make = SglangFake
    wire = SglangWire
