"""Attacks on the machine's resources, and processes that want to live on. Small bombs, and capped twins."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from typing import TYPE_CHECKING

import psutil
import pytest

from flightschool.sandbox import Limits, NativeProvider, SandboxProvider, SandboxSpec, Stopped
from flightschool.sandbox.helper import compiler

if TYPE_CHECKING:
    from tests.integration.sandbox.conftest import Place

pytestmark = [pytest.mark.integration, pytest.mark.long]
MIB = 1 << 20
SMALL = SandboxSpec(limits=Limits(pids=32, disk_bytes=8 * MIB, inodes=400, memory_bytes=96 * MIB))

FORKS = """
made = 0
for _ in range(60):
    try:
        pid = os.fork()
    except OSError:
        break
    if pid == 0:
        time.sleep(20)
        os._exit(0)
    made += 1
fired(made) if made > 40 else blocked(made)
"""
DISK = """
written = 0
try:
    for number in range(4):
        with open(f"/tmp/{number}", "wb") as file:
            for _ in range(6):
                written += file.write(bytes(1 << 20))
except OSError as error:
    blocked(written, error)
fired(written)
"""
INODES = """
try:
    for number in range(1000):
        open(f"/tmp/{number}", "w").close()
except OSError as error:
    blocked(number, error)
fired(number)
"""


def test_a_fork_bomb_stops_at_the_limit(native: Place) -> None:
    native.check_probe(FORKS, ["pids"], SMALL)


def test_a_full_disk_is_the_sandbox_s_own(native: Place) -> None:
    native.check_probe(DISK, ["size"], SMALL)


def test_used_up_inodes_are_the_sandbox_s_own(native: Place) -> None:
    native.check_probe(INODES, ["inodes"], SMALL)


MEMORY = {
    "many processes": """
for _ in range(2):
    os.fork()
data = bytearray(os.urandom(1 << 20) * 50)
hold()
fired()
""",
    "shared memory": """
import mmap
data = mmap.mmap(-1, 200 << 20)
data.write(bytes(200 << 20))
hold()
fired()
""",
    "segments that no process holds": """
for key in range(4):
    number = libc.shmget(1000 + key, ctypes.c_size_t(50 << 20), 0o1600)
    libc.shmat.restype = ctypes.c_void_p
    place = libc.shmat(number, None, 0)
    ctypes.memset(place, 1, 50 << 20)
    libc.shmdt(ctypes.c_void_p(place))
hold()
fired()
""",
    "a segment behind many small ones": """
for key in range(900):
    libc.shmget(3000 + key, ctypes.c_size_t(4096), 0o1600)
number = libc.shmget(1000, ctypes.c_size_t(200 << 20), 0o1600)
libc.shmat.restype = ctypes.c_void_p
place = libc.shmat(number, None, 0)
ctypes.memset(place, 1, 200 << 20)
libc.shmdt(ctypes.c_void_p(place))
hold()
fired()
""",
    "a process that hides its pages": """
libc.prctl(4, 0, 0, 0, 0)
data = bytearray(os.urandom(1 << 20) * 200)
hold()
fired()
""",
}


@pytest.mark.parametrize("kind", MEMORY)
def test_a_memory_bomb_is_ended(native: Place, kind: str) -> None:
    weak = native.verdict("hold = lambda: time.sleep(0.5)\n" + MEMORY[kind], without=["memory"], spec=SMALL)
    assert weak.startswith("FIRED")

    async def body(provider: SandboxProvider) -> None:
        program, mounts = native.python()
        spec = SandboxSpec(limits=SMALL.limits, mounts=mounts)
        async with provider.open(spec) as box:
            prelude = (
                "import ctypes, os, time\nlibc = ctypes.CDLL(None)\nfired = print\nhold = lambda: time.sleep(50)\n"
            )
            ended = await box.exec([program, "-c", prelude + MEMORY[kind]])
            assert ended.stopped is Stopped.MEMORY
            assert ended.signal == signal.SIGKILL

    for place in (native, native.twin):
        place.run(body)


@pytest.mark.slow
def test_the_host_s_memory_never_falls_by_more_than_what_is_declared(native: Place) -> None:
    """Eight processes fill as fast as they can. What other programs take meanwhile only ever adds to what is seen to
    fall, so one look of a dozen that stays within the bound shows it.
    """
    limits = Limits(memory_bytes=128 * MIB, pids=32)
    script = "import os\nfor _ in range(3): os.fork()\ndata = []\nwhile True: data.append(os.urandom(1 << 12) * 256)"

    async def fallen(provider: SandboxProvider) -> int:
        program, mounts = native.python()
        least, done = psutil.virtual_memory().available, asyncio.Event()
        before = least

        async def look() -> None:
            nonlocal least
            while not done.is_set():
                least = min(least, psutil.virtual_memory().available)
                await asyncio.sleep(0.001)

        async with provider.open(SandboxSpec(limits=limits, mounts=mounts)) as box:
            looking = asyncio.create_task(look())
            ended = await box.exec([program, "-c", script], timeout_s=20)
            done.set()
            await looking
        assert ended.stopped is Stopped.MEMORY
        return before - least

    async def body(provider: SandboxProvider) -> None:
        seen: list[int] = []
        while len(seen) < 12 and not any(one < limits.memory_bytes + 128 * MIB for one in seen):
            seen.append(await fallen(provider))
        assert min(seen) < limits.memory_bytes + 128 * MIB, seen

    native.run(body)


def lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def sleepers() -> list[psutil.Process]:
    """Daemons that this process has begun; other tests beside this one begin their own."""
    own = (["sleep", f"9{os.getpid():07}.986"], ["sleep", f"9{os.getpid():07}.987"])
    listed = psutil.process_iter(["cmdline"])  # a process that vanished meanwhile has no command line
    return [process for process in listed if process.info["cmdline"] in own]


def daemon() -> str:
    pid = f"9{os.getpid():07}"
    begin = f"sleep {pid}.987 & echo $! > /tmp/.pid; mv /tmp/.pid /tmp/pid; exec sleep {pid}.986"
    return f"setsid sh -c '{begin}' >/dev/null 2>&1 & until [ -e /tmp/pid ]; do sleep 0.02; done; cat /tmp/pid"


async def begun() -> list[psutil.Process]:
    """The daemons, once both run."""
    for _ in range(1000):
        if len(found := sleepers()) == 2:
            return found
        await asyncio.sleep(0.02)
    return sleepers()


def test_a_daemon_does_not_outlive_its_sandbox(any_native: Place) -> None:
    """Without a pid namespace it does, and its pid there is the host's."""

    async def weak(provider: SandboxProvider) -> None:
        become_reaper_of_orphans = 36
        ctypes.CDLL(None).prctl(become_reaper_of_orphans, 1, 0, 0, 0)
        async with provider.open(SandboxSpec()) as box:
            await box.exec(daemon())
            await begun()
        alive = sleepers()
        for process in alive:
            process.kill()
            os.waitpid(process.pid, 0)
        ctypes.CDLL(None).prctl(become_reaper_of_orphans, 0, 0, 0, 0)
        assert len(alive) == 2

    async def full(provider: SandboxProvider) -> None:
        async with provider.open(SandboxSpec()) as box:
            assert int((await box.exec(daemon())).stdout) < 100
            assert len(await begun()) == 2
        assert not sleepers()

    if any_native.helped or compiler() is None:  # a weakened twin is the Python launcher's in any case
        any_native.run(weak, without=["pid"])
    any_native.run(full)


def test_sandboxes_die_with_a_killed_launcher(any_native: Place) -> None:
    """Not for the agent's noticing: one that hangs dies as well. Without the parent-death signal it lives on."""

    async def survivors(provider: SandboxProvider, patience: int) -> list[psutil.Process]:
        assert isinstance(provider, NativeProvider)
        boxes = [await provider.start(SandboxSpec()) for _ in range(3)]
        for box in boxes:
            await box.exec("sleep 975 >/dev/null 2>&1 & setsid sleep 976 >/dev/null 2>&1 & true")
        launcher = psutil.Process(provider.launcher_pid)
        family = launcher.children(recursive=True)
        assert len(family) >= 9
        os.kill(launcher.pid, signal.SIGKILL)
        for _ in range(patience):
            await asyncio.sleep(0.02)
            alive = [p for p in family if lives(p)]
            if not alive:
                break
        for box in boxes:
            await box.close()
        return alive

    async def full(provider: SandboxProvider) -> None:
        assert await survivors(provider, 2000) == []

    async def weak(provider: SandboxProvider) -> None:
        assert await survivors(provider, 20)

    any_native.run(full)
    if any_native.helped or compiler() is None:
        any_native.run(weak, without=["parent_death"])
