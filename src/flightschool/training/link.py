"""The orchestrator's side of the conversation: a trainer in its own process, or in this one. Imports no torch."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing import Pipe
from pathlib import Path
from typing import Protocol

from flightschool import errors
from flightschool.errors import FlightschoolError, InfrastructureError
from flightschool.training.messages import Command, Failed, Reply, Stop, decode_reply, encode
from flightschool.training.server import Server

__all__ = ["InlineLink", "ProcessLink", "TrainerLink", "trainer_command"]

_STOP_S = 10.0


class TrainerLink(Protocol):
    """Question and answer with a trainer."""

    async def ask(self, command: Command) -> Reply:
        """Send one command, await its reply. Raises what the trainer reports, or that it died."""
        ...

    async def close(self) -> None:
        """End the trainer."""
        ...


def trainer_command() -> list[str]:
    """Command line of the real trainer process, descriptor and parent left to be appended."""
    return [sys.executable, "-m", "flightschool.training.trainer_process"]


class InlineLink:
    """The trainer in this process: everything waits while it works. For ``sync`` mode only."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def ask(self, command: Command) -> Reply:
        """Carry the command out at once."""
        return _raise_failure(self._server.handle(command))

    async def close(self) -> None:
        """Nothing to end."""


class ProcessLink:
    """The trainer in a process of its own.

    Args:
        command: its command line; descriptor and parent's id are appended.
        num_threads: threads that its libraries may use.
        log: file for its standard error.
    """

    def __init__(self, command: Sequence[str], *, num_threads: int, log: Path) -> None:
        ours, theirs = Pipe(duplex=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(os.getpid())],
                pass_fds=(theirs.fileno(),),
                env=os.environ | _environment(num_threads),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
            )
        theirs.close()  # else its death would never end our reading
        self._connection = ours

    @property
    def pid(self) -> int:
        """Process id of the trainer."""
        return self._process.pid

    async def ask(self, command: Command) -> Reply:
        """See ``TrainerLink``; other tasks of the event loop go on meanwhile."""
        data = encode(command)
        try:
            reply = await asyncio.to_thread(self._exchange, data)
        except (EOFError, OSError) as error:
            raise await self._death() from error
        return _raise_failure(decode_reply(reply))

    def _exchange(self, data: bytes) -> bytes:
        self._connection.send_bytes(data)
        return self._connection.recv_bytes()

    async def close(self) -> None:
        """Ask the trainer to stop; end it if it does not."""
        if self._process.poll() is None:
            with contextlib.suppress(OSError):  # it may end by itself meanwhile
                self._connection.send_bytes(encode(Stop()))
        self._connection.close()
        try:
            await asyncio.to_thread(self._process.wait, _STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """End the trainer at once."""
        self._process.kill()
        self._process.wait()

    async def _death(self) -> InfrastructureError:
        code = await asyncio.to_thread(self._process.wait)
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return InfrastructureError(
            f"the trainer process {self.pid} died with exit code {code}" + (f": {lines[-1]}" if lines else ""),
            where=str(self._log),
            expected="a trainer that lives until the run ends",
            mend="see the log, mend the cause, and go on with --resume",
        )


def _environment(num_threads: int) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(num_threads), "MKL_NUM_THREADS": str(num_threads)}


def _raise_failure(reply: Reply) -> Reply:
    if not isinstance(reply, Failed):
        return reply
    kind = getattr(errors, reply.kind, InfrastructureError)
    if not (isinstance(kind, type) and issubclass(kind, FlightschoolError)):
        kind = InfrastructureError
    raise kind(reply.what, where=reply.where, expected=reply.expected, mend=reply.mend)
