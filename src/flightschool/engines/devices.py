"""Devices by name, ``cpu``, ``cuda:1``, ``xpu``, ``mps``: whether this machine has what a configuration asks for.

Which types there are is torch's knowledge, so a name is only looked at for its form until torch may be imported.
"""

from __future__ import annotations

from flightschool.errors import ConfigError

__all__ = ["DEVICE_PATTERN", "check_device", "index_of", "num_devices", "type_of"]

DEVICE_PATTERN = r"^[a-z][a-z0-9]*(:\d+)?$"
"""Form of a name: a type, and perhaps which one of that type."""
_MEND = "see flightschool doctor; name a device that is there, or 'cpu'"


def type_of(device: str) -> str:
    """``cuda`` of ``cuda:1``."""
    return device.partition(":")[0]


def index_of(device: str) -> int:
    """1 of ``cuda:1``; 0 where none is named, which is the one that torch takes then."""
    return int(device.partition(":")[2] or 0)


def num_devices(kind: str) -> int:
    """How many devices of a type this torch can compute on; there is one CPU, whatever its cores.

    Raises:
        ConfigError: this torch knows no such type.
    """
    if kind == "cpu":
        return 1
    import torch

    try:
        torch.device(kind)
        module = torch.get_device_module(kind)
    except RuntimeError:
        raise ConfigError(
            f"this torch ({torch.__version__}) knows no devices of type {kind!r}",
            where="device",
            expected="cpu, cuda (AMD's too), xpu, mps, or a type that an installed extension of torch brings",
            mend=_MEND,
        ) from None
    return int(module.device_count()) if module.is_available() else 0


def check_device(device: str, *, where: str, num: int = 1) -> None:
    """Refuse devices that are not there. On ``cpu`` torch is not imported.

    Args:
        device: the first one's name.
        where: the key that names it, for the error.
        num: how many are wanted, counted on from that one.

    Raises:
        ConfigError: there are fewer, or torch knows no such type.
    """
    kind = type_of(device)
    if kind == "cpu" and device != kind:
        raise ConfigError(
            f"device {device!r} has an index", where=where, expected="'cpu': all its cores are one device", mend=_MEND
        )
    try:
        there = num_devices(kind)
    except ConfigError as error:
        raise ConfigError(error.what, where=where, expected=error.expected, mend=error.mend) from None
    if index_of(device) + num <= there:
        return
    found = f"'cpu': torch sees no {kind} device here"
    if there:
        found = f"{kind}:0 to {kind}:{there - 1}" if there > 1 else f"the only one, {kind}"
    wanted = f"device {device!r} is" if num == 1 else f"{num} devices from {device!r} on are"
    raise ConfigError(f"{wanted} not there", where=where, expected=found, mend=_MEND)
