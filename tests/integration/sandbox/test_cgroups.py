"""Control groups from end to end, on a faked tree too: a sandbox is put into its group before it runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests import needs
from tests.integration.sandbox.conftest import open_way_to

from flightschool.errors import InfrastructureError
from flightschool.sandbox import ExecResult, Limits, NativeProvider, Sandbox, SandboxProvider, SandboxSpec, Stopped
from flightschool.sandbox.cgroups import ControlGroups, KernelFiles, find_control_groups
from flightschool.sandbox.live import AgentSandbox

if TYPE_CHECKING:
    from tests.integration.sandbox.conftest import Place

pytestmark = pytest.mark.integration


class FolderFiles(KernelFiles):
    """Plain files where the kernel would make its own."""

    def make(self, group: Path) -> None:
        group.mkdir()
        for name in ("cgroup.procs", "memory.max", "memory.swap.max", "memory.events", "pids.max"):
            (group / name).touch()

    def remove(self, group: Path) -> None:
        for path in group.iterdir():
            path.unlink()
        group.rmdir()


def test_a_sandbox_is_put_into_its_group(any_native: Place, tmp_path: Path) -> None:
    open_way_to(tmp_path)
    base = tmp_path / "groups"
    base.mkdir()
    base.chmod(0o777)

    async def body(_: SandboxProvider) -> None:
        groups = ControlGroups(base, frozenset({"memory", "pids"}), FolderFiles())
        provider = NativeProvider(helper=any_native.helped, groups=groups)
        try:
            async with provider.open(SandboxSpec(limits=Limits(pids=17))) as box:
                assert (await box.exec(["true"])).ok
                (group,) = base.iterdir()
                (init,) = psutil.Process(provider.launcher_pid).children()
                assert (group / "cgroup.procs").read_text() == str(init.pid)
                assert (group / "pids.max").read_text() == "17"
                own = Path(f"/proc/{init.pid}/ns/cgroup").readlink() if os.geteuid() == 0 else None
                assert own != Path("/proc/self/ns/cgroup").readlink()
                lines = {line.limit: line.mechanism for line in box.enforcement}
                assert lines["memory_bytes"].startswith("cgroup memory.max")
                killed = await box.exec("kill -9 $$")
                assert killed.stopped is Stopped.NO
                (group / "memory.events").write_text("oom_kill 0\n")
                result = await _while(box, lambda: (group / "memory.events").write_text("oom_kill 1\n"))
                assert result.stopped is Stopped.MEMORY, "what the kernel killed for memory is named so"
            assert list(base.iterdir()) == []
            base.chmod(0o500)
            if os.geteuid() != 0:
                with pytest.raises(InfrastructureError, match="control group"):
                    await provider.start(SandboxSpec())
            base.chmod(0o700)
        finally:
            await provider.aclose()

    if any_native.dropped:
        os.chown(base, any_native.user, any_native.user)
    any_native.run(body)


async def _while(box: Sandbox, act: Callable[[], object]) -> ExecResult:
    """A command that is killed after ``act``, which comes after it has begun."""
    begun = asyncio.Event()
    script = "echo begun; until [ -e /tmp/go ]; do sleep 0.02; done; kill -9 $$"
    task = asyncio.create_task(box.exec(script, on_output=lambda *_: begun.set()))
    await begun.wait()
    act()
    await box.put("/tmp/go", b"")
    return await task


def test_the_kernel_keeps_the_limits_where_groups_can_be_made(any_native: Place) -> None:
    """On a real hierarchy; skipped where none is writable."""

    async def body(provider: SandboxProvider) -> None:
        found = find_control_groups()
        if isinstance(found, str):
            os.write(tells, f"skip {found}".encode())
            return
        found.close()
        spec = SandboxSpec(limits=Limits(memory_bytes=64 << 20, disk_bytes=8 << 20, pids=24, cpus=0.5))
        async with provider.open(spec) as box:
            lines = {line.limit: line.mechanism for line in box.enforcement}
            assert lines["pids"].startswith("cgroup pids.max")
            told = await box.exec("cat /proc/self/cgroup")
            assert b"0::/\n" in told.stdout, told
            forks = await box.exec("for i in $(seq 60); do sleep 9 & done; wait", timeout_s=1, sweep_on_timeout=True)
            assert b"fork" in forks.stderr.lower()

    told, tells = os.pipe()
    any_native.run(body)
    os.close(tells)
    with os.fdopen(told) as pipe:
        said = pipe.read()
    if said.startswith("skip"):
        needs.skip("control groups to write", f"{said.removeprefix('skip ')}; run where version 2 is delegated")


class BareFiles(KernelFiles):
    """The kernel's own groups where it has no controllers for them: real processes, members and removals, no limits."""

    def read(self, group: Path, name: str) -> str:
        if name in ("cgroup.controllers", "cgroup.subtree_control"):
            return "memory pids"
        return super().read(group, name) if (group / name).exists() else ""

    def write(self, group: Path, name: str, text: str) -> None:
        if (group / name).exists() and name != "cgroup.subtree_control":
            super().write(group, name, text)


@pytest.fixture
def real_groups() -> Iterator[Callable[[], ControlGroups]]:
    """Makes groups on the real hierarchy; nothing of them is there afterwards."""

    def make() -> ControlGroups:
        found = find_control_groups(files=BareFiles())
        if isinstance(found, str):
            needs.skip("control groups to write", f"{found}; run where version 2 is delegated")
        made.append(found.base)
        return found

    made: list[Path] = []
    yield make
    assert not [base for base in made if base.exists()]


async def _busy(provider: NativeProvider, num: int) -> list[AgentSandbox]:
    boxes = [await provider.start(SandboxSpec()) for _ in range(num)]
    for box in boxes:
        await box.exec("sleep 935 >/dev/null 2>&1 & setsid sleep 936 >/dev/null 2>&1 & true")
    return boxes


def members(base: Path) -> list[int]:
    with contextlib.suppress(FileNotFoundError):  # one may go between two looks
        return [len((group / "cgroup.procs").read_text().split()) for group in base.iterdir() if group.is_dir()]
    return []


def test_a_killed_launcher_leaves_no_group(any_native: Place, real_groups: Callable[[], ControlGroups]) -> None:
    if any_native.dropped or os.geteuid() != 0:
        needs.skip("root", "run the tests as root; only it makes groups here, in places that did not give it up")

    async def body(_: SandboxProvider) -> None:
        groups = real_groups()
        provider = NativeProvider(helper=any_native.helped, groups=groups)
        try:
            boxes = await _busy(provider, 3)
            assert members(groups.base) == [3, 3, 3], "the agent and both daemons of each"
            os.kill(provider.launcher_pid or 0, signal.SIGKILL)
            with pytest.raises(InfrastructureError):
                await boxes[0].exec(["sleep", "5"])
            async with provider.open(SandboxSpec()) as box:
                assert (await box.exec(["true"])).ok
            for one in boxes:
                await one.close()
            assert members(groups.base) == []
        finally:
            await provider.aclose()

    any_native.run(body)


def test_a_killed_caller_leaves_no_group(any_native: Place, real_groups: Callable[[], ControlGroups]) -> None:
    """The launcher removes them; if it was killed as well, the next caller does."""
    if any_native.dropped or os.geteuid() != 0:
        needs.skip("root", "run the tests as root; only it makes groups here, in places that did not give it up")
    for kill_launcher in (False, True):
        told, tells = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(_killed_caller(any_native, tells, kill_launcher))
            finally:
                os._exit(1)
        os.waitpid(pid, 0)
        os.close(tells)
        with os.fdopen(told) as pipe:
            base = Path(pipe.read())
        end = time.monotonic() + 60
        while base.is_dir() and (not kill_launcher or any(members(base))):
            assert time.monotonic() < end, members(base)
            time.sleep(0.02)
        assert base.is_dir() == kill_launcher, "with both killed it is the next caller's to remove"
        real_groups().close()
        assert not base.exists()


def test_groups_of_sandboxes_that_died_before_their_caller_go_with_it(
    any_native: Place, real_groups: Callable[[], ControlGroups]
) -> None:
    """A sandbox sees that its caller is gone, and may end before the launcher knows."""
    if any_native.dropped or os.geteuid() != 0:
        needs.skip("root", "run the tests as root; only it makes groups here, in places that did not give it up")
    real_groups().close()
    told, tells = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(_stopped_caller(any_native, tells))
        finally:
            os._exit(1)
    os.close(tells)
    with os.fdopen(told) as pipe:
        base = Path(pipe.readline().strip())
        os.waitpid(pid, os.WUNTRACED)
        for group in base.iterdir():
            if group.is_dir():
                for one in (group / "cgroup.procs").read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(one), signal.SIGKILL)
        end = time.monotonic() + 60
        while any(members(base)) and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.1)  # the launcher has buried them
        assert members(base) == [0, 0], "they are the caller's to remove, and it stands still"
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    while base.is_dir():
        assert time.monotonic() < end, members(base)
        time.sleep(0.02)


async def _stopped_caller(place: Place, tells: int) -> None:
    groups = find_control_groups(files=BareFiles())
    assert isinstance(groups, ControlGroups)
    provider = NativeProvider(helper=place.helped, groups=groups)
    await _busy(provider, 2)
    os.write(tells, f"{groups.base}\n".encode())
    os.kill(os.getpid(), signal.SIGSTOP)


async def _killed_caller(place: Place, tells: int, kill_launcher: bool) -> None:
    groups = find_control_groups(files=BareFiles())
    assert isinstance(groups, ControlGroups)
    provider = NativeProvider(helper=place.helped, groups=groups)
    await _busy(provider, 2)
    os.write(tells, str(groups.base).encode())
    if kill_launcher:
        os.kill(provider.launcher_pid or 0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
