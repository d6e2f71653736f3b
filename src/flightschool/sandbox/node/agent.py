"""The init of a sandbox: runs commands, caps their output, kills on excess, reaps everything. One thread, one loop.

Wakes on: a frame of the caller, output of a command, the death of a child, its own clock. The caller's end of the
socket closing means that no one is left to work for: the agent exits, and the kernel ends the whole pid namespace.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from typing import Any, Final

from flightschool.sandbox.node import commands, files
from flightschool.sandbox.node.commands import Command
from flightschool.sandbox.node.frames import FrameReader, pack
from flightschool.sandbox.node.plan import Plan
from flightschool.sandbox.node.watcher import Usage, others, pause_s, processes_of, usage

__all__ = ["serve"]

_CHUNK: Final = 1 << 16
_DYING_S: Final = 5.0
"""How long killed processes may take: one with much memory needs a while to give it back."""


def serve(plan: Plan, channel: socket.socket) -> None:
    """Serve until the caller hangs up."""
    agent = _Agent(plan, channel)
    while agent.turn():
        pass


class _Agent:
    def __init__(self, plan: Plan, channel: socket.socket) -> None:
        self._plan = plan
        self._channel = channel
        self._reader = FrameReader()
        self._commands: dict[int, Command] = {}
        self._selector = selectors.DefaultSelector()
        self._ends_at = time.monotonic() + plan.wall_s
        self._over = ""
        """The whole sandbox's limit that was passed: no command starts any more."""
        self._watch_at = 0.0
        self._kernel_kills = _kernel_kills()
        wake, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(channel, selectors.EVENT_READ, self._on_frames)
        self._selector.register(wake, selectors.EVENT_READ, self._on_wake)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # an init ignores what it has no handler for
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def turn(self) -> bool:
        """Handle what is due; False when the caller is gone."""
        for key, _ in self._selector.select(self._patience_s()):
            if key.fd in self._selector.get_map() and key.data(key.fd) is False:
                return False
        self._reap()
        self._look_at_clock()
        return True

    def _patience_s(self) -> float | None:
        now = time.monotonic()
        times = [command.deadline for command in self._commands.values()]
        if self._watch_at:
            times.append(self._watch_at)
        if not self._over and self._plan.wall_s:
            times.append(self._ends_at)
        return max(0.0, min(times) - now) if times else None

    # ------------------------------------------------------------------------------------ the caller

    def _on_frames(self, _: int) -> bool:
        data = self._channel.recv(_CHUNK)
        if not data:
            return False
        for header, body in self._reader.feed(data):
            try:
                self._handle(header, body)
            except OSError as error:
                self._send({"id": header.get("id"), "errno": error.errno or 0, "text": str(error)})
        return True

    def _handle(self, header: dict[str, Any], body: bytes) -> None:
        match header["op"]:
            case "exec":
                self._start(header, body)
            case "put":
                files.put(header, body)
                self._send({"id": header["id"]})
            case "get":
                self._send(
                    {"id": header["id"]},
                    files.get(header["path"], header["most"], ("/tmp", "/home/user", self._plan.workdir)),
                )
            case "sweep":
                self._send({"id": header["id"], "killed": self._kill_all("")})
            case "usage":
                used = usage(self._plan)
                fields = {"processes": used.processes, "memory_bytes": used.memory_bytes, "cpu_s": used.cpu_s}
                self._send({"id": header["id"], **fields})

    def _send(self, header: dict[str, Any], body: bytes = b"") -> None:
        self._channel.sendall(pack(header, body))

    # ------------------------------------------------------------------------------------ commands

    def _start(self, header: dict[str, Any], stdin: bytes) -> None:
        if self._over:
            self._send({"id": header["id"], "done": True, "code": None, "stopped": self._over, "cpu_s": 0, "wall_s": 0})
            return
        try:
            command = commands.start(header, stdin, self._plan)
        except (OSError, ValueError) as error:
            code = 127 if isinstance(error, FileNotFoundError) else 126
            self._send(
                {"id": header["id"], "done": True, "code": code, "unstarted": str(error), "cpu_s": 0, "wall_s": 0}
            )
            return
        self._commands[command.pid] = command
        for stream, fd in command.outputs.items():
            self._selector.register(fd, selectors.EVENT_READ, lambda fd, s=stream, c=command: self._on_output(c, s, fd))
        if command.stdin_fd is not None:
            self._selector.register(
                command.stdin_fd, selectors.EVENT_WRITE, lambda fd, c=command: self._on_stdin(c, fd)
            )
        self._watch_at = self._watch_at or time.monotonic() + pause_s(self._plan, Usage(0, 0, 0.0))

    def _on_output(self, command: Command, stream: int, fd: int) -> None:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._shut(fd)
            del command.outputs[stream]
            return
        kept = command.take(stream, data)
        if kept:
            self._send({"id": command.id, "out": stream}, kept)

    def _on_stdin(self, command: Command, fd: int) -> None:
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            written = os.write(fd, command.stdin[:_CHUNK])
            command.stdin = command.stdin[written:]
            if command.stdin:
                return
        self._shut(fd)
        command.stdin_fd = None

    def _shut(self, fd: int) -> None:
        self._selector.unregister(fd)
        os.close(fd)

    def _on_wake(self, fd: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(fd, _CHUNK)

    def _reap(self) -> None:
        while True:
            try:
                pid, status, rusage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            command = self._commands.pop(pid, None)
            if command is not None:
                self._finish(command, status, rusage.ru_utime + rusage.ru_stime)

    def _finish(self, command: Command, status: int, cpu_s: float) -> None:
        """The command is dead: hand on what stands in its pipes. Daemons that hold them longer are not waited for."""
        for stream, fd in list(command.outputs.items()):
            most_left = 2 << 20
            while stream in command.outputs and most_left > 0:
                before = command.seen[stream]
                self._on_output(command, stream, fd)
                if command.seen[stream] == before:
                    break
                most_left -= command.seen[stream] - before
            if stream in command.outputs:
                self._shut(fd)
        if command.stdin_fd is not None:
            self._shut(command.stdin_fd)
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL and _kernel_kills() > self._kernel_kills:
            self._kernel_kills = _kernel_kills()
            command.stopped = command.stopped or "memory"  # the kernel was first
        done = {"code": code, "stopped": command.stopped, "cpu_s": cpu_s}
        cut = [stream for stream in (1, 2) if command.seen[stream] > command.most]
        wall_s = time.monotonic() - command.started
        self._send({"id": command.id, "done": True, **done, "cut": cut, "seen": command.seen, "wall_s": wall_s})

    # ------------------------------------------------------------------------------------ limits

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        for command in list(self._commands.values()):
            if now >= command.deadline:
                self._stop(command)
        if self._plan.wall_s and now >= self._ends_at and not self._over:
            self._over = "wall"
            self._kill_all("wall")
        if self._watch_at and now >= self._watch_at:
            self._watch()

    def _stop(self, command: Command) -> None:
        command.stopped = command.stopped or "timeout"
        command.deadline = float("inf")
        if command.sweep:
            self._kill_all("")
            return
        for _ in range(100):  # a group that forks while it is being killed needs another pass
            alive = processes_of(command.pid, command.pid)
            for pid in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._reap_orphans(command.pid)
            if not set(alive) - {command.pid}:
                return

    def _reap_orphans(self, spare: int) -> None:
        """Collect dead processes other than commands, whose status is still to be reported."""
        for pid in processes_of(spare, spare):
            if pid not in self._commands:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def _kill_all(self, why: str) -> int:
        """Kill every process but this one, in one call that a fork bomb cannot outrun."""
        for command in self._commands.values():
            command.stopped = command.stopped or why
        count = len(others())
        if self._plan.has("pid"):  # without a pid namespace "every process" would be the host's
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            self._bury()
        return count

    def _bury(self) -> None:
        """Wait until none is left: who asks next shall find them gone, and their memory free."""
        patience = time.monotonic() + _DYING_S
        while time.monotonic() < patience:
            self._reap()
            if usage(self._plan).processes == 0:
                return
            time.sleep(0.001)

    def _watch(self) -> None:
        used = usage(self._plan)
        if used.memory_bytes > self._plan.memory_bytes and self._plan.has("memory"):
            self._kill_all("memory")
        if used.cpu_s > self._plan.cpu_s:
            self._over = self._over or "cpu"
            self._kill_all("cpu")
        self._watch_at = time.monotonic() + pause_s(self._plan, used) if used.processes else 0.0


def _kernel_kills() -> int:
    """How often the kernel killed a process here for memory, where a container shows its control group; else 0."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:  # noqa: PTH123 - hot
            return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    return 0


def main(channel: socket.socket, plan: Plan) -> None:
    """Serve, and end this process whatever happens."""
    try:
        serve(plan, channel)
    except BaseException as error:  # noqa: BLE001 - the last frame of this process: nothing can catch it later
        with contextlib.suppress(OSError):
            channel.sendall(pack({"fatal": f"{type(error).__name__}: {error}"}))
    finally:
        os._exit(0)
