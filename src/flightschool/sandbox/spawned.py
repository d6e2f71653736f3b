"""What bubblewrap and Docker share: a program makes the walls, and our agent is the program it runs inside them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from flightschool.errors import InfrastructureError, InputError
from flightschool.sandbox.launching import plan_of
from flightschool.sandbox.live import AgentSandbox, closing
from flightschool.sandbox.records import Enforcement, Mechanism, SandboxSpec

__all__ = ["SpawnedProvider", "Spawning"]

Spawning = tuple["subprocess.Popen[bytes]", Callable[[], Awaitable[None]]]
"""A started program, and what kills its sandbox from outside."""


class SpawnedProvider(ABC):
    """A provider whose sandboxes are children of this process; each subclass says how one is started."""

    name: str
    mend: str
    harvests_after_stop: bool

    def __init__(self) -> None:
        self._boxes: set[AgentSandbox] = set()

    @abstractmethod
    def _spawn(self, spec: SandboxSpec, channel: socket.socket) -> Spawning:
        """Start the program with the agent at the other end of ``channel``. Raises ``InputError``, ``OSError``."""

    @abstractmethod
    def _enforcement(self, spec: SandboxSpec) -> tuple[Enforcement, ...]:
        """Which limit is kept by what."""

    @contextlib.asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[AgentSandbox]:
        """A fresh sandbox for a block (see ``protocols.SandboxProvider``)."""
        async with closing(await self.start(spec)) as box:
            yield box

    async def start(self, spec: SandboxSpec) -> AgentSandbox:
        """A fresh sandbox (see ``protocols.SandboxProvider``)."""
        mine, theirs = socket.socketpair()
        try:
            process, kill = self._spawn(spec, theirs)
        except OSError as error:
            mine.close()
            raise InfrastructureError(
                f"{self.name} cannot be started: {error}", where=self.name, expected="a free pid", mend="free some"
            ) from error
        except BaseException:
            mine.close()
            raise
        finally:
            theirs.close()
        plan = json.dumps(plan_of(spec, "spawned")).encode()
        mine.sendall(len(plan).to_bytes(8, "little") + plan)
        mine_again: list[AgentSandbox] = []

        async def destroy() -> None:
            self._boxes.difference_update(mine_again)
            await _end(process, kill)

        box = AgentSandbox(spec, mine, destroy, self._enforcement(spec))
        mine_again.append(box)
        self._boxes.add(box)
        try:
            await box.ready()
        except InfrastructureError as error:
            await box.close()
            said = process.stderr.read().decode(errors="replace").strip() if process.stderr else ""
            raise InfrastructureError(
                f"{self.name} made no sandbox: {said or error.what}",
                where=self.name,
                expected="a sandbox",
                mend=self.mend,
            ) from error
        finally:
            if process.stderr is not None:
                process.stderr.close()
        return box

    async def try_out(self) -> Mechanism:
        """Make one sandbox and run ``true`` in it."""
        try:
            async with self.open(SandboxSpec()) as box:
                result = await box.exec(["true"], timeout_s=20)
        except (InfrastructureError, InputError) as error:
            return Mechanism(name=self.name, works=False, found=error.what, mend=error.mend or self.mend)
        works = result.ok
        return Mechanism(
            name=self.name, works=works, found="a sandbox ran `true`" if works else f"`true` gave {result}"
        )

    async def aclose(self) -> None:
        """Close every sandbox."""
        for box in list(self._boxes):
            await box.close()


async def _end(process: subprocess.Popen[Any], kill: Callable[[], Awaitable[None]]) -> None:
    """The agent has been hung up on and ends by itself; where it does not, it is killed."""
    try:
        await asyncio.to_thread(process.wait, 2)
    except subprocess.TimeoutExpired:
        await kill()
        try:
            await asyncio.to_thread(process.wait, 10)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)
