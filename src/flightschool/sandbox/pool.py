"""A warm pool hides the start: sandboxes of one spec are made ahead, each is handed out once and never comes back."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType

from flightschool.errors import InfrastructureError, InputError
from flightschool.sandbox.protocols import Sandbox, SandboxProvider
from flightschool.sandbox.records import SandboxSpec

__all__ = ["WarmPool"]


class WarmPool:
    """Keeps ``size`` fresh sandboxes ready.

    Their wall clock runs from when they were made, so a pool wants a ``wall_s`` that allows for waiting.

    Args:
        provider: makes them; stays the caller's.
        spec: what all of them are.
        size: how many wait.

    Raises:
        InputError: the size is less than one.
    """

    def __init__(self, provider: SandboxProvider, spec: SandboxSpec, size: int) -> None:
        if size < 1:
            raise InputError(f"pool of {size}", where="size", expected="at least 1", mend="use the provider itself")
        self._provider = provider
        self._spec = spec
        self._size = size
        self._ready: deque[Sandbox] = deque()
        self._filling: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Sandboxes that are ready now."""
        return len(self._ready)

    async def __aenter__(self) -> WarmPool:
        await self._fill()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._filling is not None:
            self._filling.cancel()
            with contextlib.suppress(asyncio.CancelledError, InfrastructureError):
                await self._filling
        while self._ready:
            await self._ready.popleft().close()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Sandbox]:
        """One of them, or a new one when none waits; destroyed at the end of the block."""
        box = await self._take()
        self._refill()
        try:
            yield box
        finally:
            await asyncio.shield(box.close())

    async def _take(self) -> Sandbox:
        while self._ready:
            box = self._ready.popleft()
            try:
                await box.usage()  # one that died while waiting (its launcher was killed) is not handed out
            except InfrastructureError:
                await box.close()
                continue
            return box
        return await self._provider.start(self._spec)

    def _refill(self) -> None:
        if self._filling is None or self._filling.done():
            if self._filling is not None and not self._filling.cancelled():
                self._filling.exception()  # a failed refill shows when a sandbox is next wanted
            self._filling = asyncio.get_running_loop().create_task(self._fill())

    async def _fill(self) -> None:
        while len(self._ready) < self._size:
            self._ready.append(await self._provider.start(self._spec))
