"""The virtual clock: time that is counted, never slept."""

from __future__ import annotations

import math

import msgspec

from flightschool.digest import derive_random
from flightschool.errors import InputError
from flightschool.records import Latency

__all__ = ["VirtualClock", "sample_latency_ms"]


class VirtualClock:
    """Milliseconds since the start of one attempt. Moves only forward, and only when told to."""

    __slots__ = ("_now_ms",)

    def __init__(self) -> None:
        self._now_ms = 0.0

    @property
    def now_ms(self) -> float:
        """Virtual milliseconds since the attempt began."""
        return self._now_ms

    def advance(self, ms: float) -> None:
        """Let ``ms`` virtual milliseconds pass.

        Raises:
            InputError: ``ms`` is negative, infinite or NaN.
        """
        if not 0.0 <= ms < math.inf:
            raise InputError(
                f"the virtual clock cannot advance by {ms} ms",
                where="VirtualClock.advance",
                expected="a finite number of milliseconds, 0 or more",
                mend="check the latency distribution of the tool or the rates of the engine",
            )
        self._now_ms += ms


def sample_latency_ms(latency: Latency, seed: int, index: int) -> float:
    """Latency of call ``index`` of an attempt: lognormal around its median, the same for the same seed and index.

    Rounded to a microsecond, so that the last digit of a platform's ``exp`` never reaches a digest.
    """
    if latency.sigma == 0.0:
        return latency.median_ms
    z = derive_random(seed, "latency", index).gauss(0.0, 1.0)
    return round(latency.median_ms * math.exp(latency.sigma * z), 3)


def check_latency(latency: Latency, tool: str) -> None:
    """Refuse a distribution that could not move the clock forward.

    Raises:
        InputError: median or sigma is negative, infinite or NaN.
    """
    for name, value in msgspec.structs.asdict(latency).items():
        if not 0.0 <= value < math.inf:
            raise InputError(
                f"latency of tool {tool!r} has {name} = {value}",
                where=f"tool {tool}",
                expected="a finite number, 0 or more",
                mend=f"correct {name}",
            )
