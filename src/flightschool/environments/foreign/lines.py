"""A program that is spoken to in lines of JSON over its standard input and output.

One question at a time, each with an id that its answer must bear. A program that is late, says something else or ends
is killed with its process group: nothing that it may still say is ever read as the answer to a later question.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO

import msgspec

from flightschool.environments.foreign.world import LostSessionError
from flightschool.errors import InputError
from flightschool.records import Json

__all__ = ["LineProcess"]

_CHUNK = 1 << 16
_MOST_LINE = 64 << 20
_TOLD = 600
_END_S = 2.0


class LineProcess:
    """A running program. Safe to share by threads; questions are asked one after the other.

    Args:
        command: words; no shell sees them.
        environment: variables added to this process's own.

    Raises:
        InputError: the program cannot be started.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.command = tuple(command)
        self.turn = threading.RLock()
        """Held by whoever asks; hold it to ask several questions in a row."""
        self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the program
        try:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        except OSError as error:
            self._complaints.close()
            raise InputError(
                f"the program cannot be started: {error.strerror or error}",
                where=" ".join(self.command),
                expected="a program",
                mend="check the command; words are not given to a shell",
            ) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in = self._process.stdin.fileno()
        self._out = self._process.stdout.fileno()
        os.set_blocking(self._out, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)
        self._rest = bytearray()
        self._lines: deque[bytes] = deque()
        self._closed = False

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self._closed and self._process.poll() is None

    def tell(self, message: Json) -> None:
        """Say something that is not answered. Raises ``LostSessionError``."""
        with self.turn:
            if not self.alive:
                raise self._lost("it has ended")
            line = msgspec.json.encode(message) + b"\n"
            try:
                while line:
                    line = line[os.write(self._in, line) :]
            except OSError as error:
                raise self._lost(f"it reads no more: {error}") from error

    def hear(self, timeout_s: float) -> Json:
        """The next line as JSON.

        Raises:
            LostSessionError: none came in time, it ended, or what it said is no JSON. The program is killed with that.
        """
        with self.turn:
            deadline = time.monotonic() + timeout_s
            while not self._lines:
                self._read(deadline)
            line = self._lines.popleft()
        try:
            return msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._lost(f"it says what is no JSON: {line[:100].decode('utf-8', 'replace')!r}") from None

    def close(self) -> None:
        """End it with all that it started; never raises."""
        with self.turn:
            if self._closed:
                return
            self._closed = True
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            self._selector.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S if self._process.poll() is None else 0)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._complaints.close()

    # -------------------------------------------------------------------------------------------- parts

    def _read(self, deadline: float) -> None:
        left_s = deadline - time.monotonic()
        if self._closed:
            raise self._lost("it was ended")
        if left_s <= 0 or not self._selector.select(left_s):
            raise self._lost("no answer in time")
        try:
            data = os.read(self._out, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            raise self._lost("it ended")
        self._rest += data
        if len(self._rest) > _MOST_LINE:
            raise self._lost("a line without end")
        *whole, rest = bytes(self._rest).split(b"\n") if b"\n" in data else (bytes(self._rest),)
        if b"\n" in data:
            self._rest = bytearray(rest)
            self._lines.extend(line for line in whole if line.strip())

    def _lost(self, what: str) -> LostSessionError:
        told = ""
        if not self._closed:
            with contextlib.suppress(OSError, ValueError):
                end = self._complaints.seek(0, os.SEEK_END)
                self._complaints.seek(max(0, end - _TOLD))
                told = self._complaints.read().decode("utf-8", "replace").strip()
        self.close()
        return LostSessionError(
            f"a program of another ecosystem is lost: {what}" + (f"; it complained: {told[-_TOLD:]}" if told else ""),
            where=" ".join(self.command)[:200],
            expected="an answer in a line of JSON",
            mend="run the command by hand to see what it needs",
        )
