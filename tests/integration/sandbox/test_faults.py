"""What happens when the world fails: a killed launcher, a full disk; and that many sandboxes leave nothing behind."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests import needs
from tests.integration.sandbox.conftest import open_way_to

from flightschool.bench.sandbox_leaks import count_leftovers, disk_bytes, fly_and_count, grown, mark, segment_bytes
from flightschool.errors import InfrastructureError
from flightschool.sandbox import ImageTree, Limits, NativeProvider, ReadOnlyMount, SandboxProvider, SandboxSpec
from flightschool.sandbox.cgroups import GROUP_PREFIX
from flightschool.sandbox.helper import compiler, find_helper

if TYPE_CHECKING:
    from tests.integration.sandbox.conftest import Place

pytestmark = pytest.mark.integration
MANY, FEW = 500, 60
PIDS = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))
GROUPS = tuple(
    path for path in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")) if (path / "cgroup.controllers").exists()
)
"""Where the kernel's control groups of version 2 are."""
HOST = tuple(
    ReadOnlyMount(source=name, target=name)
    for name in ("/usr", "/lib", "/lib64", "/bin")
    if Path(name).is_dir() and not Path(name).is_symlink()
)
"""The host's programs, under an image tree that has none."""


def test_a_killed_launcher_is_an_infrastructure_error_and_a_new_one_is_started(any_native: Place) -> None:
    async def body(provider: SandboxProvider) -> None:
        assert isinstance(provider, NativeProvider)
        box = await provider.start(SandboxSpec())
        await box.exec("echo kept > state")
        running = asyncio.create_task(box.exec("sleep 1000"))
        await asyncio.sleep(0.2)
        first = provider.launcher_pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        with pytest.raises(InfrastructureError, match="sandbox lost"):
            await asyncio.wait_for(running, 100)
        with pytest.raises(InfrastructureError, match="sandbox lost"):
            await box.exec(["true"])
        async with provider.open(SandboxSpec()) as other:
            assert (await other.exec(["true"])).ok
            assert provider.launcher_pid != first
            assert not psutil.pid_exists(first), "the dead one is reaped"
        assert await box.get("/home/user/state") == b"kept\n"
        await box.close()

    any_native.run(body)


def test_the_launcher_ends_when_its_caller_is_killed(any_native: Place) -> None:
    told, tells = os.pipe()

    def caller() -> None:
        async def body() -> None:
            provider = NativeProvider(helper=any_native.helped)
            box = await provider.start(SandboxSpec())
            await box.exec("sleep 964 >/dev/null 2>&1 &")
            family = psutil.Process(provider.launcher_pid).children(recursive=True)
            os.write(tells, " ".join(str(p.pid) for p in (*family, psutil.Process(provider.launcher_pid))).encode())
            os.kill(os.getpid(), signal.SIGKILL)

        asyncio.run(body())

    pid = os.fork()
    if pid == 0:
        try:
            any_native.run_here(caller)
        finally:
            os._exit(1)
    os.waitpid(pid, 0)
    os.close(tells)
    with os.fdopen(told, "rb") as pipe:
        pids = [int(word) for word in pipe.read().split()]
    assert len(pids) >= 3
    assert _gone(pids)


def _gone(pids: list[int]) -> bool:
    end = time.monotonic() + 60
    while any(map(_lives, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(_lives, pids))


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:  # it may vanish between any two looks
        return False


def test_a_set_up_that_fails_names_its_step_and_leaves_nothing(any_native: Place) -> None:
    async def body(provider: SandboxProvider) -> None:
        wanted = SandboxSpec(limits=Limits(inodes=128), workdir="/" + "/".join("a" * 150))
        with pytest.raises(InfrastructureError, match="No space left on device"):
            await provider.start(wanted)
        async with provider.open(SandboxSpec()) as box:
            assert (await box.exec(["true"])).ok
            assert isinstance(provider, NativeProvider)
            assert len(psutil.Process(provider.launcher_pid).children()) == 1

    any_native.run(body)


def test_a_host_without_free_pids_is_a_clear_error_and_keeps_what_runs(place_of_user: Place) -> None:
    async def body(provider: SandboxProvider) -> None:
        assert isinstance(provider, NativeProvider)
        async with provider.open(SandboxSpec()) as box:
            launcher = psutil.Process(provider.launcher_pid)
            _, most = launcher.rlimit(psutil.RLIMIT_NPROC)
            launcher.rlimit(psutil.RLIMIT_NPROC, (0, most))
            with pytest.raises(InfrastructureError, match="Resource temporarily unavailable"):
                await provider.start(SandboxSpec())
            assert (await box.exec(["true"])).ok
            launcher.rlimit(psutil.RLIMIT_NPROC, (most, most))
            async with provider.open(SandboxSpec()) as other:
                assert (await other.exec(["true"])).ok

    place_of_user.run(body)


def test_the_same_as_root_whose_processes_a_control_group_counts(place_as_root: Place) -> None:
    """A host without free pids, made by the kernel's own count; in a child that goes into the group."""
    group = next((path / f"fs-{os.getpid()}" for path in PIDS if (path / "cgroup.procs").exists()), None)
    try:
        if group is None:
            raise OSError
        group.mkdir()
        (group / "pids.max").read_text()
    except OSError:
        needs.skip("a control group that counts processes", "run as root where the pids controller is delegated")
    told, tells = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            (group / "cgroup.procs").write_text(str(os.getpid()))
            place_as_root.run(lambda provider: _out_of_pids(provider, group / "pids.max", tells))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(tells)
    with os.fdopen(told) as pipe:
        said = pipe.read()
    group.rmdir()
    assert said == "refused, kept, opened"


async def _out_of_pids(provider: SandboxProvider, most: Path, tells: int) -> None:
    async with provider.open(SandboxSpec()) as box:
        begun = asyncio.Event()
        running = asyncio.create_task(
            box.exec("sleep 2 & echo begun; wait; echo kept", on_output=lambda *_: begun.set())
        )
        await begun.wait()
        most.write_text("1")
        with pytest.raises(InfrastructureError, match="Resource temporarily unavailable"):
            await provider.start(SandboxSpec())
        os.write(tells, b"refused, ")
        assert (await running).stdout == b"begun\nkept\n"
        os.write(tells, b"kept, ")
        most.write_text("max")
        async with provider.open(SandboxSpec()) as other:
            assert (await other.exec(["true"])).ok
        os.write(tells, b"opened")


def test_a_launcher_out_of_descriptors_is_a_clear_error_and_keeps_what_runs(any_native: Place) -> None:
    async def body(provider: SandboxProvider) -> None:
        assert isinstance(provider, NativeProvider)
        async with provider.open(SandboxSpec()) as box:
            launcher = psutil.Process(provider.launcher_pid)
            before = launcher.num_fds()
            for spare in (0, 1, 2, 3, 4, 5):
                limits = launcher.rlimit(psutil.RLIMIT_NOFILE)
                launcher.rlimit(psutil.RLIMIT_NOFILE, (before + spare, limits[1]))
                try:
                    opened = await provider.start(SandboxSpec())
                except InfrastructureError as error:
                    assert "descriptor" in str(error) or "open files" in str(error)  # noqa: PT017 - not always one
                else:
                    await opened.close()
                    assert spare >= 3
                launcher.rlimit(psutil.RLIMIT_NOFILE, limits)
                assert (await box.exec(["true"])).ok
            assert launcher.num_fds() == before
            assert len(launcher.children(recursive=True)) == 1
            async with provider.open(SandboxSpec()) as other:
                assert (await other.exec(["true"])).ok

    any_native.run(body)


def test_a_host_with_a_full_disk_does_not_matter(place_as_root: Place) -> None:
    """Sandboxes write to memory with a cap of their own; the full disk is one of a mount namespace of this test."""
    told, tells = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(told)
            os.write(tells, _with_a_full_disk(place_as_root).encode())
        finally:
            os._exit(0)
    os.close(tells)
    with os.fdopen(told, "rb") as pipe:
        assert pipe.read() == b"kept and opened"
    os.waitpid(pid, 0)


def _with_a_full_disk(place: Place) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    new_mounts, private = 0x20000, 0x44000
    assert libc.unshare(new_mounts) == 0
    assert libc.mount(b"none", b"/", None, private, None) == 0
    steps: list[str] = []

    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SandboxSpec()) as box:
            for folder in (b"/tmp", b"/var/tmp", b"/dev/shm"):
                assert libc.mount(b"none", folder, b"tmpfs", 0, b"size=4k,nr_inodes=2") == 0
                Path(folder.decode(), "fill").write_bytes(bytes(4096))
                with pytest.raises(OSError, match="No space left"):
                    Path(folder.decode(), "more").write_bytes(bytes(1))
            assert (await box.exec("echo x > /tmp/x; cat /tmp/x")).stdout == b"x\n"
            steps.append("kept")
            async with provider.open(SandboxSpec(hostname="another")) as other:
                assert (await other.exec("echo x > /tmp/x; cat /tmp/x")).stdout == b"x\n"
            steps.append("opened")

    place.run(body)
    return " and ".join(steps)


def test_a_host_out_of_memory_for_a_root_is_a_clear_error(native: Place) -> None:
    """As far as a set-up gets when its own file system has no more room."""

    async def body(provider: SandboxProvider) -> None:
        async with provider.open(SandboxSpec()) as box:
            with pytest.raises(InfrastructureError, match="No space left on device"):
                await provider.start(SandboxSpec(limits=Limits(inodes=128), workdir="/" + "/".join("b" * 120)))
            assert (await box.exec(["true"])).ok

    native.run(body)


def _many_leave_nothing(place: Place, num_episodes: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="fs-many-"))  # not pytest's: another one that starts meanwhile closes the way
    folder.chmod(0o777)

    def work() -> None:
        async def whole() -> None:
            others = set(psutil.Process().children(recursive=True))  # of other tests' providers
            provider = place.provider()
            assert isinstance(provider, NativeProvider)
            try:
                async with provider.open(SandboxSpec()):
                    launcher = psutil.Process(provider.launcher_pid)
                first, last = await fly_and_count(provider, 16, folder=folder)
                memory = launcher.memory_info().rss
                before, after = await fly_and_count(provider, num_episodes, folder=folder)
                assert after == before == last
                assert (first.files, first.zombies) == (0, 0)
                assert launcher.children(recursive=True) == []
                assert launcher.memory_info().rss - memory < 4 << 20
            finally:
                await provider.aclose()
            assert set(psutil.Process().children(recursive=True)) <= others

        find_helper()  # a user without a home has it in the temporary folder
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", str(folder))
            patch.setattr(tempfile, "tempdir", None)
            asyncio.run(whole())

    place.run_here(work)
    folder.rmdir()  # it is empty


def test_many_sandboxes_leave_nothing_behind(any_native: Place) -> None:
    chosen = any_native.helped or compiler() is None
    _many_leave_nothing(any_native, MANY if chosen and not any_native.dropped else FEW)


@pytest.mark.slow
def test_ten_thousand_sandboxes_leave_nothing_behind(any_native: Place) -> None:
    _many_leave_nothing(any_native, 10_000)


def test_what_is_left_is_counted(tmp_path: Path) -> None:
    """The count sees each kind: a twin of the test above. A control group takes part where the kernel makes one."""
    needs.root("an ordinary user makes no network namespace and mounts nothing as simply")
    group = next((path / f"{GROUP_PREFIX}{os.getpid()}-twin" for path in GROUPS if path.is_dir()), None)
    before = count_leftovers(folder=tmp_path)
    (tmp_path / "file").touch()
    libc = ctypes.CDLL(None)
    segment = libc.shmget(0, segment_bytes(), 0o1600)
    fd = os.open("/", os.O_PATH)
    dead = _forked(lambda: None)
    ready, tells_ready = os.pipe()

    def live_apart() -> None:
        libc.unshare(0x40000000)
        os.write(tells_ready, b"x")
        time.sleep(600)

    alive = _forked(live_apart)
    os.read(ready, 1)
    if group is not None:
        group.mkdir()
    os.waitid(os.P_PID, dead, os.WEXITED | os.WNOWAIT)
    after = count_leftovers(folder=tmp_path)
    if group is not None:
        group.rmdir()
    os.kill(alive, signal.SIGKILL)
    for pid in (dead, alive):
        os.waitpid(pid, 0)
    for one in (fd, ready, tells_ready):
        os.close(one)
    libc.shmctl(segment, 0, None)
    wanted = {"files", "segments", "descriptors", "processes", "zombies", "namespaces"}
    assert wanted | ({"cgroups"} if group is not None else set()) <= grown(before, after).keys()
    assert count_leftovers(folder=tmp_path).processes == before.processes


def test_a_mount_that_is_left_is_counted_and_what_others_make_is_not(tmp_path: Path) -> None:
    """In a mount namespace of this test."""
    needs.root("an ordinary user mounts nothing as simply")
    for name in ("ours", "beneath", "others"):
        (tmp_path / name).mkdir()
    told, tells = os.pipe()

    def work() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.unshare(0x20000) == 0
        assert libc.mount(b"none", b"/", None, 0x44000, None) == 0
        counts = [count_leftovers().mounts]
        for name, size in (("others", 4096 * 7), ("ours", disk_bytes())):
            assert libc.mount(b"none", os.fsencode(tmp_path / name), b"tmpfs", 0, f"size={size}".encode()) == 0
            counts.append(count_leftovers().mounts)
        (tmp_path / "ours/below").mkdir()
        assert (
            libc.mount(os.fsencode(tmp_path / "beneath"), os.fsencode(tmp_path / "ours/below"), None, 0x1000, None) == 0
        )
        os.write(tells, " ".join(map(str, [*counts, count_leftovers().mounts])).encode())

    os.waitpid(_forked(work), 0)
    os.close(tells)
    with os.fdopen(told) as pipe:
        assert pipe.read() == "0 0 1 2"


def test_what_other_processes_leave_is_not_ours(tmp_path: Path) -> None:
    """Another run of the same episodes, or of anything else, may litter at the same time."""
    libc = ctypes.CDLL(None)
    before = count_leftovers(folder=tmp_path)
    segment = libc.shmget(0, segment_bytes() + 1, 0o1600)
    strange = Path("/dev/shm") / mark().replace(str(os.getpid()), str(os.getpid() + 1))
    strange.touch()
    try:
        assert count_leftovers(folder=tmp_path) == before
    finally:
        strange.unlink()
        libc.shmctl(segment, 0, None)


def _forked(work: Callable[[], object]) -> int:
    """A child that does ``work`` and ends."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """An image tree whose programs are the host's."""
    tree = tmp_path / "image"
    (tree / "app").mkdir(parents=True)
    (tree / "etc").mkdir()
    (tree / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (tree / "app" / "data.txt").write_text("from the image\n")
    for name in ("bin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            (tree / name).symlink_to(Path("/", name).readlink())
    open_way_to(tree)
    for path in (tree / "app", tree / "etc"):
        path.chmod(path.stat().st_mode | 0o755)
    (tree / "app").chmod(0o777)
    (tree / "app" / "data.txt").chmod(0o666)
    return tree


def test_an_image_tree_is_copied_on_write(native: Place, tree: Path) -> None:
    if native.dropped:  # as if this user had unpacked it
        for path in (tree, *tree.rglob("*")):
            os.lchown(path, native.user, native.user)

    async def body(provider: SandboxProvider) -> None:
        spec = SandboxSpec(root=ImageTree(path=str(tree)), mounts=HOST, workdir="/app")
        for _ in range(2):
            async with provider.open(spec) as box:
                told = await box.exec("pwd; cat data.txt; rm data.txt; echo new > more; ls; head -1 /etc/passwd")
                assert told.stdout == b"/app\nfrom the image\nmore\nroot:x:0:0::/root:/bin/sh\n", told
                await box.stop()
                assert await box.get("/app/more") == b"new\n"

    native.run(body)
    assert [path.name for path in (tree / "app").iterdir()] == ["data.txt"]


def test_a_whole_system_with_devices_of_its_own_is_a_tree_as_well(any_native: Place, tree: Path) -> None:
    """As debootstrap leaves one. What they are does not matter: the sandbox has its own six."""
    needs.root("only it makes devices")
    (tree / "dev").mkdir()
    for number, name in enumerate(("null", "zero", "full", "random", "urandom", "tty", "console", "ptmx")):
        os.mknod(tree / "dev" / name, 0o20666, os.makedev(1, 3 + number))
    for name in ("fd", "stdin"):
        (tree / "dev" / name).symlink_to("/proc/self/fd")
    if any_native.dropped:
        for path in (tree, *tree.rglob("*")):
            os.lchown(path, any_native.user, any_native.user)

    async def body(provider: SandboxProvider) -> None:
        for changes in (False, True):
            spec = SandboxSpec(root=ImageTree(path=str(tree)), mounts=HOST, workdir="/", uid=0, gid=0, changes=changes)
            async with provider.open(spec) as box:
                told = await box.exec(
                    "echo > /dev/null; head -c 3 /dev/zero | tr '\\0' z; script -qec 'echo in' /dev/null"
                )
                assert told.stdout.replace(b"\r", b"") == b"zzzin\n", told

    any_native.run(body)


def test_an_image_s_root_is_root_inside_and_no_one_outside(place_as_root: Place, tree: Path) -> None:
    (tree / "app" / "data.txt").chmod(0o600)

    async def body(provider: SandboxProvider) -> None:
        spec = SandboxSpec(root=ImageTree(path=str(tree)), mounts=HOST, workdir="/app", uid=0, gid=0)
        async with provider.open(spec) as box:
            told = await box.exec("cat data.txt; echo changed > data.txt; stat -c %u data.txt; touch /etc/planted")
            assert told.stdout == b"from the image\n0\n", told
            assert told.ok
            await box.stop()
            assert await box.get("/app/data.txt") == b"changed\n"

    place_as_root.run(body)
    assert (tree / "app" / "data.txt").read_text() == "from the image\n"
