"""A harness that is somebody's program: started once per attempt, given the gateway's address and a key.

The program is the harness that a team already has. It speaks to the model as to any OpenAI-compatible server, and its
tool calls reach the attempt's world through ``POST /tools/call``. It is told by its environment:

- ``OPENAI_BASE_URL``, ``OPENAI_API_KEY``: the model; the key is the attempt's and is void when the attempt is over
- ``FLIGHTSCHOOL_TASK``: the instruction, which also arrives on standard input (an instruction that the system will not
  carry in a variable arrives there only)
- ``FLIGHTSCHOOL_URL``: of the gateway: ``GET /task``, ``GET /tools``, ``POST /tools/call``, with the same key
- ``TMPDIR``: a folder of this attempt, removed after it

Who caused an end. A program that fails before the policy has spoken (not found, an import error, a wrong address)
failed by itself: ``harness_error``, an infra failure. After that the policy could have caused it: a crash is
``policy_error``, too much time ``time_limit``; both stay in the denominator and are graded on the end state. The clock
stands still while the program waits for a completion, so a busy engine cuts no one off.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from flightschool.errors import ConfigError
from flightschool.protocols import ModelEndpoint, ToolEndpoint
from flightschool.records import EndReason, Task
from flightschool.rollouts.gateway.gateway import Gateway
from flightschool.rollouts.gateway.seat import Seat
from flightschool.rollouts.gateway.server import Limits
from flightschool.rollouts.harness import EpisodeEndError

__all__ = ["ProgramHarness"]

_LONGEST_VARIABLE = 100_000
"""Bytes; Linux refuses a variable of more than 128 KiB."""
_TAIL_BYTES = 2000
"""Of the program's output, told when it fails."""
_MOST_READS = 16
_LEAST_PAUSE_S = 0.05
_LOOPBACK = "127.0.0.1"


class ProgramHarness:
    """Runs one program per attempt. Implements ``protocols.Harness``; attempts may run side by side.

    Args:
        command: program and arguments; no shell sees them.
        timeout_s: real seconds that the program may take, completions apart.
        max_completions: completions of one attempt, over all of its conversations.
        environment: variables that the program gets besides those of this process.
        directory: where it is started, and what a relative path of the program is taken from; here by default.
        limits: of the gateway.

    Raises:
        ConfigError: the command is empty or its program does not exist.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        timeout_s: float = 300.0,
        max_completions: int = 256,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        limits: Limits | None = None,
    ) -> None:
        _check_program(command, directory)
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._max_completions = max_completions
        self._environment = dict(environment or {})
        self._directory = directory
        self._limits = limits
        self._gateway: asyncio.Task[Gateway] | None = None
        self._num_attempts = 0

    async def run(self, task: Task, model: ModelEndpoint, tools: ToolEndpoint) -> EndReason:
        """Drive one attempt to its end.

        Raises:
            EpisodeEndError: the attempt ended otherwise than by the program's own good end.
        """
        seat = Seat(task, model, tools, max_completions=self._max_completions)
        async with self._shared_gateway() as gateway:
            with tempfile.TemporaryDirectory(prefix="flightschool-", ignore_cleanup_errors=True) as scratch:
                gateway.take(seat)
                try:
                    code, output = await self._fly(seat, gateway.url, Path(scratch))
                finally:
                    await gateway.leave(seat)
        return _end(seat, code, output.replace(seat.key, "…"), self._timeout_s)

    @contextlib.asynccontextmanager
    async def _shared_gateway(self) -> AsyncIterator[Gateway]:
        """One gateway for all attempts that run; the first opens it, the last closes it."""
        self._num_attempts += 1
        if self._gateway is None:
            self._gateway = asyncio.ensure_future(Gateway(self._limits).__aenter__())
        opening = self._gateway
        try:
            try:
                gateway = await asyncio.shield(opening)
            except OSError as error:
                raise EpisodeEndError(EndReason.HARNESS_ERROR, f"no gateway: {error}") from error
            yield gateway
        finally:
            self._num_attempts -= 1
            if self._num_attempts == 0:
                self._gateway = None
                with contextlib.suppress(OSError):
                    await (await opening).close()

    async def _fly(self, seat: Seat, url: str, scratch: Path) -> tuple[int | None, str]:
        """Exit code (None: cut off) and the end of what the program wrote."""
        instruction = scratch / "instruction"
        instruction.write_bytes(seat.task.instruction.encode("utf-8", "replace"))
        (scratch / "tmp").mkdir()
        with instruction.open("rb") as stdin, _Tail() as tail:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=stdin,
                    stdout=tail.write_end,
                    stderr=tail.write_end,
                    cwd=self._directory,
                    env=self._variables(seat, url, scratch / "tmp"),
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                raise EpisodeEndError(EndReason.HARNESS_ERROR, f"the program did not start: {error}") from error
            tail.close_write_end()
            try:
                code = await self._wait(process, seat)
            finally:
                # its children too: nothing of the program may act on the world when it is read and graded
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            return code, tail.text()

    async def _wait(self, process: asyncio.subprocess.Process, seat: Seat) -> int | None:
        """Until the program exits, its time is up, or the attempt failed under it."""
        started = time.monotonic()
        exited = asyncio.ensure_future(process.wait())
        failed = asyncio.ensure_future(seat.failed.wait())
        try:
            while True:
                left_s = self._timeout_s - (time.monotonic() - started - seat.waited_s)
                if left_s <= 0.0:
                    return None
                pause_s = max(left_s, _LEAST_PAUSE_S)  # the clock may stand still, however little is left
                await asyncio.wait((exited, failed), timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                if exited.done():
                    return exited.result()
                if failed.done():
                    return None
        finally:
            exited.cancel()
            failed.cancel()
            await asyncio.gather(exited, failed, return_exceptions=True)

    def _variables(self, seat: Seat, url: str, scratch: Path) -> dict[str, str]:
        around = os.environ | self._environment
        direct = ",".join(filter(None, (around.get("NO_PROXY") or around.get("no_proxy", ""), _LOOPBACK)))
        told = {
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_BASE": f"{url}/v1",  # older clients
            "OPENAI_API_KEY": seat.key,
            "FLIGHTSCHOOL_URL": url,
            "NO_PROXY": direct,  # a proxy does not reach this machine's own loopback
            "no_proxy": direct,
            "TMPDIR": str(scratch),
        }
        variables = {name: value for name, value in around.items() if name != "FLIGHTSCHOOL_TASK"} | told
        instruction = seat.task.instruction
        if "\0" not in instruction and len(instruction.encode("utf-8", "replace")) <= _LONGEST_VARIABLE:
            variables["FLIGHTSCHOOL_TASK"] = instruction
        return variables


def _check_program(command: Sequence[str], directory: Path | None) -> None:
    """Raise unless the folder and the program are there. What the program opens itself is its own affair."""
    if directory is not None and not directory.is_dir():
        raise ConfigError(
            "the program's folder is not there",
            where="harness.directory",
            expected=f"a folder, got {directory}",
            mend="make it, or leave the key out: the folder of the configuration file is taken then",
        )
    name = command[0] if command else ""
    if os.sep in name and directory is not None:  # as the system takes it once the program's folder is entered
        name = str(directory / name)
    if not name or shutil.which(name) is None:
        raise ConfigError(
            f"no program {command[0]!r}" if command else "no command",
            where="harness.command",
            expected="an executable file on the path, then its arguments",
            mend=f"install it, or name it by its path, from {directory or Path.cwd()}",
        )


def _end(seat: Seat, code: int | None, output: str, timeout_s: float) -> EndReason:
    """How the attempt ended, from what the seat saw and how the program ended."""
    if seat.failed.is_set() and seat.end is not None:
        raise seat.end
    if seat.declined:
        return EndReason.DECLINED
    told = f": {output}" if output else ""
    how = f"cut off after {timeout_s:g} s" if code is None else f"exited with {code}"
    if seat.num_completions == 0 and seat.end is None:
        hint = "" if code else "; does it read OPENAI_BASE_URL and OPENAI_API_KEY?"
        raise EpisodeEndError(
            EndReason.HARNESS_ERROR, f"the program {how} before the model completed anything{hint}{told}"
        )
    if code is None:
        raise EpisodeEndError(EndReason.TIME_LIMIT, f"the program was {how}{told}")
    if code == 0:
        return EndReason.FINISHED
    if seat.end is not None:
        raise EpisodeEndError(seat.end.reason, f"{seat.end.detail}; then the program {how}{told}")
    raise EpisodeEndError(EndReason.POLICY_ERROR, f"the program {how}{told}")


class _Tail:
    """A pipe of which the last bytes are kept. Not asyncio's own: that waits for grandchildren which hold it open."""

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._reader: BinaryIO = os.fdopen(self._read_end, "rb", buffering=0)
        self._kept = b""
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> _Tail:
        self._loop.add_reader(self._read_end, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._read_end)
        self._reader.close()
        self.close_write_end()

    def close_write_end(self) -> None:
        """Leave it to the program alone."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def text(self) -> str:
        """The last of what was written."""
        for _ in range(_MOST_READS):  # what has left the process group may go on writing
            if not self._take():
                break
        return self._kept.decode("utf-8", "replace").strip()

    def _take(self) -> bool:
        try:
            data = self._reader.read(1 << 16)
        except OSError:
            data = None
        if data == b"":
            self._loop.remove_reader(self._read_end)  # closed by all who wrote: nothing more comes
        self._kept = (self._kept + (data or b""))[-_TAIL_BYTES:]
        return bool(data)
