"""The caller's end of the launcher process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from flightschool.errors import InfrastructureError
from flightschool.sandbox.records import SandboxSpec

__all__ = ["BOOT", "PACKAGE_ROOT", "Interpreter", "Launcher", "interpreter", "plan_of"]

BOOT: Final = """
import sys, types
root, entry, argument = sys.argv[1:4]
for name in ("flightschool", "flightschool.sandbox", "flightschool.sandbox.node"):
    module = types.ModuleType(name)
    module.__path__ = ["/".join([root, *name.split(".")])]
    sys.modules[name] = module
__import__(f"flightschool.sandbox.node.{entry}")
sys.modules[f"flightschool.sandbox.node.{entry}"].main(int(argument))
"""
"""Runs a module of ``node`` without running the packages above it, which would load all its dependencies."""

PACKAGE_ROOT: Final = str(Path(__file__).resolve().parents[2])
_MOST_MESSAGE: Final = 1 << 16
_ANSWER_S: Final = 60.0


@dataclass(frozen=True)
class Interpreter:
    """A Python that runs the far side."""

    program: str
    prefix: str
    """Folder that it and its standard library lie in."""


@cache
def interpreter(user: int | None = None) -> Interpreter:
    """A Python, 3.11 or later, that the user may run: the present one where that is so.

    Args:
        user: id of another user that shall run it; None for the present one.

    Raises:
        InfrastructureError: there is none.
    """
    check = "import sys, ctypes; assert sys.version_info >= (3, 11); print(sys.base_prefix)"
    places = (None, "/usr/local/bin:/usr/bin:/bin")  # a PATH may lead to one user's own Pythons only
    named = [shutil.which(f"python3.{minor}", path=place) for place in places for minor in range(14, 10, -1)]
    for found in dict.fromkeys([sys.executable, *named]):
        if not found:
            continue
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            command = [os.path.realpath(found), "-I", "-S", "-c", check]
            other = {} if user is None else {"user": user, "group": user, "extra_groups": []}
            done = subprocess.run(command, env={}, cwd="/", capture_output=True, timeout=30, check=True, **other)  # type: ignore[call-overload]
            return Interpreter(os.path.realpath(found), done.stdout.decode().strip())
    raise InfrastructureError(
        "no Python that the sandbox's user may run",
        where="sandbox",
        expected="Python 3.11 or later on PATH",
        mend="install one for all users",
    )


class Launcher:
    """One launcher process; see ``node.launcher`` for what it does. Belongs to one event loop.

    Raises:
        InfrastructureError: the process cannot be started.
    """

    def __init__(self, without: Collection[str] = ()) -> None:
        self.loop = asyncio.get_running_loop()
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        closes = "close_descriptors" not in without
        theirs.set_inheritable(not closes)
        try:
            self._process = subprocess.Popen(
                [interpreter().program, "-I", "-S", "-c", BOOT, PACKAGE_ROOT, "launcher", str(theirs.fileno())],
                env=dict(os.environ) if "environment" in without else {},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                close_fds=closes,
                pass_fds=[theirs.fileno()] if closes else (),
                start_new_session=True,
            )
        except OSError as error:
            mine.close()
            raise InfrastructureError(
                f"the launcher cannot be started: {error}", where="launcher", expected="a free pid", mend="free some"
            ) from error
        except BaseException:
            mine.close()
            raise
        finally:
            theirs.close()
        self.dead = ""
        self._control = mine
        self._next = 1
        self._opening: dict[int, asyncio.Future[socket.socket]] = {}
        self._closing: dict[int, asyncio.Future[None]] = {}
        mine.setblocking(False)
        self.loop.add_reader(mine.fileno(), self._on_readable)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def open_box(self, plan: dict[str, Any]) -> tuple[int, socket.socket]:
        """A new sandbox: its number here, and the socket of its agent.

        Raises:
            InfrastructureError: the launcher is gone, or the kernel refused.
        """
        number, self._next = self._next, self._next + 1
        answer: asyncio.Future[socket.socket] = self.loop.create_future()
        self._opening[number] = answer
        try:
            await self._say({"op": "open", "id": number, "plan": plan})
            channel = await asyncio.wait_for(answer, _ANSWER_S)
        except TimeoutError:
            self._die("it did not answer")
            raise self._error() from None
        finally:
            self._opening.pop(number, None)
        return number, channel

    async def close_box(self, number: int) -> None:
        """Kill a sandbox and wait until every process of it is reaped. A dead launcher has done so by dying."""
        if self.dead or self.loop.is_closed():
            return
        gone = self._closing.setdefault(number, self.loop.create_future())
        with contextlib.suppress(InfrastructureError):
            await self._say({"op": "close", "id": number})
            await asyncio.wait_for(asyncio.shield(gone), _ANSWER_S)
        self._closing.pop(number, None)

    async def end(self) -> None:
        """Hang up and reap the process, which kills and reaps its sandboxes first."""
        self._die("it was ended")
        try:
            await asyncio.to_thread(self._process.wait, 30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    async def _say(self, message: dict[str, Any]) -> None:
        if self.dead:
            raise self._error()
        try:
            await self.loop.sock_sendall(self._control, json.dumps(message).encode())
        except OSError as error:
            self._die(str(error))
            raise self._error() from error

    def _on_readable(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._control, _MOST_MESSAGE, 1, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError as error:
            self._die(str(error))
            return
        channels = [socket.socket(fileno=fd) for fd in fds]
        if not data:
            self._die("its process died")
            return
        message = json.loads(data)
        opening = self._opening.get(message.get("id", 0))
        if opening is not None and not opening.done():
            if channels:
                opening.set_result(channels.pop())
            else:
                opening.set_exception(_refused(message))
        gone = self._closing.get(message.get("gone", 0))
        if gone is not None and not gone.done():
            gone.set_result(None)
        for channel in channels:  # nobody waits for it any more
            channel.close()

    def _die(self, why: str) -> None:
        if self.dead:
            return
        self.dead = why
        if not self.loop.is_closed():
            self.loop.remove_reader(self._control.fileno())
        self._control.close()
        for opening in self._opening.values():
            if not opening.done():
                opening.set_exception(self._error())
        for gone in self._closing.values():
            if not gone.done():
                gone.set_result(None)

    def _error(self) -> InfrastructureError:
        return InfrastructureError(
            f"the sandbox launcher is gone: {self.dead}",
            where="launcher",
            expected="a live launcher process",
            mend="open the sandbox again: a new launcher is started",
        )


def plan_of(spec: SandboxSpec, mode: str, without: Collection[str] = ()) -> dict[str, Any]:
    """The spec in the words of the far side (``node.plan.Plan``)."""
    limits = spec.limits
    return {
        "mode": mode,
        "uid": spec.uid,
        "gid": spec.gid,
        "hostname": spec.hostname,
        "tree": os.path.realpath(spec.root.path) if spec.root is not None else "",
        "binds": [[os.path.realpath(place.source), place.target] for place in spec.mounts],
        "workdir": spec.workdir,
        "without": sorted(without),
        **{name: getattr(limits, name) for name in limits.__struct_fields__},
    }


def _refused(message: dict[str, Any]) -> InfrastructureError:
    return InfrastructureError(
        f"the kernel refused a sandbox: {message.get('text')}",
        where="launcher",
        expected="free processes, memory and namespaces",
        mend="close other sandboxes, or see `flightschool doctor`",
    )
