"""Which station computes on which device, and whether weights find the way from the one to the other.

The trainer's ranks take the devices 0, 1, 2 … of ``training.device`` (a single trainer takes the one that is named).
The engine takes ``engine.device``. It is the trainer's by default, for one device is what most machines have; only
``broadcast`` over NCCL needs another, since two ranks of a group cannot share a device: then the engine's default is
the first one that no trainer takes. Shared memory and files carry weights between any two devices of a machine.
"""

from __future__ import annotations

import os

from flightschool.engines.devices import check_device, index_of, type_of
from flightschool.engines.settings import EngineSettings
from flightschool.errors import ConfigError
from flightschool.training.settings import TrainingSettings

__all__ = ["check_placing", "engine_device"]


def engine_device(settings: TrainingSettings, engine: EngineSettings) -> str:
    """Where an engine in the run's own process computes."""
    if engine.device is not None:
        return engine.device
    if settings.publication != "broadcast" or settings.device == "cpu":
        return settings.device
    taken = _taken(settings)
    free = next(index for index in range(len(taken) + 1) if index not in taken)
    return f"{type_of(settings.device)}:{free}"


def check_placing(settings: TrainingSettings, engine: EngineSettings) -> None:
    """Refuse what is not there, and what cannot meet.

    Raises:
        ConfigError: a device is absent, there are more trainers than devices (or cores), or the way of publication
            does not lead from the trainer's device to the engine's.
    """
    if type_of(settings.device) == "cpu":
        _check_cores(settings.num_trainers)
    num_devices = 1 if type_of(settings.device) == "cpu" else settings.num_trainers
    check_device(settings.device, where="training.device", num=num_devices)
    if engine.is_served:
        return
    device = engine_device(settings, engine)
    check_device(device, where="engine.device")
    _check_way(settings, device)


def _check_cores(num_trainers: int) -> None:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = max(2, usable)  # two on a single core are slow, but show that sharding works
    if num_trainers > most:
        raise ConfigError(
            f"num_trainers = {num_trainers} on a CPU of {usable} usable core(s)",
            where="training.num_trainers",
            expected=f"at most {most}",
            mend="take fewer; more cores for one trainer are training.num_threads",
        )


def _check_way(settings: TrainingSettings, device: str) -> None:
    kinds = {type_of(settings.device), type_of(device)}
    shared = kinds == {"cuda"} and index_of(device) in _taken(settings)
    if settings.publication == "broadcast" and (len(kinds) > 1 or not kinds <= {"cpu", "cuda"}):
        expected = "trainer and engine both on cpu (gloo) or both on cuda (NCCL)"
    elif settings.publication == "broadcast" and shared:
        expected = "an engine.device that no trainer takes: NCCL joins no two processes on one device"
    elif settings.publication == "cuda_ipc" and not (shared and index_of(device) == _taken(settings)[0]):
        expected = "the engine on the device of the (first) trainer, which hands over its own memory"
    else:
        return
    raise ConfigError(
        f"publication = {settings.publication!r} from {settings.device!r} to {device!r}",
        where="training.publication",
        expected=expected,
        mend="set engine.device, or publication = 'shared_memory', which leads from any device to any other",
    )


def _taken(settings: TrainingSettings) -> list[int]:
    """Indices of the trainers' devices, rank by rank."""
    return list(range(settings.num_trainers)) if settings.num_trainers > 1 else [index_of(settings.device)]
