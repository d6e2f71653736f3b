"""Places to run a sandbox in: each mechanism, as the present user and as an ordinary one in a forked child."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec
import pytest

from flightschool.errors import FlightschoolError
from flightschool.sandbox import (
    BubblewrapProvider,
    DockerProvider,
    NativeProvider,
    ReadOnlyMount,
    SandboxProvider,
    SandboxSpec,
)
from flightschool.sandbox.launching import PACKAGE_ROOT, interpreter
from flightschool.sandbox.node.syscalls import NUMBERS

ORDINARY = 64999
"""An id that no account has."""
Body: TypeAlias = Callable[[SandboxProvider], Awaitable[None]]
SECRET = "secret-of-the-grader"
HELPED = "+helper"
NATIVE = ("native-range", "native-range" + HELPED, "native-single", "native-single" + HELPED)
"""By the launcher in Python, and by the native helper in C. A weakened twin is the Python launcher's in both; that the
two set up the same is what ``test_helper.py`` compares.
"""
PLACES = (*NATIVE, "bubblewrap", "docker")


PRELUDE = f"""
import ctypes, errno, os, signal, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
N = {NUMBERS!r}

def call(name, *words):
    number = N[name] if isinstance(name, str) else name
    value = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(w) if isinstance(w, int) else w for w in words])
    return value if value >= 0 else -ctypes.get_errno()

def fired(*evidence):
    print("FIRED", *evidence, flush=True)
    os._exit(0)

def blocked(*why):
    print("BLOCKED", *why, flush=True)
    os._exit(0)

def judge(value):
    fired(value) if value >= 0 else blocked(errno.errorcode.get(-value, value))

LAUNCHER = int(sys.argv[1])
"""
"""Beginning of every attack script: arguments are the launcher's pid and what the test adds."""


class Place:
    """One mechanism, run by the user it is for."""

    def __init__(self, name: str) -> None:
        self.name = name.removesuffix(HELPED)
        self.helped = name.endswith(HELPED)
        self.dropped = self.name == "native-single" and os.geteuid() == 0
        self.user = ORDINARY if self.dropped else os.geteuid()

    def provider(self, without: Collection[str] = ()) -> SandboxProvider:
        match self.name:
            case "bubblewrap":
                return BubblewrapProvider()
            case "docker":
                return DockerProvider()
            case _:
                return NativeProvider(mode=self.name.removeprefix("native-"), without=without, helper=self.helped)

    def run(self, body: Body, without: Collection[str] = ()) -> None:
        """Run ``body`` with a provider; as an ordinary user where the mechanism is for one."""

        async def whole() -> None:
            provider = self.provider(without)
            try:
                await body(provider)
            finally:
                await provider.aclose()

        self.run_here(lambda: asyncio.run(whole()))

    def python(self) -> tuple[str, tuple[ReadOnlyMount, ...]]:
        """An interpreter for scripts inside, and what must be mounted for it. Ask where the body runs."""
        other = self.name == "bubblewrap" and os.geteuid() == 0  # run there as nobody
        found = interpreter(65534 if other else None)
        prefix = found.prefix
        return found.program, () if prefix.startswith("/usr") else (ReadOnlyMount(source=prefix, target=prefix),)

    def verdict(
        self,
        script: str,
        *,
        without: Collection[str] = (),
        spec: SandboxSpec | None = None,
        arguments: Sequence[str] = (),
    ) -> str:
        """What an attack script says in a sandbox: ``FIRED …`` or ``BLOCKED …``; anything else is a broken probe."""
        told, tells = os.pipe()

        async def body(provider: SandboxProvider) -> None:
            program, mounts = self.python()
            wanted = spec or SandboxSpec()
            whole = msgspec.structs.replace(wanted, mounts=(*wanted.mounts, *mounts))
            async with provider.open(whole) as box:
                pid = provider.launcher_pid if isinstance(provider, NativeProvider) else 0
                result = await box.exec([program, "-c", PRELUDE + script, str(pid), *arguments], timeout_s=30)
                os.write(tells, (result.stdout or repr(result).encode())[:4000])

        self.run(body, without)
        os.close(tells)
        with os.fdopen(told, "rb") as pipe:
            text = pipe.read().decode(errors="replace")
        assert text.startswith(("FIRED", "BLOCKED")), text
        return text

    def check_probe(
        self, script: str, without: Collection[str], spec: SandboxSpec | None = None, arguments: Sequence[str] = ()
    ) -> None:
        """The attack must work once the defence is left out, and must not work with it."""
        weak = self.verdict(script, without=without, spec=spec, arguments=arguments)
        assert weak.startswith("FIRED"), f"without {without}: {weak}"
        full = self.verdict(script, spec=spec, arguments=arguments)
        assert full.startswith("BLOCKED"), full

    def run_here(self, work: Callable[[], None]) -> None:
        """Run plain code as the user of this place."""
        if self.dropped:
            _in_child(work)
        else:
            work()


def _in_child(work: Callable[[], None]) -> None:
    """In a forked child that gave up root for good. Its traceback, if any, becomes ours."""
    told, tells = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # later Pythons warn of forking beside threads; none of ours hold locks
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(told)
            os.setgroups([])
            os.setresgid(ORDINARY, ORDINARY, ORDINARY)
            os.setresuid(ORDINARY, ORDINARY, ORDINARY)
            interpreter.cache_clear()
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - a fork must never run on into pytest
            os.write(tells, traceback.format_exc().encode()[-60000:])
        finally:
            os._exit(code)
    os.close(tells)
    with os.fdopen(told, "rb") as pipe:
        text = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        pytest.fail(f"as an ordinary user:\n{text}", pytrace=False)


@functools.cache
def reason_to_skip(name: str) -> str:
    """Why a mechanism cannot be tried here; empty where it works."""
    if not sys.platform.startswith("linux"):
        return "sandboxes need Linux"
    if name.startswith("native-range") and os.geteuid() != 0:
        return "a range of ids is mapped by root only"
    place = Place(name)
    told, tells = os.pipe()

    def look() -> None:
        async def tried() -> str:
            if not os.access(PACKAGE_ROOT, os.R_OK | os.X_OK):
                return "an ordinary user may not read the package's folder"
            provider = place.provider()
            try:
                interpreter()
                found = await provider.try_out()
            finally:
                await provider.aclose()
            return "" if found.works else f"{found.found} ({found.mend})"

        try:
            os.write(tells, asyncio.run(tried()).encode()[:4000])
        except FlightschoolError as error:
            os.write(tells, str(error).encode()[:4000])

    place.run_here(look)
    os.close(tells)
    with os.fdopen(told, "rb") as pipe:
        return pipe.read().decode()


def place_of(name: str) -> Place:
    if why := reason_to_skip(name):
        pytest.skip(f"{name}: {why}")
    return Place(name)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    """Every mechanism that works here."""
    return place_of(request.param)


@pytest.fixture(params=NATIVE)
def native(request: pytest.FixtureRequest) -> Place:
    """The native mechanism, as root and as an ordinary user."""
    return place_of(request.param)


@pytest.fixture(params=["native-range", "native-range" + HELPED])
def place_as_root(request: pytest.FixtureRequest) -> Place:
    """The native mechanism of root only."""
    return place_of(request.param)


@pytest.fixture(params=["native-single", "native-single" + HELPED])
def place_of_user(request: pytest.FixtureRequest) -> Place:
    """The native mechanism of an ordinary user only."""
    return place_of(request.param)


@pytest.fixture(params=["native-range", "native-single"])
def both(request: pytest.FixtureRequest) -> tuple[Place, Place]:
    """The launcher in Python and the native helper, for the same user."""
    return place_of(request.param), place_of(request.param + HELPED)


@pytest.fixture
def grader() -> Iterator[Path]:
    """A folder of the host that everyone may read and write: only the sandbox's own walls keep it."""
    folder = Path(tempfile.mkdtemp(prefix="fs-grader-"))
    folder.chmod(0o777)
    (folder / "answer").write_text(SECRET)
    (folder / "answer").chmod(0o666)
    yield folder
    shutil.rmtree(folder)
