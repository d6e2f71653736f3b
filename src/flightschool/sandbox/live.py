"""A live sandbox from the caller's side: speaks frames with the agent inside, over a socket of its own."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

from flightschool.errors import InfrastructureError, InputError, NotFoundError
from flightschool.sandbox.node import files
from flightschool.sandbox.node.frames import MOST_BODY_BYTES, FrameReader, pack
from flightschool.sandbox.protocols import Command, OnOutput
from flightschool.sandbox.records import DEFAULT_ENV, Enforcement, ExecResult, SandboxSpec, Stopped, Usage
from flightschool.sandbox.waiting import within
from flightschool.sandbox.written import Written, check_way_in, find_written, walk_written

__all__ = ["AgentSandbox"]

_CHUNK: Final = 1 << 18
_PIECE_BYTES: Final = 16 << 20
_GRACE_S: Final = 15.0
"""An agent that is silent this long after a command's time limit is taken for lost."""
_START_S: Final = 60.0
_MOST_FDS: Final = 4


class _Running:
    """One request under way."""

    def __init__(self, on_output: OnOutput | None = None, most: int = 0) -> None:
        self.answer: asyncio.Future[tuple[dict[str, Any], bytes]] = asyncio.get_running_loop().create_future()
        self.pieces: dict[int, list[bytes]] = {1: [], 2: []}
        self.on_output = on_output
        self.room = {1: most, 2: most}
        """Bytes of output still to be believed: an agent that sends more is no agent any more."""

    def take(self, stream: int, data: bytes) -> None:
        self.room[stream] -= len(data)
        if self.room[stream] < 0:
            raise ValueError("more output than was asked for")
        self.pieces[stream].append(data)
        if self.on_output is None:
            return
        try:
            self.on_output(stream, data)
        except Exception as error:  # noqa: BLE001 - the caller's own, and handed back to it
            self.on_output = None
            if not self.answer.done():
                self.answer.set_exception(error)


class AgentSandbox:
    """A ``Sandbox`` whose agent is at the other end of ``channel``.

    Args:
        spec: what it was opened with.
        channel: socket of the agent; owned.
        destroy: kills and reaps the sandbox from outside, whatever the agent does; called once.
        enforcement: how its limits are kept.
        oom_kills: how often the kernel has killed a process of it for memory, where it counts that.
    """

    def __init__(
        self,
        spec: SandboxSpec,
        channel: socket.socket,
        destroy: Callable[[], Awaitable[None]],
        enforcement: tuple[Enforcement, ...],
        oom_kills: Callable[[], int] | None = None,
    ) -> None:
        self._spec = spec
        self._channel = channel
        self._destroy = destroy
        self._enforcement = enforcement
        self._oom_kills = oom_kills
        self._reader = FrameReader()
        self._requests: dict[int, _Running] = {}
        self._next = 1
        self._root_fd: int | None = None
        self._lost = ""
        self._stopped = False
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._sending = asyncio.Lock()
        channel.setblocking(False)
        self._loop.add_reader(channel.fileno(), self._on_readable)

    # ------------------------------------------------------------------------------------ the protocol

    @property
    def spec(self) -> SandboxSpec:
        """What it was opened with."""
        return self._spec

    @property
    def enforcement(self) -> tuple[Enforcement, ...]:
        """Which limit is kept by what."""
        return self._enforcement

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
        """Run a command to its end (see ``protocols.Sandbox``)."""
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        _check_exec(argv, stdin, timeout_s, output_bytes)
        header = {
            "op": "exec",
            "argv": argv,
            "cwd": cwd or self._spec.workdir,
            "env": {**DEFAULT_ENV, **self._spec.env, **(env or {})},
            "timeout_s": timeout_s,
            "most": output_bytes,
            "sweep": sweep_on_timeout,
        }
        running = _Running(on_output, output_bytes)
        kills = self._oom_kills() if self._oom_kills else 0
        try:
            answer, _ = await self._ask(header, stdin, running, timeout_s + _GRACE_S)
        except InfrastructureError:
            raise
        except BaseException:  # cancelled, or failed in ``on_output``
            await asyncio.shield(self.stop())  # nobody waits for the command any more: it must not run on
            raise
        if self._oom_kills and answer["code"] == -signal.SIGKILL and self._oom_kills() > kills:
            answer = {**answer, "stopped": answer.get("stopped") or Stopped.MEMORY.value}  # the kernel was first
        return _result(answer, b"".join(running.pieces[1]), b"".join(running.pieces[2]))

    async def put(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Write a file (see ``protocols.Sandbox``)."""
        if not path.startswith("/") or "\0" in path or path.endswith("/"):
            raise InputError(
                f"path {path!r}", where="put", expected="an absolute path of a file", mend="write it in full"
            )
        pieces = [data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES)] or [b""]
        key = f"put{self._next}"
        for place, piece in enumerate(pieces):
            ends = {"first": place == 0, "last": place == len(pieces) - 1}
            answer, _ = await self._ask({"op": "put", "path": path, "mode": mode, "key": key, **ends}, piece)
            _raise_for(answer, path)

    async def get(self, path: str, *, most_bytes: int = 64 << 20) -> bytes:
        """Read a file (see ``protocols.Sandbox``): from outside where there is a descriptor of the root."""
        if self._closed:
            raise InputError(
                "the sandbox is closed", where=path, expected="an open sandbox", mend="read before closing"
            )
        if self._root_fd is None:
            answer, body = await self._ask({"op": "get", "path": path, "most": min(most_bytes, MOST_BODY_BYTES)})
            _raise_for(answer, path)
            return body
        try:
            if not self._spec.changes:
                return files.read_beneath(self._root_fd, path, most_bytes)
            found = find_written(self._root_fd, path, lambda fd, below: files.read_beneath(fd, below, most_bytes))
            if found is None:
                raise NotFoundError(
                    "the sandbox has not written it", where=path, expected="a written file", mend="check the path"
                )
            return found
        except OSError as error:
            _raise_for({"errno": error.errno, "text": str(error)}, path)
            raise

    async def written(self, *, most_bytes: int = 512 << 20, most_entries: int = 100_000) -> tuple[Written, ...]:
        """Stop the sandbox, then read all that was written in it, removals included.

        Args:
            most_bytes: of all files together.
            most_entries: number of paths.

        Raises:
            InputError: past a cap, or the sandbox was opened without ``changes``.
            InfrastructureError: its files cannot be reached.
        """
        await self.stop()
        if self._root_fd is None or not self._spec.changes:
            raise InputError(
                "what was written is not at hand", where="written", expected="a sandbox with changes", mend="ask for it"
            )
        check_way_in(self._root_fd)
        own = (self._spec.uid, self._spec.gid)
        try:
            found = walk_written(self._root_fd, own, most_bytes=most_bytes, most_entries=most_entries)
            return tuple(found)
        except OSError as error:
            raise InfrastructureError(
                f"reading the end state: {error}", where=str(error.filename), expected="readable layers", mend="retry"
            ) from error

    async def kill(self) -> int:
        """Kill every process but the agent."""
        answer, _ = await self._ask({"op": "sweep"})
        return int(answer["killed"])

    async def usage(self) -> Usage:
        """What it uses now."""
        answer, _ = await self._ask({"op": "usage"})
        return Usage(**{name: answer[name] for name in Usage.__struct_fields__})

    async def stop(self) -> None:
        """Kill and reap everything; the files stay readable through the descriptor of the root."""
        if self._stopped:
            return
        self._stopped = True
        self._hang_up("the sandbox was stopped")
        await self._destroy()

    async def close(self) -> None:
        """Stop it and let its files go."""
        self._closed = True
        try:
            await self.stop()
        finally:
            if self._root_fd is not None:
                os.close(self._root_fd)
                self._root_fd = None

    # ------------------------------------------------------------------------------------ underneath

    async def ready(self) -> None:
        """Wait until the agent serves.

        Raises:
            InfrastructureError: the set-up failed; the step and the kernel's answer are in the text.
        """
        try:
            await within(_START_S, self._ready)
        except TimeoutError:
            self._hang_up(f"the set-up did not end within {_START_S:.0f} s")
            raise self._error() from None

    @property
    def lost(self) -> str:
        """Why the agent is gone; empty while it is there."""
        return self._lost

    async def _ask(
        self, header: dict[str, Any], body: bytes = b"", running: _Running | None = None, patience_s: float = 60.0
    ) -> tuple[dict[str, Any], bytes]:
        if self._lost:
            raise self._error()
        running = running or _Running()
        number, self._next = self._next, self._next + 1
        self._requests[number] = running
        try:
            async with self._sending:
                await self._loop.sock_sendall(self._channel, pack({**header, "id": number}, body))
            return await within(patience_s, running.answer)
        except TimeoutError:
            self._hang_up(f"the agent did not answer within {patience_s:.0f} s")
            raise self._error() from None
        except OSError as error:
            self._hang_up(f"the agent hung up: {error}")
            raise self._error() from error
        finally:
            self._requests.pop(number, None)

    def _on_readable(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._channel, _CHUNK, _MOST_FDS, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError as error:
            self._hang_up(f"reading from the agent: {error}")
            return
        for fd in fds:
            if self._root_fd is None and not self._ready.done():
                self._root_fd = fd
            else:
                os.close(fd)
        if not data:
            self._hang_up("the sandbox's first process died")
            return
        try:
            for header, body in self._reader.feed(data):
                self._on_frame(header, body)
        except (ValueError, KeyError, TypeError) as error:
            self._hang_up(f"the agent sent what is no frame: {error}")

    def _on_frame(self, header: dict[str, Any], body: bytes) -> None:
        if "ready" in header:
            if not self._ready.done():
                self._ready.set_result(None)
        elif "failed" in header or "fatal" in header:
            self._hang_up(str(header.get("failed") or header.get("fatal")))
        elif (running := self._requests.get(header["id"])) is not None:
            if "out" in header:
                running.take(header["out"], body)
            elif not running.answer.done():
                running.answer.set_result((header, body))

    def _hang_up(self, why: str) -> None:
        if self._lost:
            return
        self._lost = why
        self._loop.remove_reader(self._channel.fileno())
        self._channel.close()
        if not self._ready.done():
            self._ready.set_exception(self._error())
            self._ready.exception()  # whoever waits gets it; a sandbox nobody waits for must not warn
        for running in self._requests.values():
            if not running.answer.done():
                running.answer.set_exception(self._error())

    def _error(self) -> InfrastructureError:
        return InfrastructureError(
            f"sandbox lost: {self._lost}", where="sandbox", expected="a live sandbox", mend="run the attempt again"
        )


def _check_exec(argv: list[str], stdin: bytes, timeout_s: float, output_bytes: int) -> None:
    if not argv or any("\0" in word for word in argv):
        raise InputError("no command", where="exec", expected="words without NUL", mend="name a program")
    if not 0 < timeout_s < 1e6:
        raise InputError(f"timeout_s is {timeout_s}", where="exec", expected="more than 0", mend="give seconds")
    if output_bytes < 0 or len(stdin) > MOST_BODY_BYTES:
        raise InputError(
            "too much standard input", where="exec", expected=f"at most {MOST_BODY_BYTES} bytes", mend="put a file"
        )


def _result(answer: dict[str, Any], stdout: bytes, stderr: bytes) -> ExecResult:
    code = answer["code"]
    number = -code if code is not None and code < 0 else None
    return ExecResult(
        exit_code=None if number else code,
        signal=number,
        stdout=stdout,
        stderr=stderr,
        stdout_truncated=1 in answer.get("cut", ()),
        stderr_truncated=2 in answer.get("cut", ()),
        cpu_s=float(answer["cpu_s"]),
        wall_s=float(answer["wall_s"]),
        stopped=Stopped(answer.get("stopped", "")),
        failed_to_start=str(answer.get("unstarted", "")),
    )


_REFUSED: Final = {
    errno.ELOOP: ("a symbolic link", "a regular file, no link on the way to it"),
    errno.EXDEV: ("outside what the sandbox wrote", "a file of the sandbox's own"),
    errno.EINVAL: ("not a regular file", "a regular file"),
    errno.EMLINK: ("a hard link", "a file with one name"),
    errno.EFBIG: ("too long", "a shorter file"),
    errno.ENOSPC: ("no room left in the sandbox", "less than its disk limit"),
}


def _raise_for(answer: dict[str, Any], path: str) -> None:
    number = answer.get("errno")
    if number is None:
        return
    if number in (errno.ENOENT, errno.ENOTDIR):
        raise NotFoundError("no such file in the sandbox", where=path, expected="a file", mend="check the path")
    what, expected = _REFUSED.get(number, (str(answer.get("text")), "a file that can be read or written"))
    raise InputError(f"refused: {what}", where=path, expected=expected, mend="look at what stands there")


@contextlib.asynccontextmanager
async def closing(box: AgentSandbox) -> AsyncIterator[AgentSandbox]:
    """The sandbox for a block; closed at its end even when the task is cancelled."""
    try:
        yield box
    finally:
        await asyncio.shield(box.close())
