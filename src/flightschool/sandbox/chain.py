"""Which mechanism works here: found by making a sandbox with each, never by reading settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Final

from flightschool.errors import FlightschoolError, InfrastructureError
from flightschool.sandbox.bubblewrap import BubblewrapProvider
from flightschool.sandbox.docker import DockerProvider
from flightschool.sandbox.native import NativeProvider
from flightschool.sandbox.protocols import SandboxProvider
from flightschool.sandbox.records import Mechanism

__all__ = ["MECHANISMS", "best_provider", "require_native", "try_mechanisms"]

MECHANISMS: Final[Mapping[str, Callable[[], SandboxProvider]]] = {
    "native-range": lambda: NativeProvider(mode="range"),
    "native-single": lambda: NativeProvider(mode="single"),
    "bubblewrap": BubblewrapProvider,
    "docker": DockerProvider,
}
"""Best first."""


async def try_mechanisms() -> tuple[Mechanism, ...]:
    """Try each: the table that ``flightschool doctor`` prints."""
    return tuple([await _tried(name) for name in MECHANISMS])


async def best_provider() -> SandboxProvider:
    """The first mechanism that works. The caller closes it.

    Raises:
        InfrastructureError: none works; what each said and what to enable.
    """
    tried = []
    for name in MECHANISMS:
        found = await _tried(name)
        if found.works:
            return MECHANISMS[name]()
        tried.append(found)
    raise InfrastructureError(
        "no sandbox can be made here: " + "; ".join(f"{one.name}: {one.found}" for one in tried),
        where="sandbox",
        expected="one mechanism that works",
        mend="; or ".join(dict.fromkeys(one.mend for one in tried if one.mend)),
    )


async def require_native(who_needs: str, *, mend: str) -> NativeProvider:
    """The native mechanism, which alone runs a task's own image. The caller closes it.

    Args:
        who_needs: beginning of the error: ``"terminal tasks need"``.
        mend: what to do where there is none.

    Raises:
        InfrastructureError: no sandbox of the native mechanism can be made here.
    """
    provider = await best_provider()
    if isinstance(provider, NativeProvider):
        return provider
    await provider.aclose()
    raise InfrastructureError(
        f"{who_needs} the native mechanism; here only {provider.name} works",
        where="sandbox",
        expected="native-range or native-single",
        mend=mend,
    )


async def _tried(name: str) -> Mechanism:
    if not sys.platform.startswith("linux"):
        return Mechanism(name=name, works=False, found=f"{sys.platform} is not Linux", mend="run on Linux")
    if name == "native-range" and os.geteuid() != 0:
        found = "an ordinary user cannot map a range of ids without a helper"
        return Mechanism(name=name, works=False, found=found, mend="not needed where native-single works")
    try:
        provider = MECHANISMS[name]()
    except FlightschoolError as error:
        return Mechanism(name=name, works=False, found=error.what, mend=error.mend)
    try:
        return await provider.try_out()
    finally:
        await provider.aclose()
