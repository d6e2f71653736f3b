"""The orchestrator's side of the conversation: a trainer in its own process, or in this one. Imports no torch."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from pathlib import Path
from typing import Protocol

from flightschool import errors
from flightschool.errors import FlightschoolError, InfrastructureError
from flightschool.training.messages import Command, Failed, Reply, Stop, decode_reply, encode
from flightschool.training.server import Server
from flightschool.training.watch import AwakeClock

__all__ = [
    "HANG_SIGNAL",
    "Child",
    "InlineLink",
    "Launch",
    "ProcessLink",
    "StationLostError",
    "TrainerLink",
    "launcher",
    "trainer_command",
]

HANG_SIGNAL = signal.SIGUSR1
"""Makes a trainer write the stacks of its threads to its standard error."""
_STOP_S = 10.0
_LAST_WORDS_S = 0.2


class StationLostError(InfrastructureError):
    """A process of the run died or hung. What it did is on disk: another one can take its place."""


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
        return _raise_failure(self._server.handle(command), "the trainer in this process")

    async def close(self) -> None:
        """Nothing to end."""


class Child(Protocol):
    """A process that was started."""

    @property
    def pid(self) -> int:
        """Its id."""
        ...

    def poll(self) -> int | None:
        """Exit code, or None while it lives."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Await its end. Raises ``subprocess.TimeoutExpired``."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...

    def send_signal(self, sig: int) -> None:
        """Send it a signal."""
        ...


Launch = Callable[[int, Path], Child]
"""(inherited descriptor, file for its standard error) → the trainer's process."""


def launcher(command: Sequence[str], num_threads: int) -> Launch:
    """Starts a command line; descriptor and parent's id are appended, its libraries may use ``num_threads``."""

    def launch(descriptor: int, log: Path) -> Child:
        with log.open("ab") as stream:
            return subprocess.Popen(
                [*command, str(descriptor), str(os.getpid())],
                pass_fds=(descriptor,),
                env=os.environ | _environment(num_threads),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
            )

    return launch


class ProcessLink:
    """The trainer in a process of its own.

    Args:
        launch: starts it.
        log: file for its standard error.
        hang_s: a question that is not answered after so many seconds ends the trainer (not counting those in which this
            process was stopped, or its machine slept); None: it may take for ever.
    """

    def __init__(self, launch: Launch, *, log: Path, hang_s: float | None = None) -> None:
        ours, theirs = Pipe(duplex=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log, self._hang_s = log, hang_s
        self._process = launch(theirs.fileno(), log)
        theirs.close()  # else its death would never end our reading
        self._connection = ours

    @property
    def pid(self) -> int:
        """Process id of the trainer."""
        return self._process.pid

    async def ask(self, command: Command) -> Reply:
        """See ``TrainerLink``; other tasks of the event loop go on meanwhile.

        Raises:
            StationLostError: the trainer died, or did not answer in time and was ended.
        """
        answer = asyncio.get_running_loop().run_in_executor(None, self._exchange, encode(command))
        try:
            reply = await self._in_time(answer)
        except TimeoutError:
            raise await self._hung(type(command).__name__.lower(), answer) from None
        except (EOFError, OSError) as error:
            raise await self._death() from error
        return _raise_failure(decode_reply(reply), str(self._log))

    async def _in_time(self, answer: asyncio.Future[bytes]) -> bytes:
        """The answer; the time in which this process itself was stopped is not the trainer's.

        Raises:
            TimeoutError: it does not come.
        """
        if self._hang_s is None:
            return await answer
        clock, waited_s = AwakeClock(self._hang_s), 0.0
        while waited_s <= self._hang_s:
            if (await asyncio.wait({answer}, timeout=clock.beat_s))[0]:
                return answer.result()
            waited_s += clock.lap()
        raise TimeoutError

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
            self.kill()

    def kill(self) -> None:
        """End the trainer at once."""
        self._process.kill()
        self._process.wait()

    async def _death(self) -> StationLostError:
        code = await asyncio.to_thread(self._process.wait)
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return StationLostError(
            f"the trainer process {self.pid} died with exit code {code}" + (f": {lines[-1]}" if lines else ""),
            where=str(self._log),
            expected="a trainer that lives until the run ends",
            mend="see the log, mend the cause, and go on with --resume",
        )

    async def _hung(self, question: str, answer: asyncio.Future[bytes]) -> StationLostError:
        """Let the trainer write down where it is, then end it."""
        with contextlib.suppress(OSError):
            self._process.send_signal(HANG_SIGNAL)
        await asyncio.sleep(_LAST_WORDS_S)
        await asyncio.to_thread(self.kill)
        with contextlib.suppress(EOFError, OSError):
            await answer  # its end of the pair is gone: the reader wakes
        return StationLostError(
            f"the trainer process {self.pid} hangs: no answer to {question!r} after {self._hang_s:g} s",
            where=str(self._log),
            expected="an answer; the log holds the stack of the process as it was ended",
            mend="see where it stood; raise training.hang_s if it was at work",
        )


def _environment(num_threads: int) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(num_threads), "MKL_NUM_THREADS": str(num_threads)}


def _raise_failure(reply: Reply, where: str) -> Reply:
    """The reply, unless it is a failure. What a library raised in the trainer says nothing of place and mend."""
    if not isinstance(reply, Failed):
        return reply
    kind = getattr(errors, reply.kind, InfrastructureError)
    if not (isinstance(kind, type) and issubclass(kind, FlightschoolError)):
        kind = InfrastructureError
    raise kind(
        reply.what,
        where=reply.where or where,
        expected=reply.expected or "a trainer that carries out what it is told",
        mend=reply.mend or "see the place named, mend the cause, and go on with --resume",
    )
