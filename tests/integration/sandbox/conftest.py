"""Places to run a sandbox in: each mechanism, as the present user and as an ordinary one in a forked child."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401 - asyncio imports it late, when an ordinary user may not read where it lies
import functools
import os
import shutil
import socket
import sys
import tempfile
import traceback
import warnings
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec
import pytest
from tests import needs

from flightschool.errors import FlightschoolError
from flightschool.sandbox import (
    BubblewrapProvider,
    DockerProvider,
    NativeProvider,
    ReadOnlyMount,
    SandboxProvider,
    SandboxSpec,
)
from flightschool.sandbox.helper import compiler
from flightschool.sandbox.launching import PACKAGE_ROOT, interpreter
from flightschool.sandbox.node.syscalls import NUMBERS

ORDINARY = 64999
"""An id that no account has."""
Body: TypeAlias = Callable[[SandboxProvider], Awaitable[None]]
SECRET = "secret-of-the-grader"
HELPED = "+helper"
BOTH = ("native-range", "native-range" + HELPED, "native-single", "native-single" + HELPED)
"""By the launcher in Python, and by the native helper in C. That the two set up the same is what ``test_helper.py``
compares; the contract, every probe, and what happens when something is killed or left behind run on both.
"""
NATIVE = tuple(name + HELPED for name in ("native-range", "native-single")) if compiler() else BOTH[::2]
"""By the one that is used here."""
_PYTHON = "native-range" if os.geteuid() == 0 else "native-single"
PLACES = tuple(dict.fromkeys((*NATIVE, _PYTHON, "bubblewrap", "docker")))
"""Of the contract: by the launcher in use, for both users; by the one in Python, for the present user; the others."""
MOST_PROVIDERS = 4


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
        if self.name == "docker":
            return "python3", ()  # the image's own
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
        fresh: bool = False,
    ) -> str:
        """What an attack script says in a sandbox: ``FIRED …`` or ``BLOCKED …``; anything else is a broken probe.

        Args:
            fresh: whether a launcher is started for it, so that it has what this process has now.
        """
        probe = Probe(
            script=script,
            without=tuple(sorted(without)),
            helped=self.helped,
            spec=spec or SandboxSpec(),
            arguments=tuple(arguments),
        )
        text = self._fresh(probe) if fresh else prober_of(self.name).ask(probe)
        assert text.startswith(("FIRED", "BLOCKED")), text
        return text

    def _fresh(self, probe: Probe) -> str:
        told, tells = os.pipe()

        async def body(provider: SandboxProvider) -> None:
            os.write(tells, (await probed(self, provider, probe)).encode())

        self.run(body, probe.without)
        os.close(tells)
        with os.fdopen(told, "rb") as pipe:
            return pipe.read().decode(errors="replace")

    def check_probe(
        self,
        script: str,
        without: Collection[str],
        spec: SandboxSpec | None = None,
        arguments: Sequence[str] = (),
        *,
        fresh: bool = False,
    ) -> None:
        """The attack must work once the defence is left out, and must not work with it, whichever launcher made it."""
        weak = self.verdict(script, without=without, spec=spec, arguments=arguments, fresh=fresh)
        assert weak.startswith("FIRED"), f"without {without}: {weak}"
        for place in (self, self.twin):
            full = place.verdict(script, spec=spec, arguments=arguments, fresh=fresh)
            assert full.startswith("BLOCKED"), (place.helped, full)

    @property
    def twin(self) -> Place:
        """The same for the same user, by the other launcher where there are two."""
        return Place(self.name if self.helped or compiler() is None else self.name + HELPED)

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
            give_up_root()
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


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One run of an attack script."""

    script: str
    without: tuple[str, ...]
    helped: bool
    spec: SandboxSpec
    arguments: tuple[str, ...]


async def probed(place: Place, provider: SandboxProvider, probe: Probe) -> str:
    """What a probe says, in a fresh sandbox."""
    program, mounts = place.python()
    whole = msgspec.structs.replace(probe.spec, mounts=(*probe.spec.mounts, *mounts))
    async with provider.open(whole) as box:
        pid = provider.launcher_pid if isinstance(provider, NativeProvider) else 0
        result = await box.exec([program, "-c", PRELUDE + probe.script, str(pid), *probe.arguments], timeout_s=30)
    return (result.stdout or repr(result).encode())[:4000].decode(errors="replace")


class Prober:
    """A process of one user that runs probes, so that a launcher is not started for each: sandboxes are fresh."""

    def __init__(self, name: str) -> None:
        self._place = Place(name)
        self._mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as below
            self._pid = os.fork()
        if self._pid == 0:
            try:
                self._mine.close()
                self._serve(theirs)
            finally:
                os._exit(0)
        theirs.close()

    def ask(self, probe: Probe) -> str:
        self._mine.send(msgspec.msgpack.encode(probe))
        return self._mine.recv(1 << 20).decode()

    def end(self) -> None:
        self._mine.send(b"end")
        os.waitpid(self._pid, 0)
        self._mine.close()

    def _serve(self, channel: socket.socket) -> None:
        if self._place.dropped:
            give_up_root()
        with asyncio.Runner() as runner:
            providers: dict[tuple[tuple[str, ...], bool], NativeProvider] = {}
            while (asked := channel.recv(1 << 20)) != b"end":
                try:
                    said = runner.run(self._answer(providers, msgspec.msgpack.decode(asked, type=Probe)))
                except BaseException:  # noqa: BLE001 - told, for whoever asked
                    said = traceback.format_exc()[-60000:]
                channel.send(said.encode())
            for provider in providers.values():
                runner.run(provider.aclose())

    async def _answer(self, providers: dict[tuple[tuple[str, ...], bool], NativeProvider], probe: Probe) -> str:
        key = (probe.without, probe.helped and not probe.without)
        provider = providers.pop(key, None)
        if provider is None:
            if len(providers) == MOST_PROVIDERS:
                await providers.pop(next(iter(providers))).aclose()
            mode = self._place.name.removeprefix("native-")
            provider = NativeProvider(mode=mode, without=key[0], helper=key[1])
        providers[key] = provider  # the one used last goes last
        return await probed(self._place, provider, probe)


_probers: dict[str, Prober] = {}


def prober_of(name: str) -> Prober:
    if name not in _probers:
        _probers[name] = Prober(name)
    return _probers[name]


@pytest.fixture(scope="module", autouse=True)
def probers() -> Iterator[None]:
    """They end with the file that began them: other files count processes."""
    yield
    while _probers:
        _probers.popitem()[1].end()


def open_way_to(folder: Path) -> None:
    """Let ordinary users pass through the folders that pytest made for root alone."""
    for path in (folder, *folder.parents):
        if path == Path(tempfile.gettempdir()):
            break
        path.chmod(path.stat().st_mode | 0o755)


def give_up_root() -> None:
    os.setgroups([])
    os.setresgid(ORDINARY, ORDINARY, ORDINARY)
    os.setresuid(ORDINARY, ORDINARY, ORDINARY)
    interpreter.cache_clear()


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
        needs.skip(f"the sandbox {name}", why)
    return Place(name)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    """Every mechanism that works here."""
    return place_of(request.param)


@pytest.fixture(params=NATIVE)
def native(request: pytest.FixtureRequest) -> Place:
    """The native mechanism by the launcher that is used here, as root and as an ordinary user."""
    return place_of(request.param)


@pytest.fixture(params=[name if name in NATIVE else pytest.param(name, marks=pytest.mark.long) for name in BOTH])
def any_native(request: pytest.FixtureRequest) -> Place:
    """The same by either launcher; by the one that is not used here among the long tests."""
    return place_of(request.param)


@pytest.fixture
def place_as_root() -> Place:
    """The native mechanism of root only."""
    return place_of(NATIVE[0])


@pytest.fixture
def place_of_user() -> Place:
    """The native mechanism of an ordinary user only."""
    return place_of(NATIVE[1])


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
