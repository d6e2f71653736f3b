"""The two protocols of this room. A remote provider is one file that keeps them and passes the contract suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from flightschool.sandbox.records import Enforcement, ExecResult, Mechanism, SandboxSpec, Usage

__all__ = ["Command", "OnOutput", "Sandbox", "SandboxProvider"]

Command: TypeAlias = str | Sequence[str]
"""Text for ``sh -c``, or a list of words that no shell sees."""
OnOutput: TypeAlias = Callable[[int, bytes], None]
"""Called with 1 (stdout) or 2 (stderr) and bytes as they come."""


class Sandbox(Protocol):
    """A live sandbox: one attempt's, never reused. Commands may run side by side."""

    @property
    def spec(self) -> SandboxSpec:
        """What it was opened with."""
        ...

    @property
    def enforcement(self) -> tuple[Enforcement, ...]:
        """Which limit is kept by what."""
        ...

    async def exec(
        self,
        command: Command,
        *,
        stdin: bytes = b"",
        timeout_s: float = 60.0,
        output_bytes: int = 1 << 20,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        sweep_on_timeout: bool = False,
        on_output: OnOutput | None = None,
    ) -> ExecResult:
        """Run a command to its end.

        On time-out its session and all its descendants are killed; with ``sweep_on_timeout`` everything else too.

        Raises:
            InfrastructureError: the sandbox is lost.
            InputError: an argument cannot be used.
        """
        ...

    async def put(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Write a file, folders above it included, with the rights of the sandbox's own user.

        Raises:
            InputError: no room, no permission, or something in the way.
        """
        ...

    async def get(self, path: str, *, most_bytes: int = 64 << 20) -> bytes:
        """Read a regular file that the sandbox may have written. No link is followed, on the way or at the end.

        Raises:
            NotFoundError: there is no such file.
            InputError: it is a link, a device, a FIFO, too long, or outside.
        """
        ...

    async def kill(self) -> int:
        """Kill every process but the agent; how many there were."""
        ...

    async def usage(self) -> Usage:
        """What it uses now."""
        ...

    async def stop(self) -> None:
        """End the sandbox: all processes dead and reaped. What it wrote stays readable until ``close``, where
        the provider can (``SandboxProvider.harvests_after_stop``).
        """
        ...

    async def close(self) -> None:
        """Stop it and let its files go. May be called twice."""
        ...


class SandboxProvider(Protocol):
    """Makes sandboxes by one mechanism."""

    @property
    def name(self) -> str:
        """Name of the mechanism."""
        ...

    @property
    def harvests_after_stop(self) -> bool:
        """Whether ``get`` works on a stopped sandbox."""
        ...

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """A fresh sandbox; destroyed when the block is left, however it is left.

        Raises:
            InfrastructureError: it cannot be made now: no pids, no memory, launcher dead twice.
            InputError: the spec asks for what this mechanism cannot give.
        """
        ...

    async def start(self, spec: SandboxSpec) -> Sandbox:
        """The same without a block: the caller closes it."""
        ...

    async def try_out(self) -> Mechanism:
        """Make one sandbox and run ``true`` in it: whether the mechanism works here, and why not."""
        ...

    async def aclose(self) -> None:
        """Close every sandbox of this provider and end its processes."""
        ...
