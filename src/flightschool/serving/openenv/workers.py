"""Many processes behind one port.

The parent accepts connections and hands each to the process that holds the fewest; it does nothing else, so it costs
next to nothing. A process that dies takes its sessions with it (clients see their connection end, never a wrong
answer) and is replaced. Processes end when the parent does, however it ended: they read the end of their channel.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from flightschool.serving.episode import Offer
from flightschool.serving.openenv.passing import Passage, Tally
from flightschool.serving.openenv.server import OpenEnvServer, ServerSettings
from flightschool.serving.tasks import TaskDesk

__all__ = ["listen", "serve_forever"]

_BACKLOG = 1024
_LEAST_LIFE_S = 1.0
"""A process that lived shorter is replaced only after this time: what cannot start is not started in a rush."""
_CLOSED = b"-"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ``OSError`` when the address is taken or not of this machine."""
    listener = socket.create_server((host, port), backlog=_BACKLOG)
    listener.setblocking(False)
    return listener


def serve_forever(
    listener: socket.socket,
    offer: Offer,
    desk: TaskDesk,
    settings: ServerSettings,
    *,
    num_processes: int,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        listener: what clients connect to; closed at the end.
        ready: called once connections are accepted.
    """
    crew = _Crew(listener, offer, desk, settings, num_processes)
    stopping: list[int] = []
    before = {number: signal.signal(number, lambda n, _: stopping.append(n)) for number in _ENDING}
    try:
        crew.start()
        ready()
        while not stopping:
            crew.turn(0.25)
    finally:
        crew.stop()
        listener.close()
        for number, handler in before.items():
            signal.signal(number, handler)


_ENDING = (signal.SIGINT, signal.SIGTERM)


@dataclass
class _Member:
    """One process as the parent knows it."""

    pid: int
    channel: socket.socket
    started: float
    num_connections: int = 0


class _Crew:
    """The processes of one server, as their parent keeps them."""

    def __init__(
        self, listener: socket.socket, offer: Offer, desk: TaskDesk, settings: ServerSettings, num: int
    ) -> None:
        self._listener = listener
        self._offer = offer
        self._desk = desk
        self._settings = settings
        # made once and inherited: a process that replaces another is found at the same port
        self._doors = [listen("127.0.0.1", 0) for _ in range(num)] if num > 1 else []
        self._tally = Tally(num)
        self._num = num
        self._members: dict[int, _Member] = {}
        self._selector = selectors.DefaultSelector()

    def start(self) -> None:
        for index in range(self._num):
            self._hire(index)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def turn(self, wait_s: float) -> None:
        """Hand on what has come, hear what has ended, replace who has died."""
        for key, _ in self._selector.select(wait_s):
            if key.fileobj is self._listener:
                self._accept()
            else:
                self._hear(int(key.data))

    def stop(self) -> None:
        for member in self._members.values():
            member.channel.close()
        deadline = time.monotonic() + 5
        for member in self._members.values():
            while os.waitpid(member.pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > deadline:
                    os.kill(member.pid, signal.SIGKILL)
                    os.waitpid(member.pid, 0)
                    break
                time.sleep(0.01)
        self._members.clear()
        self._selector.close()
        for door in self._doors:
            door.close()

    def _hire(self, index: int) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        pid = os.fork()
        if pid == 0:
            _live(self._run_member, index, theirs, [ours, *(m.channel for m in self._members.values())])
        theirs.close()
        ours.setblocking(False)
        self._members[index] = _Member(pid, ours, time.monotonic())
        self._selector.register(ours, selectors.EVENT_READ, index)

    def _run_member(self, index: int, channel: socket.socket) -> None:
        passage = Passage(index, [door.getsockname()[1] for door in self._doors], self._tally)
        door = self._doors[index] if self._doors else None
        self._listener.close()
        asyncio.run(_member(OpenEnvServer(self._offer, self._desk, self._settings, passage), channel, door))

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # out of descriptors, or the client was gone before it was greeted
                time.sleep(0.01)
                return
            with connection:
                self._hand_on(connection)

    def _hand_on(self, connection: socket.socket) -> None:
        for member in sorted(self._members.values(), key=lambda one: one.num_connections):
            try:
                socket.send_fds(member.channel, [b"+"], [connection.fileno()])
            except OSError:  # dead or full: the next one
                continue
            member.num_connections += 1
            return

    def _hear(self, index: int) -> None:
        member = self._members[index]
        try:
            told = member.channel.recv(4096)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            told = b""
        if told:
            member.num_connections -= len(told)
            return
        self._selector.unregister(member.channel)
        member.channel.close()
        os.waitpid(member.pid, 0)
        self._tally.set(index, 0)
        time.sleep(max(0.0, _LEAST_LIFE_S - (time.monotonic() - member.started)))
        self._hire(index)


def _live(
    run: Callable[[int, socket.socket], None], index: int, channel: socket.socket, not_mine: list[socket.socket]
) -> None:
    """The life of a process; never returns."""
    code = 1
    try:
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)  # the parent decides when this process ends
        for other in not_mine:
            other.close()
        run(index, channel)
        code = 0
    except BaseException as error:  # noqa: BLE001  the end of a process: it is told, and the parent starts another
        sys.stderr.write(f"a server process ended: {type(error).__name__}: {error}\n")
    finally:
        sys.stderr.flush()
        os._exit(code)


async def _member(server: OpenEnvServer, channel: socket.socket, door: socket.socket | None) -> None:
    """Serve what the parent hands over, until it is gone."""
    loop = asyncio.get_running_loop()
    channel.setblocking(False)
    gone = asyncio.Event()
    server.http.on_end = lambda: _tell(channel)
    adopting: set[asyncio.Task[None]] = set()

    def arrived() -> None:
        try:
            told, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            told, descriptors = b"", []
        if not told:
            loop.remove_reader(channel)
            gone.set()
        for descriptor in descriptors:
            connection = socket.socket(fileno=descriptor)
            connection.setblocking(False)
            task = loop.create_task(server.http.adopt(connection))
            adopting.add(task)
            task.add_done_callback(adopting.discard)

    if door is not None:
        await server.http.listen_at(door)
    server.keep()
    loop.add_reader(channel, arrived)
    await gone.wait()
    await server.close()


def _tell(channel: socket.socket) -> None:
    try:
        channel.send(_CLOSED)
    except OSError:
        return  # the parent is gone, and this process soon is
