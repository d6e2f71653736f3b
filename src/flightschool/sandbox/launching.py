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
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from flightschool.errors import InfrastructureError
from flightschool.sandbox.recipes import NAMESPACES, recipe_of
from flightschool.sandbox.records import SandboxSpec
from flightschool.sandbox.waiting import within

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
_FULL_S: Final = 0.001
_MOST_RECIPES: Final = 16


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

    Args:
        without: defences to leave out; the helper leaves out none.
        helper: program of the native helper; empty for the launcher in Python.

    Raises:
        InfrastructureError: the process cannot be started.
    """

    def __init__(self, without: Collection[str] = (), helper: str = "") -> None:
        self.loop = asyncio.get_running_loop()
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = _started_helper(helper, theirs) if helper else _started_python(without, theirs)
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
        self._recipes = _Recipes() if helper else None
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

    async def open_box(self, plan: dict[str, Any], group: str = "") -> tuple[int, socket.socket]:
        """A new sandbox: its number here, and the socket of its agent.

        Args:
            plan: what ``plan_of`` gave.
            group: path of the control group that it is put into; empty: none.

        Raises:
            InfrastructureError: the launcher is gone, or the kernel refused.
        """
        number, self._next = self._next, self._next + 1
        if self._recipes is not None:
            return number, await self._ask_helper(number, self._recipes.descriptor(plan), group)
        answer: asyncio.Future[socket.socket] = self.loop.create_future()
        self._opening[number] = answer
        try:
            await self._say({"op": "open", "id": number, "plan": plan, "group": group})
            channel = await within(_ANSWER_S, answer)
        except TimeoutError:
            self._die("it did not answer")
            raise self._error() from None
        finally:
            self._opening.pop(number, None)
        return number, channel

    async def _ask_helper(self, number: int, recipe: int, group: str) -> socket.socket:
        """The helper answers on the socket itself: one turn less."""
        more = {"group": group} if group else {}
        mine, theirs = socket.socketpair()
        try:
            await self._say({"op": "open", "id": number, "flags": NAMESPACES, **more}, [theirs.fileno(), recipe])
        except BaseException:
            mine.close()
            raise
        finally:
            theirs.close()
        return mine

    async def close_box(self, number: int) -> None:
        """Kill a sandbox and wait until every process of it is reaped. A dead launcher has done so by dying."""
        if self.dead or self.loop.is_closed():
            return
        gone = self._closing.setdefault(number, self.loop.create_future())
        with contextlib.suppress(InfrastructureError):
            await self._say({"op": "close", "id": number})
            await within(_ANSWER_S, gone)
        self._closing.pop(number, None)

    async def end(self) -> None:
        """Hang up and reap the process, which kills and reaps its sandboxes first."""
        self._die("it was ended")
        try:
            await asyncio.to_thread(self._process.wait, 30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    async def _say(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """One packet, whole or not at all. Many tasks share the socket, so a full one is asked again, not waited on."""
        data = [json.dumps(message).encode()]
        while not self.dead:
            try:
                socket.send_fds(self._control, data, list(fds))
            except BlockingIOError:
                await asyncio.sleep(_FULL_S)
            except OSError as error:
                self._die(str(error))
                raise self._error() from error
            else:
                return
        raise self._error()

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
        if self._recipes is not None:
            self._recipes.close()
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


class _Recipes:
    """The last few recipes, each in a file of its own in memory, whose descriptor goes to the helper."""

    def __init__(self) -> None:
        self._fds: OrderedDict[str, int] = OrderedDict()

    def descriptor(self, plan: dict[str, Any]) -> int:
        """Of the recipe of a plan; stays ours."""
        key = json.dumps(plan, sort_keys=True)
        if key in self._fds:
            self._fds.move_to_end(key)
            return self._fds[key]
        fd = os.memfd_create("recipe", os.MFD_CLOEXEC)
        with os.fdopen(fd, "wb", closefd=False) as file:
            file.write(recipe_of(plan).packed())
        self._fds[key] = fd
        if len(self._fds) > _MOST_RECIPES:
            os.close(self._fds.popitem(last=False)[1])
        return fd

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.popitem()[1])


def _started_helper(program: str, control: socket.socket) -> subprocess.Popen[bytes]:
    """Its name is all that sandboxes can see of how it was started."""
    return subprocess.Popen(
        ["sandbox-init"],
        executable=program,
        env={},
        cwd="/",
        stdin=control.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _started_python(without: Collection[str], control: socket.socket) -> subprocess.Popen[bytes]:
    closes = "close_descriptors" not in without
    control.set_inheritable(not closes)
    return subprocess.Popen(
        [interpreter().program, "-I", "-S", "-c", BOOT, PACKAGE_ROOT, "launcher", str(control.fileno())],
        env=dict(os.environ) if "environment" in without else {},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        close_fds=closes,
        pass_fds=[control.fileno()] if closes else (),
        start_new_session=True,
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
        "over_host": spec.root is not None and spec.root.over_host,
        "changes": spec.changes,
        "file_powers": spec.file_powers and spec.uid == 0,
        "workdir": spec.workdir,
        "without": sorted(without),
        **{name: getattr(limits, name) for name in limits.__struct_fields__ if name != "cpus"},
    }


def _refused(message: dict[str, Any]) -> InfrastructureError:
    return InfrastructureError(
        f"the kernel refused a sandbox: {message.get('text')}",
        where="launcher",
        expected="free processes, memory and namespaces",
        mend="close other sandboxes, or see `flightschool doctor`",
    )
