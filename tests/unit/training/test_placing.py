"""Devices: absent ones are told before anything is loaded, and weights find from the trainer's to the engine's.

No machine of the tests has an accelerator: how many there are is made up here, what is done with the number is not.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from flightschool.config import parse_settings
from flightschool.engines import opening
from flightschool.engines.devices import num_devices
from flightschool.engines.settings import EngineSettings
from flightschool.errors import ConfigError, InfrastructureError
from flightschool.records import WeightsVersion
from flightschool.training import generation, preflight
from flightschool.training.placing import check_placing, engine_device
from flightschool.training.publisher import check_served
from flightschool.training.settings import TrainingSettings

Pretend = Callable[..., None]


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Pretend:
    """Make torch see so many devices of a type."""

    def make(**numbers: int) -> None:
        for kind, number in numbers.items():
            module = torch.get_device_module(kind)
            monkeypatch.setattr(module, "is_available", lambda number=number: number > 0, raising=False)
            monkeypatch.setattr(module, "device_count", lambda number=number: number)

    make(cuda=0, xpu=0, mps=0)
    return make


def check(engine: str | None = None, **training: Any) -> None:
    check_placing(TrainingSettings(**training), EngineSettings(device=engine))


ABSENT: list[tuple[dict[str, Any], str, str]] = [
    ({"device": "cuda"}, "training.device", "torch sees no cuda device here"),
    ({"device": "xpu"}, "training.device", "torch sees no xpu device here"),
    ({"device": "mps"}, "training.device", "torch sees no mps device here"),
    ({"device": "tpu"}, "training.device", "cpu, cuda"),
    ({"device": "meta"}, "training.device", "cpu, cuda"),
    ({"device": "cpu:1"}, "training.device", "'cpu'"),
    ({"engine": "cuda"}, "engine.device", "torch sees no cuda device here"),
    ({"num_trainers": 4096}, "training.num_trainers", "at most"),
]


@pytest.mark.parametrize(("fields", "where", "expected"), ABSENT)
def test_what_is_not_there_is_one_error(pretend: Pretend, fields: dict[str, Any], where: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(**fields)
    assert caught.value.where == where
    assert expected in caught.value.expected
    assert caught.value.mend


def test_any_type_that_torch_knows_is_taken_when_it_is_there(pretend: Pretend) -> None:
    pretend(cuda=2, xpu=1, mps=1)
    for fields in ({"device": "cuda:1"}, {"device": "xpu"}, {"device": "mps"}, {"engine": "cuda:1"}):
        check(**fields)
    check("cpu", device="cuda")
    assert (num_devices("cpu"), num_devices("cuda"), num_devices("xpu")) == (1, 2, 1)
    with pytest.raises(ConfigError) as caught:
        check(device="cuda:2")
    assert (caught.value.what, caught.value.expected) == ("device 'cuda:2' is not there", "cuda:0 to cuda:1")


def test_trainers_take_a_device_each(pretend: Pretend) -> None:
    pretend(cuda=2)
    check(device="cuda", num_trainers=2)
    with pytest.raises(ConfigError, match="3 devices from 'cuda' on are not there"):
        check(device="cuda", num_trainers=3)
    with pytest.raises(ConfigError) as caught:
        parse_settings({"device": "cuda:1", "num_trainers": 2}, TrainingSettings, "train.toml")
    assert "the trainers take cuda:0 to cuda:1" in caught.value.expected


def test_the_engine_is_where_it_was_put_or_beside_the_trainer(pretend: Pretend) -> None:
    def default(**training: Any) -> str:
        return engine_device(TrainingSettings(**training), EngineSettings())

    assert engine_device(TrainingSettings(device="cuda"), EngineSettings(device="cuda:1")) == "cuda:1"
    assert [default(), default(device="cuda:1"), default(device="cuda", num_trainers=2)] == ["cpu", "cuda:1", "cuda"]
    assert default(publication="broadcast") == "cpu"
    assert default(device="cuda", publication="broadcast") == "cuda:1"
    assert default(device="cuda:1", publication="broadcast") == "cuda:0"
    assert default(device="cuda", num_trainers=3, publication="broadcast") == "cuda:3"


@pytest.mark.parametrize(
    ("engine", "training", "fits"),
    [
        (None, {"publication": "broadcast"}, True),
        (None, {"publication": "broadcast", "device": "cuda", "num_trainers": 3}, True),
        ("cuda:2", {"publication": "broadcast", "device": "cuda", "num_trainers": 3}, False),
        ("cuda:0", {"publication": "broadcast", "device": "cuda"}, False),
        ("cpu", {"publication": "broadcast", "device": "cuda"}, False),
        (None, {"publication": "broadcast", "device": "xpu"}, False),
        ("cuda:2", {"publication": "shared_memory", "device": "cuda", "num_trainers": 3}, True),
        ("cpu", {"publication": "safetensors", "device": "cuda"}, True),
        (None, {"publication": "cuda_ipc", "device": "cuda:1"}, True),
        ("cuda:0", {"publication": "cuda_ipc", "device": "cuda"}, True),
        ("cuda:1", {"publication": "cuda_ipc", "device": "cuda"}, False),
        ("cpu", {"publication": "cuda_ipc", "device": "cuda"}, False),
    ],
)
def test_a_way_of_publication_must_join_the_two_devices(
    pretend: Pretend, engine: str | None, training: dict[str, Any], fits: bool
) -> None:
    pretend(cuda=4, xpu=2)
    if fits:
        check(engine, **training)
        return
    with pytest.raises(ConfigError) as caught:
        check(engine, **training)
    assert caught.value.where == "training.publication"


def test_a_server_has_its_own_device() -> None:
    with pytest.raises(ConfigError, match="device"):
        parse_settings({"kind": "vllm", "url": "http://127.0.0.1:1", "device": "cuda"}, EngineSettings, "train.toml")


def test_preflight_looks_at_the_engines_device(tiny_folder: Path, tmp_path: Path, pretend: Pretend) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    preflight(TrainingSettings(), folder, EngineSettings())
    with pytest.raises(ConfigError, match="device 'xpu' is not there"):
        preflight(TrainingSettings(), folder, EngineSettings(device="xpu"))


def test_the_engine_is_loaded_onto_its_own_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def stop(*_: object, device: str, **__: object) -> None:
        asked.append(device)
        raise InterruptedError

    monkeypatch.setattr(opening, "open_engine", stop)
    settings = TrainingSettings(device="cuda")
    runner: Any = None  # nothing is run
    for engine in (EngineSettings(), EngineSettings(device="cuda:1")):
        with pytest.raises(InterruptedError):
            generation.LocalGeneration(
                settings, model=tmp_path, runner=runner, run="r", weights=tmp_path, engine=engine
            )
    assert asked == ["cuda", "cuda:1"]


def test_what_is_served_is_compared_wherever_both_lie() -> None:
    """A state on another device than the model's: torch compares nothing across devices."""

    class Elsewhere:
        def __init__(self, tensor: torch.Tensor) -> None:
            self._tensor = tensor

        def cpu(self) -> torch.Tensor:
            return self._tensor.detach()

    model = torch.nn.Linear(3, 2)
    state: Any = {name: Elsewhere(tensor) for name, tensor in model.named_parameters()}
    version = WeightsVersion(run="r", incarnation=0, step=3)
    check_served(model, state, version)
    with torch.no_grad():
        model.bias[0] += 1.0
    # The state shares the model's storage: what it held before is given by hand.
    state["bias"] = Elsewhere(model.bias - torch.tensor([1.0, 0.0]))
    with pytest.raises(InfrastructureError, match=r"does not serve step 3: 1 tensor\(s\) differ, .*'bias'"):
        check_served(model, state, version)
